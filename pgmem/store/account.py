"""Chooses the account that Postgres's programs run under, since they refuse to run as root."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import platformdirs

from pgmem.errors import EmbeddedServerError
from pgmem.store.binaries import version_of

OPEN_FILES = "/proc/self/fd/"
"""Where a program finds the folders that were opened for it, without a right to enter the folders above them."""

_NOBODY = "nobody"
# The launching shells may use the nine below for themselves.
_LOWEST_DESCRIPTOR = 10
_PROBE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Door:
    """A folder as a program that is run by an account gets to it.

    Attributes:
        name: what the program calls the folder.
        keep_open: the open files that the name needs.
    """

    name: str
    keep_open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """How a program of Postgres is run so that it is not root.

    Attributes:
        bin_dir: the programs, where this account can read them.
        prefix: what comes before the program: nothing, or the way into a user namespace.
        uid: the user to become, who then owns the files; None to stay who we are.
        gid: the group to become.
    """

    bin_dir: Path
    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None

    @property
    def owner_uid(self) -> int:
        """The owner, as seen from here, of the files that the programs write."""
        return os.geteuid() if self.uid is None else self.uid

    def command(self, program: str, *arguments: str) -> list[str]:
        """The argument list that runs ``program`` of the Postgres under this account."""
        return [*self.prefix, str(self.bin_dir / program), *arguments]

    @contextlib.contextmanager
    def door(self, folder: Path) -> Iterator[Door]:
        """The way into ``folder``: its name, or for another user, who cannot enter our folders, the open folder."""
        if self.uid is None:
            yield Door(str(folder))
            return
        descriptor = open_high(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield Door(f"{OPEN_FILES}{descriptor}", (descriptor,))
        finally:
            os.close(descriptor)

    def run(
        self, command: Sequence[str], *, timeout_seconds: float, text_in: str = "", keep_open: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Runs ``command`` to its end.

        Raises:
            subprocess.TimeoutExpired: it took longer; it was killed.
            OSError: it cannot be run.
        """
        return subprocess.run(  # noqa: S603 - programs of the server's own, by their full paths
            command,
            cwd="/",
            env=_environment(),
            input=text_in,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
            pass_fds=keep_open,
            user=self.uid,
            group=self.gid,
            extra_groups=self._extra_groups(),
        )

    def detach(self, command: Sequence[str], *, stdin: int, log: IO[bytes], keep_open: Sequence[int]) -> None:
        """Runs ``command``, which leaves its work in the background, in a session of its own and with no pipe of ours.

        Raises:
            OSError: it cannot be run.
            subprocess.CalledProcessError: it failed.
        """
        subprocess.run(  # noqa: S603 - programs of the server's own, by their full paths
            command,
            cwd="/",
            env=_environment(),
            stdin=stdin,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
            start_new_session=True,
            pass_fds=keep_open,
            user=self.uid,
            group=self.gid,
            extra_groups=self._extra_groups(),
        )

    def give(self, folder: Path) -> None:
        """Makes the owner of ``folder``, and of all in it, the account; only root ever has something to do."""
        old_uid, uid = folder.stat().st_uid, self.owner_uid
        if old_uid == uid:
            return
        gid = os.getegid() if self.gid is None else self.gid
        for path in (folder, *folder.rglob("*")):
            if path.lstat().st_uid == old_uid:
                os.chown(path, uid, gid, follow_symlinks=False)

    def can_write_in(self, folder: Path) -> bool:
        """Whether the account can get to ``folder`` by its name and make files there."""
        return self._succeeds([*self.prefix, "/bin/sh", "-c", 'cd "$1" && test -w .', "sh", str(folder)])

    def can_run_postgres(self) -> bool:
        """Whether the machine lets us be this account, and the account read the programs."""
        return self._succeeds(self.command("postgres", "--version"))

    def _succeeds(self, command: Sequence[str]) -> bool:
        try:
            return self.run(command, timeout_seconds=_PROBE_SECONDS).returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False

    def _extra_groups(self) -> list[int] | None:
        return None if self.uid is None else []


