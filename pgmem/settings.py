"""What the environment says: ``PGMEM_*``, read once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgmem.errors import InvalidSettings

SCHEMA_FORM = re.compile(r"[a-z_][a-z0-9_]{0,56}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where memory lives and how long to wait for it.

    Attributes:
        database_url: ``PGMEM_DATABASE_URL``, a libpq URL; None means the embedded server.
        home: ``PGMEM_HOME``, the embedded server's folder; None means the user's data directory.
        pg_bin: ``PGMEM_PG_BIN``, a folder of Postgres binaries for the embedded server.
        schema: ``PGMEM_SCHEMA``, the schema that holds the tables.
        pool_size: ``PGMEM_POOL_SIZE``, the most connections of one Memory.
        timeout_seconds: ``PGMEM_TIMEOUT_SECONDS``, the deadline of one operation, its wait for a connection included.
        model_timeout_seconds: ``PGMEM_MODEL_TIMEOUT_SECONDS``, how long one summary or one verdict may take.
        prepared_statements: ``PGMEM_PREPARED_STATEMENTS``; set to 0 behind a PgBouncer older than 1.21.
        allow_unsafe: ``PGMEM_ALLOW_UNSAFE``; set to 1 to use a role that owns the tables or a server that may lose commits.
        max_turn_bytes: ``PGMEM_MAX_TURN_BYTES``, the largest message.
    """

    database_url: str | None = field(default=None, repr=False)
    home: Path | None = None
    pg_bin: Path | None = None
    schema: str = "pgmem"
    pool_size: int = 10
    timeout_seconds: float = 30.0
    model_timeout_seconds: float = 300.0
    prepared_statements: bool = True
    allow_unsafe: bool = False
    max_turn_bytes: int = 64 * 1024 * 1024


def read(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of ``environment``, the process's own by default.

    Raises:
        InvalidSettings: a variable is set to something that cannot be used; it names the variable.
    """
    given = os.environ if environment is None else environment
    home, pg_bin = given.get("PGMEM_HOME"), given.get("PGMEM_PG_BIN")
    return Settings(
        database_url=given.get("PGMEM_DATABASE_URL") or None,
        home=Path(home) if home else None,
        pg_bin=Path(pg_bin) if pg_bin else None,
        schema=check_schema(given.get("PGMEM_SCHEMA") or "pgmem"),
        pool_size=_whole(given, "PGMEM_POOL_SIZE", 10, least=1, most=1000),
        timeout_seconds=_number(given, "PGMEM_TIMEOUT_SECONDS", 30, least=0.1, most=86400),
        model_timeout_seconds=_number(given, "PGMEM_MODEL_TIMEOUT_SECONDS", 300, least=0.1, most=86400),
        prepared_statements=_flag(given, "PGMEM_PREPARED_STATEMENTS", default=True),
        allow_unsafe=_flag(given, "PGMEM_ALLOW_UNSAFE", default=False),
        max_turn_bytes=_whole(given, "PGMEM_MAX_TURN_BYTES", 64 * 1024 * 1024, least=1, most=256 * 1024 * 1024),
    )


def check_schema(name: object) -> str:
    """``name``, if it can be a schema's name.

    Raises:
        InvalidSettings: it is not lower-case letters, digits and ``_``, or longer than 57.
    """
    if not isinstance(name, str) or not SCHEMA_FORM.fullmatch(name):
        shown = repr(name) if isinstance(name, str) else f"a {type(name).__name__}"
        raise InvalidSettings(
            f"PGMEM_SCHEMA is {shown:.100}: a schema's name is up to 57 lower-case letters, digits and _, not starting with a digit"
        )
    return name


def _number(given: Mapping[str, str], name: str, default: float, *, least: float, most: float) -> float:
    text = given.get(name)
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise InvalidSettings(f"{name} is {text!r}: it must be a number from {least:g} to {most:g}")
    return number


def _whole(given: Mapping[str, str], name: str, default: int, *, least: int, most: int) -> int:
    number = _number(given, name, default, least=least, most=most)
    if number != int(number):
        raise InvalidSettings(f"{name} is {given[name]!r}: it must be a whole number from {least} to {most}")
    return int(number)


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, "").strip().lower()
    if not text:
        return default
    if text not in ("0", "1", "false", "true", "no", "yes", "off", "on"):
        raise InvalidSettings(f"{name} is {text!r}: it must be 1 or 0")
    return text in ("1", "true", "yes", "on")
