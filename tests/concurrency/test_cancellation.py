"""Whoever is cancelled, at whatever point, leaves the old or the new context, a whole pool and usable objects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

import pgmem
from tests.concurrency.support import HoldingWire, busy_connections, check, connect, row_held, rows, waiting_for_locks
from tests.support.talk import assistant, user
from tests.support.waiting import until
from tests.support.wire import serving

POINTS = range(0, 240, 4)
"""After how many turns of the event loop an operation is cancelled; none of them needs as many as the last."""

POLICY = pgmem.Policy(threshold=8, keep_recent=2)

OPERATIONS: dict[str, tuple[Callable[[pgmem.Session], Awaitable[Any]], int]] = {
    "add_turn": (lambda session: session.add_turn("user", "new"), 1),
    "add_turns": (lambda session: session.add_turns([user("new"), assistant("newer")]), 2),
    "compact": (lambda session: session.compact(), 1),
    "compress": (lambda session: session.compress(summary="all of it"), 1),
    "erase": (lambda session: session.erase(keep_summary=True), 1),
    "context": (lambda session: session.context(), 0),
}
"""An operation, and how many facts it adds."""


@pytest.fixture
def owner_url(server, database) -> str:
    return server.on(database)


@pytest.fixture
async def owner(owner_url) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await connect(owner_url) as connection:
        yield connection


async def cancelled(work: Awaitable[Any], *, after: int) -> bool:
    """Whether the work was still going on when it was cancelled, after so many turns of the event loop."""
    task = asyncio.ensure_future(work)
    for _ in range(after):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    return task.cancelled()


async def assert_old_or_new(session: pgmem.Session, before: pgmem.Context, added: int) -> None:
    now = await session.context()
    assert now.no in (before.no, before.no + added)
    assert (now.no == before.no) == (now.messages == before.messages) or not added


async def assert_whole(owner: psycopg.AsyncConnection, owner_url: str, memory: pgmem.Memory, size: int) -> None:
    """Fails unless as many statements can be at work at once as the pool has connections."""
    assert await busy_connections(owner) == []
    session = await memory.session("lock")
    async with row_held(owner_url, session):
        tasks = [asyncio.create_task(session.add_turn("user", f"{number}")) for number in range(size + 1)]
        await until(lambda: _are_waiting(owner, size), f"{size} statements wait")
    await asyncio.gather(*tasks)


async def _are_waiting(owner: psycopg.AsyncConnection, size: int) -> bool:
    return await waiting_for_locks(owner) == size


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_cancelled_anywhere_leaves_the_old_or_the_new_context(app_url, owner, owner_url, key, name):
    operate, added = OPERATIONS[name]
    async with pgmem.open(app_url, policy=POLICY, pool_size=3) as memory:
        session = await memory.session(key)
        stopped = 0
        for point in POINTS:
            await session.add_turns([(user, assistant)[number % 2](f"{point}/{number}") for number in range(8)])
            before = await session.context()

            stopped += await cancelled(operate(session), after=point)

            await assert_old_or_new(session, before, added)
            if name != "erase":
                await session.erase()
        assert 0 < stopped < len(POINTS), "some were cancelled and some were done"
        await assert_whole(owner, owner_url, memory, 3)
        await check(owner, session)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_cancelled_when_its_statement_is_done_and_nobody_knows_leaves_the_new_context(
    app_url, owner, owner_url, key, name
):
    operate, added = OPERATIONS[name]
    async with serving(HoldingWire(app_url)) as wire, pgmem.open(wire.url, policy=POLICY, pool_size=1) as memory:
        session = await memory.session(key)
        for attempt in range(10):
            await session.add_turns([(user, assistant)[number % 2](f"{attempt}/{number}") for number in range(8)])
            before = await session.context()
            wire.hold()
            task = asyncio.ensure_future(operate(session))
            await wire.held.wait()

            task.cancel()
            wire.let_go()
            await asyncio.wait({task})

            assert task.cancelled()
            await assert_old_or_new(session, before, added)
            await session.erase()
        await assert_whole(owner, owner_url, memory, 1)
        await check(owner, session)


async def test_writers_that_are_cancelled_in_crowds_leave_a_whole_pool(app_url, owner, owner_url, key):
    async with pgmem.open(app_url, pool_size=5) as memory:
        handles = [await memory.session(f"{key}/{number}") for number in range(5)]
        for point in range(0, 200, 10):
            tasks = [asyncio.create_task(handles[number % 5].add_turn("user", f"{point}/{number}")) for number in range(25)]
            for _ in range(point):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        await assert_whole(owner, owner_url, memory, 5)
        for handle in handles:
            await check(owner, handle)


async def test_a_wait_for_a_connection_is_cancelled_at_once(app_url, owner, owner_url, key):
    async with pgmem.open(app_url, pool_size=1) as memory:
        session = await memory.session(key)
        async with row_held(owner_url, session):
            first = asyncio.create_task(session.add_turn("user", "first"))
            await until(lambda: _are_waiting(owner, 1), "the first turn waits for the row")
            second = asyncio.create_task(session.add_turn("user", "second"))
            await asyncio.sleep(0)

            second.cancel()
            await asyncio.wait({second})

            assert second.cancelled()
        await first
        assert [turn.content async for turn in session.turns()] == ["first"]
        await assert_whole(owner, owner_url, memory, 1)


async def test_a_connection_that_is_being_made_is_cancelled_without_a_trace(app_url, owner, owner_url, key):
    async with serving(HoldingWire(app_url)) as wire, pgmem.open(wire.url, pool_size=1) as memory:
        session = await memory.session(key)
        for _ in range(5):
            wire.cut()
            wire.hold()
            task = asyncio.create_task(session.add_turn("user", "new"))
            await wire.held.wait()

            task.cancel()
            await asyncio.wait({task})
            wire.let_go()

            assert task.cancelled()
        assert [turn async for turn in session.turns()] == []
        await assert_whole(owner, owner_url, memory, 1)


async def test_a_second_cancel_ends_the_wait_for_a_server_that_is_stuck(app_url, key):
    async with serving(HoldingWire(app_url)) as wire, pgmem.open(wire.url, pool_size=1) as memory:
        session = await memory.session(key)
        wire.hold()
        task = asyncio.create_task(session.add_turn("user", "new"))
        await wire.held.wait()

        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(2):
            await asyncio.wait({task})

        assert task.cancelled()
        wire.let_go()
        await session.add_turn("user", "on a new connection")


def test_a_loop_that_ends_with_work_pending_ends_at_once_and_leaves_whole_turns(app_url, server, database, key):
    async def leave() -> None:
        async with pgmem.open(app_url, pool_size=4) as memory:
            handles = [await memory.session(key) for _ in range(8)]
            tasks = [asyncio.create_task(write(handle)) for handle in handles]
            await asyncio.wait(tasks, timeout=0.2)

    async def write(session: pgmem.Session) -> None:
        with contextlib.suppress(pgmem.DatabaseUnavailable):
            while True:
                await session.add_turn("user", "again")

    async def look() -> None:
        async with await connect(server.on(database)) as owner, pgmem.open(app_url) as memory:
            await until(lambda: _is_quiet(owner), "no connection of the ended loop is at work")
            session = await memory.session(key)
            assert await session.verify() is None
            assert [turn.no async for turn in session.turns()]

    asyncio.run(leave())
    asyncio.run(look())


async def _is_quiet(owner: psycopg.AsyncConnection) -> bool:
    return not await busy_connections(owner)


async def test_a_closed_memory_refuses_work_and_ends_its_connections(app_url, owner, owner_url, key):
    name = f"pgmem-{key}"[:60]
    async with pgmem.open(f"{app_url} application_name={name}", pool_size=4) as memory:
        session = await memory.session(key)
        await asyncio.gather(*(session.add_turn("user", f"{number}") for number in range(8)))

    with pytest.raises(pgmem.DatabaseUnavailable, match="closed"):
        await session.add_turn("user", "late")

    await until(lambda: _has_none(owner, name), "its connections are gone")


async def _has_none(owner: psycopg.AsyncConnection, name: str) -> bool:
    return not await rows(owner, "select from pg_stat_activity where application_name = %s", name)
