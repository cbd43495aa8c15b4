"""Workers for tests: quick ones, and what is said to and by them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pgmem
from tests.support.waiting import until

QUICK = {"sweep_seconds": 0.2, "quiet_seconds": 3600.0, "beat_seconds": 0.2, "stalled_seconds": 2.0, "stop_seconds": 5.0}
"""A worker that looks after others soon, and never for what nobody queued."""


@asynccontextmanager
async def working(url: str, summarise: Any, judge: Any = None, **options: Any) -> AsyncIterator[pgmem.Worker]:
    """A quick worker that works while the body runs."""
    async with pgmem.open(url, summary_model=summarise, judge_model=judge) as memory:
        worker = pgmem.Worker(memory, **QUICK | options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            async with asyncio.timeout(60):
                await running


async def sweeps(worker: pgmem.Worker, times: int) -> None:
    """Waits for so many sweeps of the worker."""
    for _ in range(times):
        before = worker.health.swept_at
        await until(lambda before=before: worker.health.swept_at != before, "the worker has swept")
