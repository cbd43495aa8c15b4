"""A compaction that is cancelled at any await leaves the old or the new context, and neither a connection nor a lock."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field

import pytest

import pgmem
from tests.chaos.support import LONG, POLICY, talk
from tests.concurrency.support import rows
from tests.support.waiting import until

CANCELS = 10_000 if LONG else 300

NAME = "pgmem cancelled"

MOST_STEPS = 2_000
"""Turns of the event loop that no compaction here needs."""


async def summarise(request):
    await asyncio.sleep(0)
    return "the memory of it"


async def passes(request):
    await asyncio.sleep(0)
    return pgmem.Judgement(outcome=pgmem.Outcome.PASS, judge="test")


async def compact(session: pgmem.Session) -> None:
    await session.compact()


async def compact_async(session: pgmem.Session) -> None:
    task = await session.compact_async()
    try:
        await task
    except asyncio.CancelledError:
        # who awaits it is cancelled, and so is the compaction
        task.cancel()
        await asyncio.wait({task._task})
        raise


OPERATIONS = {"compact": compact, "compact_async": compact_async}


@dataclass
class Cancelled:
    """Cancels an operation after 0, 1, 2 … turns of the event loop, until it ends before; then from 0 again.

    Attributes:
        done: so many were cancelled.
        rounds: how often it ended before: every await was met so often at least.
        awaits: after how many turns it was cancelled.
        steps: after how many it is cancelled next.
    """

    done: int = 0
    rounds: int = 0
    awaits: set[int] = field(default_factory=set)
    steps: int = 0

    async def once(self, work) -> bool:
        """Whether it was cancelled, and not done before."""
        task = asyncio.ensure_future(work)
        for _ in range(self.steps):
            if task.done():
                break
            await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait({task})
        assert task.cancelled() or task.exception() is None, repr(task)
        if task.cancelled():
            self.done += 1
            self.awaits.add(self.steps)
            self.steps += 1
            assert self.steps < MOST_STEPS
        else:
            self.rounds, self.steps = self.rounds + 1, 0
        return task.cancelled()


async def connections(owner) -> Counter[str]:
    found = await rows(owner, "select state from pg_stat_activity where application_name = %s", NAME)
    return Counter(row["state"] for row in found)


async def is_whole(owner) -> bool:
    return await connections(owner) in ({"idle": 1}, {})


@pytest.mark.timeout(1800 if LONG else 300)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_compaction_cancelled_at_every_await_leaves_the_old_or_the_new_context(url, owner, key, name):
    options = {"policy": POLICY, "pool_size": 1, "summary_model": summarise, "judge_model": passes}
    cancelled, numbers = Cancelled(), itertools.count()
    seen: Counter[str] = Counter()
    async with pgmem.open(f"{url} application_name='{NAME}'", **options) as memory:
        session = await fresh(memory, key, numbers)
        old = (await session.context()).messages
        await OPERATIONS[name](session)
        new = (await session.context()).messages
        assert new != old
        session = await fresh(memory, key, numbers)

        while cancelled.done < CANCELS or not cancelled.rounds:
            await cancelled.once(OPERATIONS[name](session))

            context = await session.context()
            assert context.messages in (old, new)
            seen["new" if context.messages == new else "old"] += 1
            if context.messages == new:
                await assert_ends_well(session)
                session = await fresh(memory, key, numbers)

        await until(lambda: is_whole(owner), "no connection is left over", within_seconds=30)
        assert await asyncio.wait_for(session.add_turn("user", "still there"), 30)
        assert sum((await connections(owner)).values()) == 1
        tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("pgmem compaction")]
        assert tasks == []
    print(f"{name}: {cancelled.done} cancels at {len(cancelled.awaits)} points, {cancelled.rounds} done, {dict(seen)}")
    assert set(seen) == {"old", "new"}
    await until(lambda: is_gone(owner), "the closed memory has no connection", within_seconds=30)


async def is_gone(owner) -> bool:
    return not await connections(owner)


async def fresh(memory: pgmem.Memory, key: str, numbers) -> pgmem.Session:
    session = await memory.session(f"{key}/{next(numbers)}")
    await session.add_turns(talk())
    return session


async def assert_ends_well(session: pgmem.Session) -> None:
    """A compaction after one that was cancelled makes no second node."""
    nodes = [node async for node in session.nodes()]
    assert len(nodes) == 1
    assert len([verdict async for verdict in session.verdicts()]) <= 1


@pytest.mark.timeout(1800 if LONG else 300)
async def test_queueing_that_is_cancelled_at_every_await_leaves_no_job_or_one(url, owner, key):
    cancelled, numbers = Cancelled(), itertools.count()
    seen: Counter[int] = Counter()
    async with pgmem.open(f"{url} application_name='{NAME}'", policy=POLICY, pool_size=1, background="queue") as memory:
        session = await fresh(memory, key, numbers)
        old = (await session.context()).messages
        while cancelled.done < CANCELS // 3 or not cancelled.rounds:
            await cancelled.once(session.compact_async())

            jobs = await rows(
                owner,
                "select from pgmem_queue.procrastinate_jobs where queueing_lock = %s",
                f"{session._found.session_id}/main",
            )
            seen[len(jobs)] += 1
            assert (await session.context()).messages == old
            if jobs:
                session = await fresh(memory, key, numbers)

        await until(lambda: is_whole(owner), "no connection is left over", within_seconds=30)
        assert await asyncio.wait_for(session.add_turn("user", "still there"), 30)
    print(f"queued: {cancelled.done} cancels at {len(cancelled.awaits)} points, {cancelled.rounds} done, jobs {dict(seen)}")
    assert set(seen) == {0, 1}
