"""Several processes on one database, and what is left when one of them, or the server, is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import pgmem
from pgmem.store import embedded, migrate
from tests.concurrency.support import check, connect, rows
from tests.support.talk import assistant, user

ROUNDS = 3
WRITERS = 12
TREES = 6


@asynccontextmanager
async def processes(script: str, *arguments: str, count: int = 1) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Processes that run ``script``, all of them ready; killed at the end."""
    prelude = "import asyncio, sys\nimport pgmem\n"
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", prelude + textwrap.dedent(script), *arguments),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(count)
    ]
    try:
        for process in started:
            assert await process.stdout.readline() == b"ready\n"
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.communicate()


COMPACT = """
    async def main():
        async with pgmem.open(sys.argv[1]) as memory:
            session = await memory.session(sys.argv[2])
            print("ready", flush=True)
            sys.stdin.readline()
            print("node" if await session.compact() else "nothing", flush=True)
    asyncio.run(main())
"""


async def test_four_processes_that_compact_at_once_make_one_node(app_url, server, database, key):
    async with pgmem.open(app_url) as memory, await connect(server.on(database)) as owner:
        session = await memory.session(key)
        for round_number in range(ROUNDS):
            await session.add_turns([(user, assistant)[number % 2](f"{round_number}/{number}") for number in range(20)])
        async with processes(COMPACT, app_url, key, count=4) as started:
            for process in started:
                process.stdin.write(b"go\n")
            said = [await process.stdout.readline() for process in started]

        assert sorted(said) == [b"node\n", b"nothing\n", b"nothing\n", b"nothing\n"]
        assert len((await check(owner, session)).nodes) == 1


WRITE = """
    async def write(session, writer):
        number = 0
        while True:
            await session.add_turn("user", f"{writer}/{number}", idempotency_key=f"{sys.argv[3]}/{writer}/{number}")
            print(f"{sys.argv[3]}/{writer}/{number}", flush=True)
            number += 1

    async def compact(session):
        while True:
            await session.compact()
            await session.context()

    async def main():
        async with pgmem.open(sys.argv[1]) as memory:
            handles = [await memory.session(sys.argv[2]) for _ in range(5)]
            print("ready", flush=True)
            await asyncio.gather(*(write(handle, writer) for writer, handle in enumerate(handles[1:])), compact(handles[0]))
    asyncio.run(main())
"""


async def test_a_client_killed_under_load_leaves_whole_turns_and_every_acknowledged_one(app_url, server, database, key):
    acknowledged: set[str] = set()
    async with pgmem.open(app_url) as memory, await connect(server.on(database)) as owner:
        session = await memory.session(key)
        for round_number in range(ROUNDS):
            async with processes(WRITE, app_url, key, str(round_number)) as (client,):
                told = [await client.stdout.readline() for _ in range(60 + 17 * round_number)]
                client.send_signal(signal.SIGKILL)
                told += (await client.stdout.read()).splitlines(keepends=True)
            acknowledged |= {line.decode().strip() for line in told if line.endswith(b"\n")}

        await still(owner)
        facts = await check_dense(owner, session)
        keys = [turn["idempotency_key"] for turn in facts]
        assert acknowledged <= set(keys)
        assert len(keys) == len(set(keys))


async def still(owner) -> None:
    """Waits until the killed clients' last statements are done."""
    while await rows(  # noqa: ASYNC110 - they are another process's
        owner,
        "select from pg_stat_activity where datname = current_database() and usename = 'pgmem_app' and state = 'active'",
    ):
        await asyncio.sleep(0)


async def check_dense(owner, session: pgmem.Session) -> list[dict]:
    """The turns, once it is sure that no position is missing and that the chain holds."""
    key = session._found.session_id
    found = await rows(owner, "select no from pgmem.log where session_id = %s order by no", key)
    assert [row["no"] for row in found] == list(range(1, len(found) + 1))
    assert await session.verify() is None
    return await rows(owner, "select no, content, idempotency_key from pgmem.turns where session_id = %s order by no", key)


@pytest.fixture
def mortal() -> Iterator[tuple[Path, str]]:
    """The home and the URL of a server that may be killed."""
    parent = Path(tempfile.mkdtemp(prefix="pgm-", dir="/tmp"))
    server = embedded.start(parent / "home", keep_running=False)
    migrate.upgrade(server.url())
    migrate.allow_login(server.url(), roles=("pgmem_app",), password=server.password)
    yield parent / "home", server.url(user="pgmem_app")
    left = embedded.running(parent / "home")
    if left is not None:
        left.stop()
    shutil.rmtree(parent, ignore_errors=True)


@pytest.mark.skipif(bool(os.environ.get("PGMEM_TEST_DATABASE_URL")), reason="the given server is not ours to kill")
async def test_a_server_killed_under_load_loses_no_acknowledged_turn_and_doubles_none(mortal):
    home, url = mortal
    acknowledged: dict[str, int] = {}
    async with pgmem.open(url) as memory:
        for round_number in range(ROUNDS):
            goal = len(acknowledged) + 150
            writers = [asyncio.create_task(write(memory, number, round_number, acknowledged)) for number in range(WRITERS)]
            await enough(acknowledged, goal)
            await kill(embedded.running(home))
            await asyncio.to_thread(embedded.start, home, keep_running=False)
            await enough(acknowledged, len(acknowledged) + 50)
            for writer in writers:
                writer.cancel()
            ended = await asyncio.gather(*writers, return_exceptions=True)
            assert [type(each) for each in ended] == [asyncio.CancelledError] * WRITERS, "no writer met an error that stays"

        async with await connect(embedded.running(home).url()) as owner:
            turns = [turn for tree in range(TREES) for turn in await check_dense(owner, await memory.session(f"{tree}"))]
        stored = {turn["idempotency_key"]: turn["no"] for turn in turns}
        assert len(stored) == len(turns)
        assert acknowledged.items() <= stored.items()


async def kill(server: embedded.EmbeddedServer) -> None:
    """Kills all of it at once: backends that were let live would still answer."""
    async with await connect(server.url()) as owner:
        found = await rows(owner, "select pid from pg_stat_activity where pid <> pg_backend_pid()")
    for pid in (server.pid, *(row["pid"] for row in found)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def write(memory: pgmem.Memory, writer: int, round_number: int, acknowledged: dict[str, int]) -> None:
    """Adds turns for ever, each again and again until it is acknowledged."""
    session = await retried(lambda: memory.session(f"{writer % TREES}"))
    number = 0
    while True:
        key = f"{round_number}/{writer}/{number}"
        turn = await retried(lambda key=key: session.add_turn("user", key, idempotency_key=key))
        acknowledged[key] = turn.no
        number += 1


async def retried(call):
    while True:
        try:
            return await call()
        except pgmem.DatabaseError as fault:
            if not fault.retryable:
                raise
            await asyncio.sleep(0.01)


async def enough(acknowledged: dict[str, int], goal: int) -> None:
    async with asyncio.timeout(60):
        while len(acknowledged) < goal:  # noqa: ASYNC110 - the writers tell only by what they wrote
            await asyncio.sleep(0.005)
