"""A Memory that queues, in a database of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import pgmem
from pgmem.llm import pace

POLICY = pgmem.Policy(threshold=6, keep_recent=2)


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
