"""A Memory that queues, and a worker that does what is queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import pgmem
from pgmem.llm import pace

POLICY = pgmem.Policy(threshold=6, keep_recent=2)
QUICK = {"sweep_seconds": 0.2, "quiet_seconds": 3600.0, "beat_seconds": 0.2, "stalled_seconds": 2.0, "stop_seconds": 5.0}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def url(server, own_database) -> str:
    """A database of one's own: its queue holds what this test queues."""
    return server.on(own_database, "pgmem_app")


@pytest.fixture
async def memory(url) -> AsyncIterator[pgmem.Memory]:
    async with pgmem.open(url, policy=POLICY, background="queue") as opened:
        yield opened


@asynccontextmanager
async def working(url: str, summarise, judge=None, **options) -> AsyncIterator[pgmem.Worker]:
    """A worker that works while the body runs."""
    async with pgmem.open(url, summary_model=summarise, judge_model=judge) as memory:
        worker = pgmem.Worker(memory, **QUICK | options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running
