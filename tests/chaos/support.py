"""What these tests share: how long they are, a deadline for every wait, and a look at the queue behind the API."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pgmem
from tests.concurrency.support import rows
from tests.support.talk import assistant, user

LONG = bool(os.environ.get("PGMEM_CHAOS"))
"""Whether the long versions run: ``make chaos``."""

LOOK_SECONDS = 0.02

POLICY = pgmem.Policy(threshold=6, keep_recent=2)

QUICK = {"sweep_seconds": 0.1, "quiet_seconds": 0.3, "beat_seconds": 0.2, "stalled_seconds": 2.0, "stop_seconds": 5.0}
"""A worker that looks after things often, and finds soon that a tree was forgotten."""


def talk(count: int = 8) -> list[dict[str, Any]]:
    """Turns that are long enough for an echo of them to be seen as one."""
    words = "says several words, and some more after them."
    return [(user, assistant)[number % 2](f"turn {number} {words}") for number in range(count)]


async def until(happens: Callable[[], Awaitable[Any]], what: str, *, within_seconds: float) -> None:
    """Asks again and again; fails when it is not so within that time."""
    try:
        async with asyncio.timeout(within_seconds):
            while not await happens():  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"waited {within_seconds:g} s in vain until {what}") from None


async def job_statuses(owner) -> Counter[str]:
    found = await rows(owner, "select status::text as status, count(*) as n from pgmem_queue.procrastinate_jobs group by 1")
    return Counter({row["status"]: row["n"] for row in found})


async def open_jobs(owner) -> int:
    statuses = await job_statuses(owner)
    return statuses["todo"] + statuses["doing"]


@asynccontextmanager
async def working(url: str, summarise: Any, judge: Any = None, **options: Any) -> AsyncIterator[pgmem.Worker]:
    """A worker that works while the body runs."""
    async with pgmem.open(url, summary_model=summarise, judge_model=judge) as memory:
        worker = pgmem.Worker(memory, **QUICK | options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            async with asyncio.timeout(60):
                await running
