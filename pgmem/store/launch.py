"""Lets a server go: makes its data folder, decides where it listens, and detaches it; for whoever holds the lock."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pgmem.errors import EmbeddedServerError
from pgmem.store.account import Account, Door, choose_account
from pgmem.store.binaries import find_binaries, major_of, version_of
from pgmem.store.postmaster import LOCALHOST, forget_if_dead

SUPERUSER = "postgres"
"""The role that owns the server."""

DEFAULT_SETTINGS = {"max_connections": "200"}
"""What the server is started with when the caller does not say otherwise."""

_PORT = 5432
_SOCKET = f".s.PGSQL.{_PORT}"
_BUILTIN_PROVIDER_SINCE = 17
_LARGEST_LOG_BYTES = 4 * 1024 * 1024
# sockaddr_un holds 104 bytes on macOS and 108 on Linux, the last one a zero.
_LARGEST_SOCKET_PATH_BYTES = 103

# The server leaves our process tree at once, so it is nobody's zombie and holds no pipe of ours.
_KEPT = '"$@" &'

# Standard input is a pipe whose other end only the starting process has: it ends when that process does, however that
# ends. A parent-death signal would come when the starting *thread* ends, and is lost on the way into a user namespace.
# SIGINT is a fast shutdown; SIGTERM before it ends a server that is not yet listening to signals, since a shell starts
# background work with SIGINT ignored.
_TIED = """
exec 3<&0
{
  "$@" 3<&- & server=$!
  { while read -r _; do :; done <&3; kill -TERM "$server"; kill -INT "$server"; } & watcher=$!
  wait "$server"
  kill "$watcher"
} &
"""

_lifelines: dict[Path, int] = {}
"""The writing end of such a pipe, by data folder, of each server that ends with this process."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one server.

    Attributes:
        home: where its files are.
        pg_bin: where its programs are; None to find them.
        settings: server settings by name.
        keep_running: whether the server outlives this process.
        lock: the open file that holds the lock of ``home``; every process of the server inherits it.
        deadline: by ``time.monotonic()``.
    """

    home: Path
    pg_bin: Path | None
    settings: Mapping[str, str]
    keep_running: bool
    lock: int
    deadline: float

    @property
    def data_dir(self) -> Path:
        """The data folder."""
        return data_dir_of(self.home)

    def remaining_seconds(self) -> float:
        """What is left until the deadline."""
        return max(self.deadline - time.monotonic(), 0.1)


def data_dir_of(home: Path) -> Path:
    """The data folder in ``home``."""
    return home / "data"


def log_of(home: Path) -> Path:
    """What the server in ``home`` writes."""
    return home / "server.log"


def password_of(home: Path) -> Path:
    """The superuser's password, there for a server on 127.0.0.1 only."""
    return home / "password"


def launch_server(launch: Launch) -> int:
    """Lets the server go, and does not wait for it.

    Returns:
        Where in the log its words begin.

    Raises:
        PostgresNotFound: there is no Postgres on this machine.
        EmbeddedServerError: its data folder cannot be made or is not one for these programs.
    """
    bin_dir = find_binaries(launch.pg_bin)
    _refuse_strange_data(launch.data_dir, bin_dir)
    account = choose_account(bin_dir, launch.home)
    try:
        _ready_data_folder(launch, account)
        with account.door(launch.data_dir) as door, _log(launch.home) as log:
            log_start = log.tell()
            command = _server_command(launch, account, door)
            _let_go(launch, account, command, keep_open=(launch.lock, *door.keep_open), log=log)
            return log_start
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedServerError(f"Postgres cannot be started in {launch.home}: {error}") from error


def drop_lifeline(data_dir: Path) -> None:
    """Lets go of a server that ends with this process; nothing when there is none."""
    lifeline = _lifelines.pop(data_dir, None)
    if lifeline is not None:
        os.close(lifeline)


def _drop_lifelines() -> None:
    for data_dir in tuple(_lifelines):
        drop_lifeline(data_dir)


# A forked child must not keep alive what ends with its parent.
os.register_at_fork(after_in_child=_drop_lifelines)


