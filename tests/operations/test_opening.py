"""Open: finds or starts a Postgres, makes it ready where it is ours, and trusts no other blindly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pgmem
from pgmem.store import embedded
from pgmem.store.queries import Statement

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, sys, pgmem

async def main():
    async with pgmem.open() as memory:
        session = await memory.session("shared")
        await session.add_turn("user", sys.argv[1])

asyncio.run(main())
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of the embedded server that no other test uses; its server is stopped at the end."""
    monkeypatch.delenv("PGMEM_DATABASE_URL", raising=False)
    monkeypatch.setenv("PGMEM_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    server = embedded.running(tmp_path / "home")
    if server is not None:
        server.stop()


async def test_open_with_nothing_set_starts_the_embedded_server_and_migrates_it(home):
    async with pgmem.open() as memory:
        session = await memory.session("k")
        await session.add_turn("user", "kept")

    async with pgmem.open() as memory:
        session = await memory.session("k", create=False)
        assert (await session.context()).messages == [{"role": "user", "content": "kept"}]


async def test_open_on_the_embedded_server_is_the_role_that_may_only_add(home):
    async with pgmem.open() as memory:
        (row,) = await memory._database.run(Statement("select current_user::text as name", ()), {})

    assert row["name"] == "pgmem_app"


def test_four_processes_that_open_a_new_home_at_once_share_one_server(home):
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(number)], cwd=ROOT, env=os.environ) for number in range(4)]

    assert [process.wait(timeout=120) for process in started] == [0, 0, 0, 0]

    async def contents():
        async with pgmem.open() as memory:
            session = await memory.session("shared", create=False)
            return sorted([turn.content async for turn in session.turns()])

    assert asyncio.run(contents()) == ["0", "1", "2", "3"]


async def test_the_environments_url_comes_before_the_embedded_server(home, app_url, monkeypatch, key):
    monkeypatch.setenv("PGMEM_DATABASE_URL", app_url)

    async with pgmem.open() as memory:
        await memory.session(key)

    assert not home.exists()


async def test_the_owner_of_the_tables_is_refused_unless_it_is_allowed(server, database, key, caplog):
    with pytest.raises(pgmem.UnsafeDatabase, match="pgmem_app"):
        async with pgmem.open(server.on(database)):
            pass

    async with pgmem.open(server.on(database), allow_unsafe=True) as memory:
        await memory.session(key)

    assert "superuser or owns the tables" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"pool_size": 0},
        {"pool_size": True},
        {"policy": {"threshold": 8}},
        {"memory_role": "assistant"},
        {"schema": "Bad Name"},
        {"allow_unsafe": "0"},
        {"allow_unsafe": 1},
        {"home": 5},
        {"home": b"/tmp"},
        {"home": "a\0b"},
    ],
)
async def test_an_option_that_cannot_be_used_is_refused_before_anything_is_started(home, arguments):
    with pytest.raises(pgmem.PgmemError):
        async with pgmem.open(**arguments):
            pass

    assert not home.exists()


@pytest.mark.parametrize("arguments", [{"allow_unsafe": "0"}, {"home": 5}, {"home": "a\0b"}])
async def test_an_option_of_the_wrong_type_is_an_invalid_argument_that_names_it(home, arguments):
    with pytest.raises(pgmem.InvalidArgument, match=next(iter(arguments))):
        async with pgmem.open(**arguments):
            pass


async def test_a_closed_memory_says_so(app_url, key):
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)

    with pytest.raises(pgmem.DatabaseUnavailable, match="closed"):
        await session.add_turn("user", "late")
