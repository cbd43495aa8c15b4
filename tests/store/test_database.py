"""The database is checked before it is used, and every wait ends: with an answer, or with an error of ours at the deadline."""

from __future__ import annotations

import asyncio
import tempfile
import time
import traceback
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import pgmem
from pgmem import settings
from pgmem.errors import InvalidSettings
from pgmem.store import embedded, migrate
from tests.concurrency.support import HoldingWire, connect, row_held, rows, waiting_for_locks
from tests.support.waiting import until
from tests.support.wire import serving, wire

SECRET = "s3cr@t/%' \\word"
ENCODED = "s3cr%40t%2F%25%27%20%5Cword"


@pytest.fixture
def owner_url(server, database) -> str:
    return server.on(database)


@pytest.fixture(params=["1", "0"], ids=["prepared", "unprepared"])
def prepared(request, monkeypatch) -> None:
    monkeypatch.setenv("PGMEM_PREPARED_STATEMENTS", request.param)


@pytest.fixture
def short(monkeypatch) -> float:
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "0.3")
    return 0.3


async def locked(owner: psycopg.AsyncConnection, count: int) -> bool:
    return await waiting_for_locks(owner) == count


async def backends(owner: psycopg.AsyncConnection, name: str) -> list[int]:
    found = await rows(owner, "select pid from pg_stat_activity where application_name = %s order by pid", name)
    return [row["pid"] for row in found]


# Connections that end


@pytest.mark.usefixtures("prepared")
async def test_connections_that_the_server_ended_while_they_were_idle_are_replaced_unseen(app_url, owner_url, key):
    async with await connect(owner_url) as owner, pgmem.open(f"{app_url} application_name={key}", pool_size=5) as memory:
        session = await memory.session(key)
        await asyncio.gather(*(session.add_turn("user", "warm") for _ in range(5)))
        ended = await backends(owner, key)
        for pid in ended:
            await rows(owner, "select pg_terminate_backend(%s, 5000)", pid)

        turns = await asyncio.gather(*(session.add_turn("user", "after") for _ in range(10)))

        assert sorted(turn.no for turn in turns) == list(range(6, 16))
        assert not set(ended) & set(await backends(owner, key))


async def test_a_connection_that_the_server_found_idle_too_long_is_replaced_unseen(server, own_database, key):
    server.execute(f"alter role pgmem_app in database {own_database} set idle_session_timeout = '300ms'")
    url = f"{server.on(own_database, 'pgmem_app')} application_name={key}"
    async with await connect(server.on(own_database)) as owner, pgmem.open(url, pool_size=1) as memory:
        for number in range(1, 4):
            session = await memory.session(key)
            assert (await session.add_turn("user", "again")).no == number
            await until(lambda: no_backends(owner, key), "the server ended the idle connection")


async def no_backends(owner: psycopg.AsyncConnection, name: str) -> bool:
    return not await backends(owner, name)


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize(
    ("function", "error", "state"),
    [("pg_terminate_backend", pgmem.DatabaseUnavailable, "57P01"), ("pg_cancel_backend", pgmem.DatabaseTimeout, "57014")],
)
async def test_a_write_that_the_server_ended_is_a_retryable_error_and_writes_nothing(
    app_url, owner_url, key, function, error, state
):
    async with await connect(owner_url) as owner, pgmem.open(f"{app_url} application_name={key}", pool_size=1) as memory:
        session = await memory.session(key)
        async with row_held(owner_url, session):
            writing = asyncio.create_task(session.add_turn("user", "x"))
            await until(lambda: locked(owner, 1), "the write waits")
            await rows(owner, f"select {function}(pid) from pg_stat_activity where application_name = %s", key)
            with pytest.raises(error) as caught:
                await writing

        assert (caught.value.retryable, caught.value.sqlstate) == (True, state)
        assert (await session.add_turn("user", "x")).no == 1


