"""Reads what a running Postgres says of itself in its data folder."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from pgmem.store.account import OPEN_FILES

LOCALHOST = "127.0.0.1"

_PROC = Path("/proc")
_ANSWER_SECONDS = 5.0
# SSLRequest: the one message that is answered without a user, with one byte.
_ASK = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")
_STATUS_LINE = 7
_LARGEST_PID = 2**31 - 1
_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A server as its ``postmaster.pid`` tells it; the file may be one that a killed server left.

    Attributes:
        pid: the server's first process.
        data_dir: the folder that it serves.
        port: the TCP port, which is also in the socket's name.
        socket_dir: the folder of the unix socket; None when the server listens on 127.0.0.1.
        ready: whether it takes connections.
    """

    pid: int
    data_dir: Path
    port: int
    socket_dir: Path | None
    ready: bool

    def answers(self) -> bool:
        """Whether this very server takes connections now."""
        if not self.ready:
            return False
        if self.socket_dir is not None:
            return _answers(socket.AF_UNIX, str(self.socket_dir / f".s.PGSQL.{self.port}"))
        return self.lives() and _answers(socket.AF_INET, (LOCALHOST, self.port))

    def lives(self) -> bool:
        """Whether ``pid`` is this server's still."""
        return lives(self.pid, self.data_dir)

    def bin_dir(self) -> Path:
        """Where its programs are."""
        command = os.fsdecode((self.data_dir / "postmaster.opts").read_bytes())
        return Path(command.split(' "', 1)[0].rstrip("\n")).parent


def read_postmaster(data_dir: Path) -> Postmaster | None:
    """What ``postmaster.pid`` says; None when there is none, or it is junk, or not written to its end."""
    try:
        lines = os.fsdecode((data_dir / "postmaster.pid").read_bytes()).splitlines()
    except FileNotFoundError:
        return None
    if len(lines) <= _STATUS_LINE or "\0" in lines[4]:
        return None
    pid, port = _pid_of(lines[0]), _number(lines[3], most=_LARGEST_PORT)
    if pid is None or port is None:
        return None
    socket_dir = data_dir if lines[4].startswith(OPEN_FILES) else Path(lines[4])
    return Postmaster(
        pid=pid,
        data_dir=data_dir,
        port=port,
        socket_dir=socket_dir if lines[4] else None,
        ready=lines[_STATUS_LINE].strip() == "ready",
    )


def forget_if_dead(left: Path, data_dir: Path) -> None:
    """Removes ``left``, a file with the pid of a server in ``data_dir``, when that server was killed.

    Postgres would take a process that was given the pid since, or a zombie, for the server, and never start again; nor
    does it start on a file that a power loss left empty or full of zeros. Call it only with the lock held: then no
    process of a server that we started is left.
    """
    try:
        pid = _pid_of(left.read_text(errors="replace").partition("\n")[0])
    except FileNotFoundError:
        return
    if pid is None or not lives(pid, data_dir):
        left.unlink()


def lives(pid: int, data_dir: Path) -> bool:
    """Whether ``pid`` is a server in ``data_dir``, and not a process that was given the number later."""
    if not (_PROC / "self").exists():
        return _exists(pid)
    return _is_postgres(pid) and _works_in(pid, data_dir)


def _pid_of(line: str) -> int | None:
    # A server in single-user mode writes its pid as a negative number.
    return _number(line.strip().removeprefix("-"), most=_LARGEST_PID) or None


def _number(text: str, *, most: int) -> int | None:
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(most)):
        return None
    return int(digits) if int(digits) <= most else None


def _answers(family: socket.AddressFamily, address: str | tuple[str, int]) -> bool:
    # That it connects would prove little: the kernel lets clients in until a killed process is quite gone.
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(_ANSWER_SECONDS)
        try:
            client.connect(address)
            client.sendall(_ASK)
            return client.recv(1) in (b"N", b"S")
        except OSError:
            return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_postgres(pid: int) -> bool:
    try:
        # "pid (name) state ..."; a zombie has nothing left to protect.
        name, _, rest = (_PROC / str(pid) / "stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return name.endswith("(postgres") and not rest.lstrip().startswith("Z")


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return (_PROC / str(pid) / "cwd").samefile(folder)
    except PermissionError:
        # A container's root may not look at another user's process; the name has to do.
        return True
    except (FileNotFoundError, ProcessLookupError):
        return False