def _refuse_strange_data(data_dir: Path, bin_dir: Path) -> None:
    if not data_dir.exists():
        return
    try:
        made_by = (data_dir / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise EmbeddedServerError(
            f"{data_dir} is not a data folder of Postgres: move it away, or set PGMEM_HOME to another folder"
        ) from None
    version = version_of(bin_dir)
    if made_by != str(major_of(version)):
        raise EmbeddedServerError(
            f"{data_dir} was made by PostgreSQL {made_by}, and {bin_dir} holds PostgreSQL {version}: set PGMEM_PG_BIN "
            f"to the bin folder of a PostgreSQL {made_by} to use it or to move its contents with pg_dumpall, or set "
            "PGMEM_HOME to another folder"
        )


def _ready_data_folder(launch: Launch, account: Account) -> None:
    for leftover in launch.home.glob("initdb-*"):
        shutil.rmtree(leftover)
    if not launch.data_dir.exists():
        _make_data_folder(launch, account)
    account.give(launch.data_dir)
    launch.data_dir.chmod(0o700)
    forget_if_dead(launch.data_dir / "postmaster.pid", launch.data_dir)


def _make_data_folder(launch: Launch, account: Account) -> None:
    # Under its own name only when it is whole: a killed initdb leaves nothing that passes for a data folder.
    making = Path(tempfile.mkdtemp(prefix="initdb-", dir=launch.home))
    account.give(making)
    with account.door(making) as door:
        done = account.run(
            account.command("initdb", "-D", door.name, *_initdb_options(launch, account)),
            timeout_seconds=launch.remaining_seconds(),
            keep_open=(launch.lock, *door.keep_open),
        )
    if done.returncode != 0:
        raise EmbeddedServerError(
            f"initdb failed in {launch.home}: see what it says, or set PGMEM_HOME to another folder\n{done.stdout}"
        )
    making.rename(launch.data_dir)
    _sync_folder(launch.home)


def _initdb_options(launch: Launch, account: Account) -> list[str]:
    # Local connections need no password because the socket is in a folder that only its owner can enter.
    options = [f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C"]
    options += ["--auth-local=trust", "--auth-host=scram-sha-256"]
    if major_of(version_of(account.bin_dir)) >= _BUILTIN_PROVIDER_SINCE:
        # Sorts by code point as C does, and knows the upper and lower case of all letters.
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if launch.settings.get("fsync") == "off":
        options.append("--no-sync")
    return options


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _server_command(launch: Launch, account: Account, door: Door) -> list[str]:
    command = account.command("postgres", "-D", door.name)
    # Of two values of a setting the last counts: what is not up to the caller comes last.
    for settings in (DEFAULT_SETTINGS, launch.settings, _listening(launch, account, door)):
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
    return command


def _listening(launch: Launch, account: Account, door: Door) -> dict[str, str]:
    socket_dir = _socket_dir(launch, account)
    if socket_dir is None:
        _set_password(launch, account, door)
        return {"listen_addresses": LOCALHOST, "port": str(_free_port()), "unix_socket_directories": ""}
    forget_if_dead(socket_dir / f"{_SOCKET}.lock", launch.data_dir)
    name = door.name if socket_dir == launch.data_dir else str(socket_dir)
    quoted = name.replace('"', '""')
    return {
        "listen_addresses": "",
        "port": str(_PORT),
        "unix_socket_directories": f'"{quoted}"',
        "unix_socket_permissions": "0700",
    }


def _socket_dir(launch: Launch, account: Account) -> Path | None:
    """The data folder, or a short one of ours, or None: a socket's path may be no longer than 103 bytes."""
    if _suits_a_socket(launch.data_dir):
        return launch.data_dir
    name = f"pgmem-{hashlib.sha256(os.fsencode(launch.home)).hexdigest()[:16]}"
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - used only where it is ours alone
        short = Path(parent or "/") / name
        if parent and _suits_a_socket(short) and _is_ours_alone(short, account):
            return short
    return None


def _suits_a_socket(folder: Path) -> bool:
    # libpq reads a comma in a host as the end of it.
    path = os.fsencode(folder / _SOCKET)
    return len(path) <= _LARGEST_SOCKET_PATH_BYTES and b"," not in path


def _is_ours_alone(folder: Path, account: Account) -> bool:
    # Everybody can make a folder of this name first; then it is not used.
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        seen = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(seen.st_mode) or stat.S_IMODE(seen.st_mode) != 0o700:
        return False
    if seen.st_uid not in (os.geteuid(), account.owner_uid):
        return False
    account.give(folder)
    return account.can_write_in(folder)


def _set_password(launch: Launch, account: Account, door: Door) -> None:
    password = secrets.token_urlsafe(24)
    done = account.run(
        account.command("postgres", "--single", "-D", door.name, "postgres"),
        timeout_seconds=launch.remaining_seconds(),
        text_in=f"alter role {SUPERUSER} password '{password}';\n",
        keep_open=(launch.lock, *door.keep_open),
    )
    if done.returncode != 0 or "ERROR" in done.stdout:
        # Postgres repeats the statement that failed.
        shown = done.stdout.replace(password, "********")
        raise EmbeddedServerError(f"no password can be set in {launch.data_dir}: see what it says\n{shown}")
    kept = password_of(launch.home)
    kept.unlink(missing_ok=True)
    kept.touch(mode=0o600)
    kept.write_text(password)


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOCALHOST, 0))
        return int(probe.getsockname()[1])


def _log(home: Path) -> IO[bytes]:
    path = log_of(home)
    if path.exists() and path.stat().st_size > _LARGEST_LOG_BYTES:
        path.replace(path.with_suffix(".log.1"))
    path.touch(mode=0o600)
    return path.open("ab")


def _let_go(launch: Launch, account: Account, command: list[str], *, keep_open: Sequence[int], log: IO[bytes]) -> None:
    shell = ["/bin/sh", "-c", _KEPT if launch.keep_running else _TIED, "pgmem", *command]
    if launch.keep_running:
        account.detach(shell, stdin=subprocess.DEVNULL, log=log, keep_open=keep_open)
        return
    drop_lifeline(launch.data_dir)
    reading, _lifelines[launch.data_dir] = os.pipe()
    try:
        account.detach(shell, stdin=reading, log=log, keep_open=keep_open)
    finally:
        os.close(reading)