def choose_account(bin_dir: Path, home: Path) -> Account:
    """The account for a server whose files are in ``home``.

    Not root: who we are. Root: ourselves inside a user namespace, where we are not root and the files stay ours; where
    the machine refuses that (a container's usual seccomp profile does), the user ``nobody``, who gets the data folder
    and, when the programs lie in a folder closed to it, a copy of them. A user without a name, as containers may have
    them, is taken for one that Postgres refuses: ``initdb`` does.

    Raises:
        EmbeddedServerError: Postgres refuses us, and there is no other way.
    """
    if _is_acceptable(os.geteuid()):
        return Account(bin_dir)
    nobody = _nobody()
    namespaced = _in_namespace(bin_dir, nobody)
    if namespaced is not None and namespaced.can_run_postgres() and namespaced.can_write_in(home):
        return namespaced
    if os.geteuid() != 0:
        raise EmbeddedServerError(
            f"user {os.geteuid()} has no name, and Postgres does not run without: add a line for it to /etc/passwd, "
            "run as another user, or set PGMEM_DATABASE_URL"
        )
    return _as_user(bin_dir, nobody)


def open_high(path: Path, flags: int, mode: int = 0o600) -> int:
    """Opens ``path`` with a descriptor that a launching shell has no use for itself; the caller closes it."""
    opened = os.open(path, flags | os.O_CLOEXEC, mode)
    try:
        return fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    finally:
        os.close(opened)


def _is_acceptable(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return uid != 0


def _nobody() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(_NOBODY)
    except KeyError:
        raise EmbeddedServerError(
            f"Postgres does not run as root, and this machine has no user {_NOBODY!r} to run it instead: "
            "run as a user that is not root, or set PGMEM_DATABASE_URL"
        ) from None


def _in_namespace(bin_dir: Path, nobody: pwd.struct_passwd) -> Account | None:
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    ids = (f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    return Account(bin_dir, prefix=(unshare, "--user", *ids, "--"))


def _as_user(bin_dir: Path, user: pwd.struct_passwd) -> Account:
    account = Account(bin_dir, uid=user.pw_uid, gid=user.pw_gid)
    if account.can_run_postgres():
        return account
    if _is_of_a_wheel(bin_dir):
        account = dataclasses.replace(account, bin_dir=_readable_copy(bin_dir))
    if not account.can_run_postgres():
        raise EmbeddedServerError(
            f"Postgres does not run as root, and the user {user.pw_name!r} cannot run {account.bin_dir / 'postgres'}: "
            "run as a user that is not root, or set PGMEM_PG_BIN to a folder that everybody can read"
        )
    return account


def _is_of_a_wheel(bin_dir: Path) -> bool:
    # Only these are copied: the folder above any other bin may be somebody's home.
    return bin_dir.name == "bin" and bin_dir.parent.name.startswith("pginstall")


def _readable_copy(bin_dir: Path) -> Path:
    """A copy of a wheel's programs that everybody can read, made once a version and place."""
    install, package = bin_dir.parent, bin_dir.parent.parent
    shelf = _shelf()
    seen = (bin_dir / "postgres").stat()
    print_ = hashlib.sha256(f"{bin_dir}\n{seen.st_mtime_ns}\n{seen.st_size}".encode(errors="surrogateescape"))
    copy = shelf / f"postgres-{version_of(bin_dir)}-{print_.hexdigest()[:12]}"
    if not copy.exists():
        _copy(package, install.name, copy)
    return copy / package.name / install.name / "bin"


def _shelf() -> Path:
    shelf = Path(platformdirs.site_cache_dir("pgmem"))
    shelf.mkdir(mode=0o755, parents=True, exist_ok=True)
    seen = shelf.stat()
    if seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
        raise EmbeddedServerError(f"others can write in {shelf}, where Postgres would be copied to: remove it")
    return shelf


def _copy(package: Path, install: str, copy: Path) -> None:
    making = Path(tempfile.mkdtemp(prefix="copying-", dir=copy.parent))
    shutil.copytree(package / install, making / package.name / install, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, making / libraries.name, symlinks=True)
    for path in (making, *making.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
    try:
        making.rename(copy)
    except OSError:
        # Another process was first.
        shutil.rmtree(making)


def _environment() -> dict[str, str]:
    """Ours, without what would point Postgres elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}