async def test_a_keyed_write_whose_connection_was_ended_is_tried_once_more(app_url, owner_url, key):
    async with await connect(owner_url) as owner, pgmem.open(f"{app_url} application_name={key}", pool_size=1) as memory:
        session = await memory.session(key)
        async with row_held(owner_url, session):
            writing = asyncio.create_task(session.add_turn("user", "x", idempotency_key="k"))
            await until(lambda: locked(owner, 1), "the write waits")
            await rows(owner, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", key)

        assert (await writing).no == 1


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout"])
async def test_a_timeout_of_the_servers_own_is_a_retryable_error_and_writes_nothing(server, own_database, key, setting):
    server.execute(f"alter role pgmem_app in database {own_database} set {setting} = '100ms'")
    async with pgmem.open(server.on(own_database, "pgmem_app"), pool_size=1) as memory:
        session = await memory.session(key)
        async with row_held(server.on(own_database), session):
            with pytest.raises(pgmem.DatabaseTimeout, match="nothing was written") as caught:
                await session.add_turn("user", "x")

        assert caught.value.retryable
        assert (await session.add_turn("user", "x")).no == 1


@pytest.mark.usefixtures("prepared")
async def test_an_answer_lost_after_the_commit_is_found_again_by_its_key(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        await session.add_turn("user", "warm", idempotency_key="warm")
        proxy.cut_after = b"SELECT"
        with pytest.raises(pgmem.DatabaseUnavailable, match="may or may not be stored"):
            await session.add_turn("user", "pay", idempotency_key="k")
        proxy.cut_after = None

        turn = await session.add_turn("user", "pay", idempotency_key="k")

        assert turn.no == 2
        assert [turn.content async for turn in session.turns()] == ["warm", "pay"]


@pytest.mark.usefixtures("prepared")
async def test_an_answer_lost_after_the_commit_of_a_turn_without_a_key_says_that_nobody_knows(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        await session.add_turn("user", "warm")
        proxy.cut_after = b"INSERT"
        with pytest.raises(pgmem.DatabaseUnavailable, match=r"may or may not be stored.*idempotency key") as caught:
            await session.add_turn("user", "pay")
        proxy.cut_after = None

        assert caught.value.retryable
        assert [turn.content async for turn in session.turns()] == ["warm", "pay"]


async def test_a_read_whose_answer_is_lost_is_asked_again(app_url, key):
    async with serving(HoldingWire(app_url)) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        await session.add_turn("user", "x")
        proxy.hold()
        reading = asyncio.create_task(session.context())
        await proxy.held.wait()

        proxy.cut()
        proxy.let_go()

        assert (await reading).messages == [{"role": "user", "content": "x"}]


# Deadlines


async def test_a_full_pool_is_an_error_at_the_deadline_and_not_a_hang(app_url, key, short):
    async with pgmem.open(app_url, pool_size=1) as memory:
        session = await memory.session(key)
        async with memory._database._pool.connection(asyncio.get_running_loop().time() + 1):
            begun = time.monotonic()
            with pytest.raises(pgmem.DatabaseTimeout, match=r"none of 1 connections.*nothing was sent.*PGMEM_POOL_SIZE"):
                await session.add_turn("user", "x")
            assert short <= time.monotonic() - begun < short + 1

        assert (await session.add_turn("user", "x")).no == 1


async def test_a_lock_held_past_the_deadline_is_an_error_then_and_writes_nothing(app_url, owner_url, key, short):
    async with await connect(owner_url) as owner, pgmem.open(f"{app_url} application_name={key}", pool_size=1) as memory:
        session = await memory.session(key)
        before = await backends(owner, key)
        async with row_held(owner_url, session):
            begun = time.monotonic()
            with pytest.raises(pgmem.DatabaseTimeout, match="PGMEM_TIMEOUT_SECONDS"):
                await session.add_turn("user", "x")
            took = time.monotonic() - begun

        assert short <= took < short + 1
        assert await backends(owner, key) == before, "the connection is healthy and was kept"
        assert [turn async for turn in session.turns()] == []


async def test_a_deadline_after_the_commit_does_not_say_that_nothing_was_written(app_url, key, short):
    async with serving(HoldingWire(app_url)) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        proxy.hold()
        begun = time.monotonic()
        with pytest.raises(pgmem.DatabaseTimeout, match="may or may not be stored"):
            await session.add_turn("user", "x", idempotency_key="k")
        took = time.monotonic() - begun
        proxy.let_go()

        assert took < short + 2, "a server that is stuck is not waited for"
        assert (await session.add_turn("user", "x", idempotency_key="k")).no == 1


async def test_a_server_that_accepts_and_says_nothing_is_an_error_at_the_deadline(app_url, short):
    async with serving(HoldingWire(app_url)) as proxy:
        proxy.hold()
        begun = time.monotonic()
        with pytest.raises(pgmem.DatabaseTimeout, match=r"no connection could be made.*nothing was sent"):
            async with pgmem.open(proxy.url):
                pass

        assert time.monotonic() - begun < short + 1


# The way to it


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{ENCODED}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?user=me&password={ENCODED}",
        "host=127.0.0.1 port=1 dbname=db user=me password='s3cr@t/%\\' \\\\word'",
        f"postgresql://me:{ENCODED}@{'a' * 64}.example/db",
        f"postgresql://me:{ENCODED}@127.0.0.1:99999/db",
        f"postgresql://me:{ENCODED}@/db?host=/nowhere",
    ],
)
async def test_a_server_that_cannot_be_reached_is_an_error_without_the_password(url):
    with pytest.raises(pgmem.DatabaseUnavailable, match="nothing was sent") as caught:
        async with pgmem.open(url):
            pass

    assert_secret(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgres:/me:{SECRET}@host/db",
        f"me:{SECRET}@host/db",
        f"postgresql://me:{SECRET}%zz@host/db",
        f"host=h user=me password='{SECRET}",
        f"host=h pasword={SECRET}",
        f"postgresql://me:{SECRET}\0@host/db",
        f"postgresql://me:{SECRET}\ud83d@host/db",
        "",
    ],
)
async def test_a_url_that_cannot_be_read_is_never_repeated(url):
    with pytest.raises((InvalidSettings, pgmem.DatabaseUnavailable)) as caught:
        async with pgmem.open(url or "nonsense"):
            pass

    assert_secret(caught.value)
    with pytest.raises((InvalidSettings, pgmem.DatabaseError)) as caught:
        migrate.current(url or "nonsense")
    assert_secret(caught.value)


