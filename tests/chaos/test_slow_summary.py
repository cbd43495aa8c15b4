"""Beside a summary that takes long an agent waits for nothing: no lock, no transaction, no connection is held."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

import pgmem
from pgmem.testing import ScriptedModel, ScriptedRequest, passing, summary
from tests.chaos.support import LONG, POLICY, QUIET_SECONDS, open_jobs, talk
from tests.concurrency.support import rows
from tests.support.talk import fault_of_provider
from tests.support.waiting import until
from tests.support.workers import working

SECONDS = 30.0 if LONG else 2.0
"""How long the summary takes."""

TURNS = 1_000 if LONG else 100

MOST_OPEN_SECONDS = 0.1

LOOK = (
    "select count(*) filter (where wait_event_type = 'Lock') as waits,"
    " count(*) filter (where state = 'idle in transaction') as idle_in_transaction,"
    " coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8 as oldest"
    " from pg_stat_activity where datname = current_database() and usename = 'pgmem_app'"
)


@dataclass
class Seen:
    """What looks at the server found: how many, those that waited for a lock, and the longest open transaction."""

    looks: int = 0
    waits: int = 0
    idle_in_transaction: int = 0
    oldest_seconds: float = 0.0


@asynccontextmanager
async def watched(owner):
    """Looks at the server again and again while the body runs."""
    seen = Seen()

    async def look() -> None:
        while True:
            (row,) = await rows(owner, LOOK)
            seen.looks += 1
            seen.waits += row["waits"]
            seen.idle_in_transaction += row["idle_in_transaction"]
            seen.oldest_seconds = max(seen.oldest_seconds, row["oldest"])
            await asyncio.sleep(0.005)

    looking = asyncio.create_task(look())
    try:
        yield seen
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking


class Slow:
    """A model that takes its time, and longer if the agent is not done by then."""

    def __init__(self) -> None:
        self.agent_is_done = asyncio.Event()

    async def __call__(self, request: ScriptedRequest):
        if request.asks_for != "summary":
            return passing()
        began = asyncio.get_running_loop().time()
        await self.agent_is_done.wait()
        taken = asyncio.get_running_loop().time() - began
        return summary("the memory of it").after(max(0.0, SECONDS - taken))


async def talks(session: pgmem.Session) -> pgmem.Context:
    for number in range(TURNS):
        await session.add_turn("user", f"meanwhile {number}")
        context = await session.context()
    return context


def assert_nothing_held(seen: Seen) -> None:
    assert seen.looks > 50
    assert seen.waits == 0
    assert seen.idle_in_transaction == 0
    assert seen.oldest_seconds < MOST_OPEN_SECONDS


@pytest.mark.parametrize("where", ["here", "in a worker"])
async def test_beside_a_slow_summary_no_lock_is_waited_for_and_no_transaction_stays_open(url, owner, owner_url, key, where):
    queued, slow = where == "in a worker", Slow()
    async with ScriptedModel(rule=slow) as endpoint:
        model = pgmem.OpenAIModel("m", base_url=endpoint.base_url, timeout_seconds=120)
        own = {"background": "queue"} if queued else {"summary_model": model, "judge_model": model}
        async with model, pgmem.open(url, policy=POLICY, pool_size=1, **own) as memory:
            session = await memory.session(key)
            await session.add_turns(talk())
            async with working(url, model, model, quiet_seconds=QUIET_SECONDS) if queued else not_working():
                task = await session.compact_async()
                await endpoint.asked()
                async with watched(owner) as seen:
                    context = await asyncio.wait_for(talks(session), 240)
                    slow.agent_is_done.set()
                    done = await asyncio.wait_for(task, 120)
            nodes = [node async for node in session.nodes()]
            whole = await session.verify()

    print(f"{where}: {seen}")
    assert_nothing_held(seen)
    assert (len(nodes), done.node.status, done.node.last_no, whole) == (1, "compressed", 6, None)
    assert len(context.messages) == len(talk()) + TURNS
    assert fault_of_provider(context.messages) is None
    await until(lambda: none_is_open(owner), "no job is left", within_seconds=30)


async def none_is_open(owner) -> bool:
    return not await open_jobs(owner)


@asynccontextmanager
async def not_working():
    yield
