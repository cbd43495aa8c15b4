"""What the tests of the embedded server share: processes that start one, and waiting with a deadline."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgmem.store import embedded
from pgmem.store.postmaster import lives

THROWAWAY = {"fsync": "off"}
NOBODY = 65534
NAMELESS = 54321
DEADLINE_SECONDS = 20.0


def wait_until(happens: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happens():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s in vain until {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def new_home() -> Iterator[Path]:
    """A home that is not there yet, in a folder of its own; whatever server runs in it at the end is stopped."""
    parent = Path(tempfile.mkdtemp(prefix="pgmem-", dir="/tmp"))
    home = parent / "home"
    try:
        yield home
    finally:
        for left in parent.rglob("data"):
            stop_whatever_runs(left.parent)
        shutil.rmtree(parent)


def stop_whatever_runs(home: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        pid = abs(int((home / "data/postmaster.pid").read_text().split("\n", 1)[0]))
        if lives(pid, home / "data"):
            os.kill(pid, signal.SIGINT)
    wait_until(lambda: is_unlocked(home), f"no process of the server in {home} is left")


def is_unlocked(home: Path) -> bool:
    """Whether no process is left of those that started a server in ``home`` or are one."""
    if not (home / "server.lock").exists():
        return True
    with (home / "server.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_alive(server: embedded.EmbeddedServer) -> bool:
    return lives(server.pid, server.data_dir)


def python(script: str, *arguments: object, uid: int | None = None, **options: object) -> subprocess.Popen[str]:
    """A process that runs ``script``; its arguments are ``sys.argv[1:]``."""
    program = sys.executable if uid is None else _python_of_everybody(uid)
    prelude = "import sys, os\nfrom pathlib import Path\nfrom pgmem.store import embedded\n"
    return subprocess.Popen(
        [program, "-c", prelude + textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
        **options,  # type: ignore[call-overload]
    )


def _python_of_everybody(uid: int) -> str:
    """A Python like ours that the user may run: ours may be in a folder of root's."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        with contextlib.suppress(OSError):
            subprocess.run([program, "-c", ""], check=True, user=uid, group=uid, extra_groups=[])
            return program
    pytest.skip(f"needs a {name} that user {uid} can run")


@contextlib.contextmanager
def python_until_killed(script: str, *arguments: object, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process like `python`, killed with -9 at the end if it is still there."""
    with python(script, *arguments, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777