def assert_secret(fault: BaseException) -> None:
    shown = "".join(traceback.format_exception(fault)) + repr(fault)
    if fault.__cause__ is None:
        shown += repr(fault.__context__) if not fault.__suppress_context__ else ""
    words = [line for line in shown.splitlines() if "SECRET" not in line]
    assert not any(part in line for line in words for part in ("s3cr", ENCODED)), shown


@pytest.mark.parametrize(("part", "said"), [("dbname", "does not exist"), ("user", "does not exist")])
async def test_a_database_or_a_role_that_is_not_there_is_an_error_that_names_it(app_url, part, said):
    with pytest.raises(pgmem.DatabaseUnavailable, match=f"nobody_here.*{said}"):
        async with pgmem.open(f"{app_url} {part}=nobody_here"):
            pass


@pytest.mark.parametrize("url", [5, b"postgresql://h/db", ["h"]])
async def test_a_url_that_is_no_text_is_refused(url):
    with pytest.raises(pgmem.InvalidArgument, match="url"):
        async with pgmem.open(url):
            pass


def test_settings_show_no_password():
    assert "secret" not in repr(settings.read({"PGMEM_DATABASE_URL": "postgresql://me:secret@host/db"}))


# What is fit for use


async def test_a_database_without_the_schema_says_which_command_to_run(server):
    bare = server.make_database()

    with pytest.raises(pgmem.SchemaMismatch, match="pgmem db upgrade"):
        async with pgmem.open(server.on(bare, "pgmem_app")):
            pass


@pytest.mark.parametrize(("version", "said"), [("0000", "newer"), ("9999", "newer"), (None, "pgmem db upgrade")])
async def test_a_schema_of_another_release_says_what_to_do(server, own_database, version, said):
    server.execute("delete from pgmem.schema_version", own_database)
    if version is not None:
        server.execute(sql.SQL("insert into pgmem.schema_version values ({})").format(version), own_database)

    with pytest.raises(pgmem.SchemaMismatch, match=said):
        async with pgmem.open(server.on(own_database, "pgmem_app")):
            pass


