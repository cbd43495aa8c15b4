"""Through PgBouncer, which gives each statement whatever server connection is free."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import conninfo

import pgmem
from tests.concurrency.support import check, connect
from tests.support.servers import PASSWORD, Server
from tests.support.talk import assistant, user

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs pgbouncer (Debian's package of that name)")


def version() -> tuple[int, int]:
    if PROGRAM is None:
        return (0, 0)
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout
    major, minor = re.findall(r"\d+", said)[:2]
    return (int(major), int(minor))


TRACKS_STATEMENTS = version() >= (1, 21)


@contextlib.contextmanager
def bouncer(server: Server, database: str, *, mode: str = "transaction") -> Iterator[str]:
    """The URL of ``database`` through a PgBouncer of its own with two server connections."""
    folder = Path(tempfile.mkdtemp(prefix="pgb", dir="/tmp"))
    target = conninfo.conninfo_to_dict(server.on(database, "pgmem_app"))
    settings = {
        "unix_socket_dir": folder,
        "listen_port": 6432,
        "pool_mode": mode,
        "default_pool_size": 2 if mode == "transaction" else 50,
        "auth_type": "any",
        "admin_users": "pgmem_app",
        **({"max_prepared_statements": 100} if TRACKS_STATEMENTS else {}),
    }
    place = " ".join(f"{name}='{value}'" for name, value in target.items() if name in ("host", "port", "dbname", "user"))
    lines = ["[databases]", f"through = {place} password='{PASSWORD}'", "[pgbouncer]"]
    (folder / "pgbouncer.ini").write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]))
    # it refuses to be root, and the server's folder lets nobody else in
    prefix = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"] if os.geteuid() == 0 else []
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*prefix, PROGRAM, str(folder / "pgbouncer.ini")], stdout=log, stderr=log)
    url = f"host={folder} port=6432 dbname=through user=pgmem_app password=x"
    try:
        wait_for(url, folder / "log")
        yield url
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def wait_for(url: str, log: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url, autocommit=True).close()
        except psycopg.OperationalError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        else:
            return


async def talk(url: str, key: str) -> None:
    """All that a client does, by more tasks than there are server connections."""
    async with pgmem.open(url, pool_size=5, policy=pgmem.Policy(threshold=8, keep_recent=2)) as memory:

        async def one(number: int) -> None:
            session = await memory.session(f"{key}/{number}", goal="g")
            for turn in range(3):
                await session.add_turns([(user, assistant)[at % 2](f"{turn}/{at}") for at in range(8)])
                await session.add_turn("user", "once", idempotency_key=f"{turn}")
                await session.compact()
                await session.context()
            await session.compress(summary="all of it", label="l")
            await session.erase(keep_summary=True)
            await session.namespace("notes").add_turn("user", "noted")
            assert await session.namespaces() == ["main", "notes"]
            assert [turn.no async for turn in session.turns()]
            assert len([node async for node in session.nodes()]) == 4
            assert [branch async for branch in session.branches()]
            assert len(await session.path()) == 4
            assert await session.verify() is None

        await asyncio.gather(*(one(number) for number in range(6)))


async def two_clients(url: str, server: Server, database: str, key: str) -> None:
    await asyncio.gather(talk(url, f"{key}/a"), talk(url, f"{key}/b"))
    async with await connect(server.on(database)) as owner, pgmem.open(server.on(database, "pgmem_app")) as memory:
        for name in ("a", "b"):
            await check(owner, await memory.session(f"{key}/{name}/0"))


async def test_two_clients_work_through_it_without_prepared_statements(server, database, key, monkeypatch):
    monkeypatch.setenv("PGMEM_PREPARED_STATEMENTS", "0")
    with bouncer(server, database) as url:
        await two_clients(url, server, database, key)


@pytest.mark.skipif(not TRACKS_STATEMENTS, reason=f"PgBouncer {version()} is older than 1.21 and mixes up prepared statements")
async def test_two_clients_work_through_it_with_prepared_statements(server, database, key):
    with bouncer(server, database) as url:
        await two_clients(url, server, database, key)


@pytest.mark.skipif(TRACKS_STATEMENTS, reason="this PgBouncer keeps prepared statements apart")
async def test_one_that_mixes_up_prepared_statements_is_refused_at_the_start(server, database):
    with bouncer(server, database) as url:
        for _ in range(3):
            with pytest.raises(pgmem.UnsafeDatabase, match="PGMEM_PREPARED_STATEMENTS=0"):
                async with pgmem.open(url):
                    pass


async def test_one_that_pools_whole_sessions_is_allowed_when_asked_for(server, database, key):
    with bouncer(server, database, mode="session") as url:
        async with pgmem.open(url, allow_unsafe=True) as memory:
            session = await memory.session(key)
            turns = await asyncio.gather(*(session.add_turn("user", f"{number}") for number in range(20)))

    assert sorted(turn.no for turn in turns) == list(range(1, 21))


async def test_connections_that_it_dropped_are_replaced_unseen(server, database, key, monkeypatch):
    monkeypatch.setenv("PGMEM_PREPARED_STATEMENTS", "0")
    with bouncer(server, database) as url:
        folder = conninfo.conninfo_to_dict(url)["host"]
        async with pgmem.open(url) as memory:
            session = await memory.session(key)
            await session.add_turn("user", "before")
            with psycopg.connect(f"host={folder} port=6432 dbname=pgbouncer user=pgmem_app", autocommit=True) as console:
                console.execute("kill through")
                console.execute("resume through")

            assert (await session.add_turn("user", "after")).no == 2
