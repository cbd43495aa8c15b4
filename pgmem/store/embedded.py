"""The Postgres that pgmem keeps for its user: one server a home, however many processes ask for it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import platformdirs

from pgmem.errors import EmbeddedServerError
from pgmem.store.account import open_high
from pgmem.store.binaries import find_binaries, version_of
from pgmem.store.launch import SUPERUSER, Launch, data_dir_of, drop_lifeline, launch_server, log_of, password_of
from pgmem.store.postmaster import LOCALHOST, lives, read_postmaster

__all__ = ["EmbeddedServer", "find_binaries", "running", "start"]

logger = logging.getLogger("pgmem")

_POLL_SECONDS = 0.02
_IMMEDIATE_STOP_SECONDS = 10.0
_SHOWN_LOG_LINES = 15
_SHOWN_LOG_BYTES = 8192


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A Postgres that takes connections.

    Attributes:
        data_dir: its data folder, inside the home.
        socket_dir: the folder of its unix socket; None when it listens on 127.0.0.1 instead.
        port: its port, which is also in the socket's name.
        password: the superuser's, needed on 127.0.0.1 only.
        pid: its first process.
        version: such as ``18.6``, as its programs say; only the major where they have been removed since it was started.
        bin_dir: its programs; ``psql`` and ``pg_dump`` may be beside ``postgres``.
    """

    data_dir: Path
    socket_dir: Path | None
    port: int
    password: str | None = field(repr=False)
    pid: int
    version: str
    bin_dir: Path

    def url(self, *, user: str = SUPERUSER, database: str = "postgres") -> str:
        """A libpq URL of the server, for psycopg and psql alike.

        Example:
            >>> start().url(database="app")  # doctest: +SKIP
            'postgresql://postgres@/app?host=%2Fhome%2Fme%2F.local%2Fshare%2Fpgmem%2Fdata&port=5432'
        """
        name, place = quote(user, safe=""), quote(database, safe="")
        if self.socket_dir is not None:
            folder = quote(os.fsencode(self.socket_dir), safe="")
            return f"postgresql://{name}@/{place}?host={folder}&port={self.port}"
        password = quote(self.password or "", safe="")
        return f"postgresql://{name}:{password}@{LOCALHOST}:{self.port}/{place}?sslmode=disable"

    def stop(self, *, timeout_seconds: float = 30) -> None:
        """Ends the server for everybody who uses it; does nothing when it has ended.

        Open transactions are rolled back. What has not ended after ``timeout_seconds`` is ended at once, and the next
        start recovers from the log.

        Raises:
            EmbeddedServerError: it still runs.
        """
        with _faults_named(self.data_dir.parent):
            ended = self._ends_after(signal.SIGINT, timeout_seconds) or self._ends_after(signal.SIGQUIT, _IMMEDIATE_STOP_SECONDS)
            answers = self._answers()
        if not ended or answers:
            raise EmbeddedServerError(
                f"the server with pid {self.pid} in {self.data_dir} does not stop: "
                "stop it in the container, and as the user, that it runs in"
            )
        drop_lifeline(self.data_dir)

    def _ends_after(self, which: signal.Signals, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        if lives(self.pid, self.data_dir):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, which)
        while lives(self.pid, self.data_dir):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _answers(self) -> bool:
        postmaster = read_postmaster(self.data_dir)
        return postmaster is not None and postmaster.pid == self.pid and postmaster.answers()


def start(
    home: Path | None = None,
    *,
    pg_bin: Path | None = None,
    keep_running: bool = True,
    settings: Mapping[str, str] | None = None,
    timeout_seconds: float = 60,
) -> EmbeddedServer:
    """The server of ``home``; started, and its data folder made, when it does not run. Blocks.

    However many processes ask at once, one of them starts it and all get it. That one decides: ``pg_bin``,
    ``keep_running`` and ``settings`` are about the server that a call starts, and change nothing of one that runs.

    Args:
        home: the folder of the server's files, default ``PGMEM_HOME``, else ``pgmem`` in the user's data folder. Made
            with mode 0700 when missing.
        pg_bin: the folder of the programs, default as `find_binaries` finds them.
        keep_running: True: the server stays until it is stopped. False: it stops when this process ends, even by
            ``kill -9``; others that use it by then lose their connections and may start it again.
        settings: server settings by name. The default is durable; ``{"fsync": "off"}`` is for throwaway servers. Where
            the server listens is not up to them.
        timeout_seconds: for all of it: the wait for another process, ``initdb``, recovery after a crash.

    Raises:
        PostgresNotFound: there is no Postgres on this machine.
        EmbeddedServerError: it does not start, or the folder is not one that it may use.

    Example:
        >>> server = start(keep_running=False)  # doctest: +SKIP
        >>> psycopg.connect(server.url())  # doctest: +SKIP
    """
    folder = _home_path(home)
    deadline = time.monotonic() + timeout_seconds
    log_start: int | None = None
    with _faults_named(folder):
        _prepare_home(folder)
        while time.monotonic() < deadline:
            server = _running(folder)
            if server is not None:
                return server
            with _lock(folder) as lock:
                if lock is not None and log_start is not None:
                    raise EmbeddedServerError(_ended(folder, log_start))
                if lock is not None:
                    launch = Launch(
                        home=folder,
                        pg_bin=pg_bin,
                        settings=settings or {},
                        keep_running=keep_running,
                        lock=lock,
                        deadline=deadline,
                    )
                    log_start = launch_server(launch)
            time.sleep(_POLL_SECONDS)
        raise EmbeddedServerError(_too_late(folder, timeout_seconds, log_start))