async def test_a_role_without_rights_says_what_to_do(server, own_database):
    server.execute("do $$ begin create role pgmem_stranger login password 'x'; exception when duplicate_object then end $$")
    try:
        with pytest.raises(pgmem.UnsafeDatabase, match="grant pgmem_app to"):
            async with pgmem.open(psycopg.conninfo.make_conninfo(server.on(own_database), user="pgmem_stranger", password="x")):
                pass
    finally:
        server.execute("drop role pgmem_stranger")


async def test_a_superuser_or_owner_is_refused_unless_allowed(owner_url, key, caplog):
    with pytest.raises(pgmem.UnsafeDatabase, match=r"superuser or owns.*PGMEM_ALLOW_UNSAFE"):
        async with pgmem.open(owner_url):
            pass

    async with pgmem.open(owner_url, allow_unsafe=True) as memory:
        await memory.session(key)
    assert "going on all the same" in caplog.text


@pytest.mark.parametrize("level", ["role", "database"])
async def test_commits_that_can_be_lost_are_refused(server, own_database, level):
    whose = f"role pgmem_app in database {own_database}" if level == "role" else f"database {own_database}"
    server.execute(f"alter {whose} set synchronous_commit = off")

    with pytest.raises(pgmem.UnsafeDatabase, match="synchronous_commit"):
        async with pgmem.open(server.on(own_database, "pgmem_app")):
            pass


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_that_is_not_utf8_is_refused_before_anything_else_and_not_migrated(server, encoding):
    options = f"encoding '{encoding}' locale_provider libc locale 'C' template template0"
    name = server.make_database(options=options)

    with pytest.raises(pgmem.UnsafeDatabase, match=rf"{encoding}.*UTF8"):
        async with pgmem.open(server.on(name), allow_unsafe=True):
            pass
    with pytest.raises(pgmem.UnsafeDatabase, match=encoding):
        migrate.upgrade(server.on(name))


async def test_a_client_encoding_of_the_environment_changes_nothing(app_url, key, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with pgmem.open(f"{app_url} client_encoding=LATIN1") as memory:
        session = await memory.session(key)

        await session.add_turn("user", "\N{GRINNING FACE} \N{HIRAGANA LETTER A}")

        assert (await session.context()).messages[0]["content"] == "\N{GRINNING FACE} \N{HIRAGANA LETTER A}"


def test_a_server_without_fsync_is_refused_and_one_that_ends_is_said_so_at_once_and_used_again_at_once():
    with tempfile.TemporaryDirectory(prefix="pgm-", dir="/tmp") as folder:
        home = Path(folder) / "home"
        server = embedded.start(home, keep_running=False, settings={"fsync": "off"})
        migrate.upgrade(server.url())
        migrate.allow_login(server.url(), roles=("pgmem_app",), password=server.password)
        try:
            asyncio.run(refused(server))
            asyncio.run(ended_and_begun(home, server))
        finally:
            left = embedded.running(home)
            if left is not None:
                left.stop()


async def refused(server: embedded.EmbeddedServer) -> None:
    with pytest.raises(pgmem.UnsafeDatabase, match="fsync is off"):
        async with pgmem.open(server.url(user="pgmem_app")):
            pass


async def ended_and_begun(home: Path, server: embedded.EmbeddedServer) -> None:
    async with pgmem.open(server.url(user="pgmem_app"), allow_unsafe=True, pool_size=3) as memory:
        session = await memory.session("s")
        await asyncio.gather(*(session.add_turn("user", "warm") for _ in range(6)))
        await asyncio.to_thread(server.stop)
        for _ in range(10):
            begun = time.monotonic()
            with pytest.raises(pgmem.DatabaseUnavailable, match="nothing was sent"):
                await session.add_turn("user", "nowhere")
            assert time.monotonic() - begun < 1

        await asyncio.to_thread(embedded.start, home, keep_running=False, settings={"fsync": "off"})
        turns = await asyncio.gather(*(session.add_turn("user", "back") for _ in range(6)))

        assert sorted(turn.no for turn in turns) == list(range(7, 13))


async def test_a_role_that_may_only_read_is_told_what_to_be_granted(server, own_database):
    with pytest.raises(pgmem.UnsafeDatabase, match="use a login that is granted pgmem_app"):
        async with pgmem.open(server.on(own_database, "pgmem_reader")):
            pass
