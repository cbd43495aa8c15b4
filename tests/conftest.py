"""Fixtures: one server a test process, one migrated database that tests share by key, a database of one's own where it matters."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

import pgmem
from tests.support.servers import Server
from tests.support.servers import server as run_server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with run_server() as started:
        yield started


@pytest.fixture(scope="session")
def template(server: Server) -> str:
    """A migrated database that nobody is connected to."""
    return server.migrated()


@pytest.fixture(scope="session")
def database(server: Server, template: str) -> str:
    """The database that most tests share; each uses a session of its own."""
    return server.make_database(template)


@pytest.fixture
def own_database(server: Server, template: str) -> str:
    """A database that no other test sees."""
    return server.make_database(template)


@pytest.fixture
def app_url(server: Server, database: str) -> str:
    return server.on(database, "pgmem_app")


@pytest.fixture
async def memory(app_url: str) -> AsyncIterator[pgmem.Memory]:
    async with pgmem.open(app_url) as opened:
        yield opened


@pytest.fixture
def key() -> str:
    return f"session-{uuid.uuid4()}"


@pytest.fixture
async def session(memory: pgmem.Memory, key: str) -> pgmem.Session:
    return await memory.session(key)


@pytest.fixture
async def owner(server: Server, database: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """The owner's own connection to the shared database, for looking behind the API."""
    async with await psycopg.AsyncConnection.connect(server.on(database), autocommit=True, row_factory=dict_row) as connection:
        yield connection
