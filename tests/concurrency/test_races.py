"""Many at once: more sessions than connections, first uses of everything, locks that others hold."""

from __future__ import annotations

import asyncio
import logging

import psycopg
import pytest
from psycopg.rows import dict_row

import pgmem
from tests.concurrency.support import check, connect, row_held, waiting_for_locks
from tests.support.talk import assistant, user
from tests.support.waiting import until


async def test_fifty_sessions_on_ten_connections_all_get_their_turns(app_url, key):
    async with pgmem.open(app_url, pool_size=10) as memory:

        async def talk(number: int) -> list[int]:
            session = await memory.session(f"{key}/{number}")
            turns = [await session.add_turn("user", f"{number}/{turn}") for turn in range(10)]
            assert len((await session.context()).messages) == 10
            return [turn.no for turn in turns]

        assert await asyncio.gather(*(talk(number) for number in range(50))) == [list(range(1, 11))] * 50


@pytest.mark.parametrize("prepared", ["1", "0"], ids=["prepared", "unprepared"])
async def test_25_first_turns_on_a_fresh_database_and_namespace_are_all_there(server, own_database, monkeypatch, prepared):
    monkeypatch.setenv("PGMEM_PREPARED_STATEMENTS", prepared)
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory, await connect(server.on(own_database)) as owner:

        async def first(number: int) -> pgmem.Turn:
            return await (await memory.session("new")).namespace("scratch").add_turn("user", f"{number}")

        turns = await asyncio.gather(*(first(number) for number in range(25)))

        assert sorted(turn.no for turn in turns) == list(range(1, 26))
        await check(owner, (await memory.session("new")).namespace("scratch"))


async def test_20_first_sessions_of_one_tenant_at_once_are_20_sessions(app_url, key):
    async with pgmem.open(app_url, tenant=key[:100]) as memory:
        made = await asyncio.gather(*(memory.session(f"{number}") for number in range(20)))

        assert len({session._found.session_id for session in made}) == 20
        assert len([session async for session in memory.sessions()]) == 20


async def test_20_first_sessions_of_one_key_at_once_are_one_session(app_url, key):
    async with pgmem.open(app_url) as memory:
        made = await asyncio.gather(*(memory.session(key, goal=f"{number}") for number in range(20)))

        assert len({session._found.session_id for session in made}) == 1
        assert len({session.goal for session in made}) == 1


async def test_two_memories_in_one_process_do_not_mix(app_url, server, own_database, key):
    async with pgmem.open(app_url) as here, pgmem.open(server.on(own_database, "pgmem_app")) as there:
        sessions = [await here.session(key), await there.session(key)]
        await asyncio.gather(*(session.add_turn("user", f"{at}") for at, session in enumerate(sessions) for _ in range(20)))

        for at, session in enumerate(sessions):
            assert {turn.content async for turn in session.turns()} == {f"{at}"}
            assert await session.verify() is None


async def test_two_erases_of_overlapping_namespaces_never_deadlock(memory, key, caplog):
    handles = [await memory.session(key) for _ in range(2)]
    names = ["a", "b", "c", "d"]

    async def erase(handle: pgmem.Session, order: list[str]) -> None:
        for _ in range(5):
            await asyncio.gather(*(handle.namespace(name).erase() for name in order))

    with caplog.at_level(logging.INFO, logger="pgmem"):
        await asyncio.gather(erase(handles[0], names), erase(handles[1], names[::-1]))

    assert "once more" not in caplog.text
    for name in names:
        assert len([branch async for branch in handles[0].namespace(name).branches()]) == 10


async def test_two_imports_with_shared_keys_in_opposite_order_end_without_a_deadlock(memory, key):
    one, other = await memory.session(key), await memory.session(key)
    keys = [f"k{number}" for number in range(200)]
    messages = [user(name) for name in keys]

    results = await asyncio.gather(
        one.add_turns(messages, idempotency_keys=keys),
        other.add_turns(messages[::-1], idempotency_keys=keys[::-1]),
        return_exceptions=True,
    )

    assert all(isinstance(result, list) for result in results)
    assert {turn.no for turn in results[0]} == {turn.no for turn in results[1]} == set(range(1, 201))


async def test_an_open_snapshot_of_an_auditor_blocks_no_append(app_url, server, database, key):
    count = "select count(*) as n from pgmem.turn_log where session = %s"
    async with (
        await psycopg.AsyncConnection.connect(server.on(database), row_factory=dict_row) as auditor,
        pgmem.open(app_url, policy=pgmem.Policy(threshold=8, keep_recent=2)) as memory,
    ):
        session = await memory.session(key)
        await session.add_turn("user", "before")
        await auditor.execute("set transaction isolation level repeatable read")
        before = await (await auditor.execute(count, (key,))).fetchone()

        async with asyncio.timeout(10):
            await session.add_turns([(user, assistant)[number % 2](f"{number}") for number in range(20)])
            await session.compact()
            await session.erase()

        assert await (await auditor.execute(count, (key,))).fetchone() == before == {"n": 1}


async def test_a_tree_whose_row_is_held_stops_no_other_tree_and_no_reader(app_url, server, database, key):
    async with pgmem.open(app_url) as memory, await connect(server.on(database)) as owner:
        session = await memory.session(key)
        await session.add_turn("user", "before")
        async with row_held(server.on(database), session):
            writing = asyncio.create_task(session.add_turn("user", "waits"))
            await until(lambda: _one_waits(owner), "the write waits")

            async with asyncio.timeout(10):
                assert (await session.namespace("notes").add_turn("user", "elsewhere")).no == 1
                assert len((await session.context()).messages) == 1
                assert await session.verify() is None
                assert len([turn async for turn in session.turns()]) == 1

        assert (await writing).no == 2


async def _one_waits(owner: psycopg.AsyncConnection) -> bool:
    return await waiting_for_locks(owner) == 1


async def test_a_server_with_fewer_connections_than_the_pool_is_shared(server, own_database):
    server.execute("alter role pgmem_app connection limit 2")
    try:
        async with pgmem.open(server.on(own_database, "pgmem_app"), pool_size=10) as memory:
            session = await memory.session("s")

            turns = await asyncio.gather(*(session.add_turn("user", f"{number}") for number in range(40)))

            assert sorted(turn.no for turn in turns) == list(range(1, 41))
            with pytest.raises(pgmem.DatabaseUnavailable, match="too many connections"):
                async with (
                    pgmem.open(server.on(own_database, "pgmem_app")),
                    pgmem.open(server.on(own_database, "pgmem_app")),
                ):
                    pass
            assert (await session.add_turn("user", "later")).no == 41
    finally:
        server.execute("alter role pgmem_app connection limit -1")
