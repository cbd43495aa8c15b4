"""A database of one's own for each test, its owner's connection, and a Memory that queues."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

import pgmem
from tests.chaos.support import POLICY
from tests.concurrency.support import connect


@pytest.fixture
def owner_url(server, own_database) -> str:
    return server.on(own_database)


@pytest.fixture
def url(server, own_database) -> str:
    return server.on(own_database, "pgmem_app")


@pytest.fixture
async def owner(owner_url) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await connect(owner_url) as connection:
        yield connection


@pytest.fixture
async def memory(url) -> AsyncIterator[pgmem.Memory]:
    async with pgmem.open(url, policy=POLICY, background="queue") as opened:
        yield opened
