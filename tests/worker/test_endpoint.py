"""The health endpoint: probes of all kinds, and a worker whose event loop stands still."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgmem.worker import endpoint
from pgmem.worker.endpoint import health_endpoint
from tests.support.waiting import until
from tests.support.workers import summarise, working

ROOT = Path(__file__).parents[2]


def asked(port: int, said: bytes) -> bytes:
    """What the endpoint answers, until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as probe:
        probe.sendall(said)
        return b"".join(iter(lambda: probe.recv(65536), b""))


@pytest.fixture
async def port(url) -> Iterator[int]:
    async with working(url, summarise) as worker:
        await until(lambda: worker.health.working, "the worker works")
        with health_endpoint(worker, host="127.0.0.1", port=0) as found:
            yield found


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.0 200 "),
        (b"GET /health?verbose=1 HTTP/1.0\r\n\r\n", b"HTTP/1.0 200 "),
        (b"GET /health HTTP/1.1\nHost: x\n\n", b"HTTP/1.0 200 "),
        (b"HEAD /health HTTP/1.1\r\n\r\n", b"HTTP/1.0 200 "),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.0 404 "),
        (b"GET /healthy HTTP/1.1\r\n\r\n", b"HTTP/1.0 404 "),
        (b"POST /health HTTP/1.1\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.0 501 "),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"HTTP/1.0 414 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n", b""),
        (b"\r\n\r\n", b""),
        (b"POST /health HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody", b"HTTP/1.0 501 "),
    ],
)
async def test_a_probe_is_answered_at_once(port, said, answer):
    began = time.monotonic()

    answered = await asyncio.to_thread(asked, port, said)

    assert answered.startswith(answer)
    assert time.monotonic() - began < endpoint.REQUEST_SECONDS


async def test_the_body_is_json_and_head_has_none(port):
    whole = await asyncio.to_thread(asked, port, b"GET /health HTTP/1.1\r\n\r\n")
    head = await asyncio.to_thread(asked, port, b"HEAD /health HTTP/1.1\r\n\r\n")

    said = json.loads(whole.partition(b"\r\n\r\n")[2])
    assert {name: said[name] for name in ("working", "running", "done", "failed")} == {
        "working": True,
        "running": 0,
        "done": 0,
        "failed": 0,
    }
    assert head.partition(b"\r\n\r\n")[2] == b""
    assert b"Python" not in whole


async def test_a_probe_that_says_nothing_is_hung_up_on_and_keeps_nobody_waiting(port, monkeypatch):
    monkeypatch.setattr(endpoint._Handler, "seconds", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
        answered = await asyncio.to_thread(asked, port, b"GET /health HTTP/1.1\r\n\r\n")
        left = await asyncio.to_thread(silent.recv, 10)

    assert answered.startswith(b"HTTP/1.0 200 ")
    assert left == b""


async def test_a_probe_that_says_a_byte_now_and_then_is_hung_up_on_in_time(port, monkeypatch):
    monkeypatch.setattr(endpoint._Handler, "seconds", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as dripping:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 10:
                dripping.sendall(b"x")
                await asyncio.sleep(0.1)

        assert time.monotonic() - began < 5


async def test_a_head_that_never_ends_is_not_answered(port, monkeypatch):
    monkeypatch.setattr(endpoint._Handler, "seconds", 0.5)

    assert await asyncio.to_thread(asked, port, b"GET /health HTTP/1.1\r\nx: y\r\n") == b""


async def test_a_worker_whose_event_loop_stands_still_is_not_well(url):
    async with working(url, summarise, stalled_seconds=0.5) as worker:
        await until(lambda: worker.health.working, "the worker works")
        with health_endpoint(worker, host="127.0.0.1", port=0) as port:
            program = (
                "import socket, sys, time\n"
                "time.sleep(1)\n"
                "probe = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=10)\n"
                "probe.sendall(b'GET /health HTTP/1.1\\r\\n\\r\\n')\n"
                "print(probe.recv(100).decode().split()[1])\n"
            )
            # which is not awaited, so that nothing else of this event loop goes on
            said = subprocess.run([sys.executable, "-c", program, str(port)], check=True, capture_output=True, timeout=30)  # noqa: ASYNC221

    assert said.stdout.split() == [b"503"]


async def test_an_address_that_cannot_be_listened_on_is_an_os_error(url):
    async with working(url, summarise) as worker:
        for host, port in [("198.51.100.1", 0), ("no such host", 0), ("a..b", 0), ("a" * 64, 0)]:
            with pytest.raises((OSError, UnicodeError)), health_endpoint(worker, host=host, port=port):
                pass


PROGRAM = """
import asyncio, pgmem, socket, struct, sys
from pgmem.worker.endpoint import health_endpoint
from tests.support.workers import QUICK

async def main():
    async with pgmem.open(sys.argv[1]) as memory:
        worker = pgmem.Worker(memory, **QUICK)
        running = asyncio.create_task(worker.run())
        with health_endpoint(worker, host="127.0.0.1", port=0) as port:
            probes = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
            probes[0].sendall(b"GET /hea")
            for _ in range(20):
                hangs_up = socket.create_connection(("127.0.0.1", port))
                hangs_up.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                hangs_up.sendall(b"GET /health HTTP/1.1\\r\\n\\r\\n")
                hangs_up.close()
            await asyncio.sleep(0.3)
        worker.stop()
        await running

asyncio.run(main())
"""


async def test_probes_that_are_connected_at_the_end_hold_nothing_up_and_leave_no_traceback(url):
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, url, cwd=ROOT, stderr=subprocess.PIPE)
    said = (await asyncio.wait_for(process.stderr.read(), 30)).decode()

    assert (await process.wait(), said) == (0, "")