def running(home: Path | None = None) -> EmbeddedServer | None:
    """The server of ``home`` if it takes connections now, else None. Starts and changes nothing.

    Raises:
        EmbeddedServerError: ``home`` is not a folder that can be looked into.
    """
    folder = _home_path(home)
    with _faults_named(folder):
        return _running(folder)


def _running(folder: Path) -> EmbeddedServer | None:
    postmaster = read_postmaster(data_dir_of(folder))
    if postmaster is None or not postmaster.answers():
        return None
    bin_dir = postmaster.bin_dir()
    return EmbeddedServer(
        data_dir=postmaster.data_dir,
        socket_dir=postmaster.socket_dir,
        port=postmaster.port,
        password=None if postmaster.socket_dir else password_of(folder).read_text(),
        pid=postmaster.pid,
        version=_running_version(bin_dir, postmaster.data_dir),
        bin_dir=bin_dir,
    )


def _running_version(bin_dir: Path, data_dir: Path) -> str:
    # the environment that started it may be gone: it still serves, and it must be possible to stop it
    try:
        return version_of(bin_dir)
    except EmbeddedServerError:
        return (data_dir / "PG_VERSION").read_text().strip()


def _home_path(home: Path | None) -> Path:
    named = os.environ.get("PGMEM_HOME")
    chosen = home or (Path(named) if named else Path(platformdirs.user_data_dir("pgmem")))
    try:
        return Path(chosen).expanduser().resolve()
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        # "~nobody-known", a loop of links, a name that is too long, no path at all
        raise EmbeddedServerError(
            f"{str(chosen)!r:.300} is no folder ({str(error).rstrip('.')}): set PGMEM_HOME to the path of one"
        ) from error


@contextlib.contextmanager
def _faults_named(home: Path) -> Iterator[None]:
    """Tells what the file system says inside as an error of the server in ``home``."""
    try:
        yield
    except OSError as error:
        place = f" at {os.fsdecode(error.filename)}" if isinstance(error.filename, str | bytes) else ""
        raise EmbeddedServerError(
            f"the folder {home} cannot be used ({error.strerror or error}{place}): move away or repair what is in the way, "
            "or set PGMEM_HOME to another folder"
        ) from error


def _prepare_home(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = folder.stat()
    except OSError as error:
        raise EmbeddedServerError(
            f"the folder {folder} cannot be made ({error.strerror}): set PGMEM_HOME to one that can"
        ) from error
    if seen.st_uid != os.geteuid():
        raise EmbeddedServerError(
            f"the folder {folder} belongs to user {seen.st_uid}, and this is user {os.geteuid()}: "
            "run as its owner, or set PGMEM_HOME to a folder of your own"
        )
    if stat.S_IMODE(seen.st_mode) != 0o700:
        _close(folder, stat.S_IMODE(seen.st_mode))


def _close(folder: Path, mode: int) -> None:
    # A folder with other things in it was not made for us, and closing it could break what they are for.
    if any(folder.iterdir()) and not (folder / "server.lock").exists():
        raise EmbeddedServerError(
            f"the folder {folder} has mode {mode:04o} and files that are not pgmem's: "
            "set PGMEM_HOME to a folder of its own, such as a new one inside it"
        )
    folder.chmod(0o700)
    logger.warning("the folder %s had mode %04o and is closed to others now (0700)", folder, mode)


@contextlib.contextmanager
def _lock(home: Path) -> Iterator[int | None]:
    """The open file that holds the lock of ``home``, or None when somebody else does.

    All that is started with it inherits it, so the lock is free when the last process of the server is gone and not
    before: no pid has to be believed.
    """
    lock = open_high(home / "server.lock", os.O_RDWR | os.O_CREAT)
    try:
        yield lock if _is_locked_by(lock) else None
    finally:
        os.close(lock)


def _is_locked_by(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise EmbeddedServerError(
            f"the file system of PGMEM_HOME has no locks ({error.strerror}): set PGMEM_HOME to a folder on a local disk"
        ) from error
    return True


def _ended(home: Path, log_start: int) -> str:
    return (
        f"Postgres ended while it started in {home}: see what it says, all of it is in {log_of(home)}\n"
        f"{_last_lines(home, log_start)}"
    )


def _too_late(home: Path, seconds: float, log_start: int | None) -> str:
    if log_start is None:
        return (
            f"another process has started, or is stopping, the server in {home} for {seconds:g} s: try again, or see {log_of(home)}"
        )
    return (
        f"Postgres does not take connections in {home} after {seconds:g} s, and is still starting: try again, "
        f"recovery after a crash may take long\n{_last_lines(home, log_start)}"
    )


def _last_lines(home: Path, log_start: int) -> str:
    with log_of(home).open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(log_start, size - _SHOWN_LOG_BYTES))
        lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_SHOWN_LOG_LINES:])
