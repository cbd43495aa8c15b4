"""A scripted model behind HTTP for every flow, with short pauses between its attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg.rows import dict_row

from pgmem.llm import pace
from pgmem.testing import ScriptedModel


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def llm() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as endpoint:
        yield endpoint


@pytest.fixture
async def reader(server, database):
    async with await psycopg.AsyncConnection.connect(
        server.on(database, "pgmem_reader"), autocommit=True, row_factory=dict_row
    ) as connection:
        yield connection
