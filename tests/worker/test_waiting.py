"""Who awaits a queued compaction: it is heard, looked for, lost, or given up."""

from __future__ import annotations

import asyncio

import pytest

import pgmem
from tests.support.waiting import until
from tests.support.wire import Wire, serving
from tests.support.workers import grow, passes, summarise, working
from tests.worker.conftest import POLICY


async def test_a_waiter_outlasts_a_database_that_is_away(url, key):
    async with serving(Wire(url)) as wire, pgmem.open(wire.url, policy=POLICY, background="queue") as memory:
        session = await memory.session(key)
        await grow(session)
        task = await session.compact_async()
        waiting = asyncio.create_task(task.wait(timeout_seconds=30))
        await asyncio.sleep(0.2)
        wire.refuse = True
        wire.cut()
        await asyncio.sleep(0.5)
        assert not waiting.done()
        wire.refuse = False
        async with working(url, summarise, passes):
            done = await waiting

    assert done.node.status == "compressed"


async def test_a_task_gives_what_it_came_to_however_often_it_is_awaited(memory, url, key):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, summarise, passes):
        first = await task
        await grow(session, 10)
        await (await session.compact_async())

    assert await task is first


async def test_a_job_that_somebody_deleted_is_lost_and_not_taken_for_one_with_nothing_to_do(memory, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    server.execute("delete from pgmem_queue.procrastinate_jobs", own_database)

    with pytest.raises(pgmem.CompactionLost, match="is not in the queue") as caught:
        await task.wait(timeout_seconds=10)
    assert caught.value.status == "gone"


async def test_waiting_gives_up_in_time_and_the_job_stays(memory, key):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()

    with pytest.raises(pgmem.DatabaseTimeout, match="does a `pgmem worker` run"):
        await task.wait(timeout_seconds=0.2)

    assert await task.status() == "todo"


async def test_the_end_of_a_job_is_heard_and_not_only_looked_for(memory, url, key, monkeypatch):
    monkeypatch.setattr("pgmem.operations.queued.FIRST_LOOK_SECONDS", 3600.0)
    monkeypatch.setattr("pgmem.operations.queued.LONGEST_LOOK_SECONDS", 3600.0)
    listening = asyncio.Event()
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    hear = memory._database.notices._hear

    async def heard(connection):
        listening.set()
        await hear(connection)

    monkeypatch.setattr(memory._database.notices, "_hear", heard)
    waiting = asyncio.create_task(task.wait(timeout_seconds=60))
    await listening.wait()
    await asyncio.sleep(0.2)
    async with working(url, summarise, passes):
        done = await waiting

    assert done.node.status == "compressed"
    assert memory._database.notices._listening is None


async def test_without_a_notice_a_job_is_looked_at_now_and_then(memory, url, key, monkeypatch):
    async def deaf(connection):
        return

    monkeypatch.setattr(memory._database.notices, "_hear", deaf)
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()

    async with working(url, summarise, passes):
        assert (await task).node.status == "compressed"


@pytest.mark.parametrize("seconds", ["5", 0, -1, float("nan"), True, None])
async def test_a_wait_is_a_number_of_seconds(memory, key, seconds):
    task = await (await memory.session(key)).compact_async()

    with pytest.raises(pgmem.InvalidArgument, match="timeout_seconds is"):
        await task.wait(timeout_seconds=seconds)


async def test_a_job_can_be_cancelled_while_it_waits(memory, url, key):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()

    assert await task.cancel()

    async with working(url, summarise):
        with pytest.raises(pgmem.CompactionLost, match="was cancelled: the turns stay"):
            await task
    assert not await task.cancel()


async def test_leaving_an_open_memory_leaves_the_job(url, key):
    async with pgmem.open(url, background="queue") as memory:
        session = await memory.session(key)
        await grow(session)
        task = await session.compact_async(threshold=6, keep_recent=2)
    async with pgmem.open(url, background="queue") as memory, working(url, summarise, passes):
        again = await (await memory.session(key)).compact_async(threshold=6, keep_recent=2)
        await again
        path = await (await memory.session(key)).path()

    assert again.job_id >= task.job_id
    assert [node.status for node in path] == ["compressed"]


async def test_a_waiter_outlasts_a_database_that_goes_away_when_the_job_has_just_ended(url, key):
    async with serving(Wire(url)) as wire, pgmem.open(wire.url, policy=POLICY, background="queue") as memory:
        session = await memory.session(key)
        await grow(session)
        task = await session.compact_async()
        async with working(url, summarise, passes):
            await until(lambda: is_done(task), "it is done")
        ended = task._ended_with_successors

        async def then_away():
            await ended()
            wire.refuse = True
            wire.cut()

        task._ended_with_successors = then_away
        waiting = asyncio.create_task(task.wait(timeout_seconds=30))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        wire.refuse = False
        done = await waiting

    assert done.node.status == "compressed"


async def is_done(task):
    return await task.status() == "succeeded"
