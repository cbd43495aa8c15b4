"""What is stored stays as it is: for the application, for the owner, for whoever replicates."""

from __future__ import annotations

import psycopg
import pytest

import pgmem
from tests.support.talk import user

TABLES = ["sessions", "turns", "nodes", "verdicts", "branches", "policies", "stages"]
CHANGES = {
    "update": "update pgmem.{} set created_at = now()",
    "delete": "delete from pgmem.{}",
    "truncate": "truncate pgmem.{} cascade",
}


@pytest.fixture
async def filled(server, own_database):
    """A database with a row in every table."""
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        session = await memory.session("k")
        await session.add_turns([user("a"), user("b")])
        node = await session.compress(summary="s")
        await session.erase()
        async with await psycopg.AsyncConnection.connect(server.on(own_database, "pgmem_app"), autocommit=True) as app:
            named = (session._found.session_id, node.no)
            await app.execute(
                "insert into pgmem.verdicts (session_id, namespace, no, node, outcome, judge, chain, created_at)"
                " values (%s, 'main', 90, %s, 'pass', 'me', '', now())",
                named,
            )
            await app.execute(
                "insert into pgmem.policies (session_id, namespace, no, policy, chain, created_at)"
                " values (%s, 'main', 91, '{}', '', now())",
                named[:1],
            )
            await app.execute(
                "insert into pgmem.stages (session_id, flow, no, step, entered, state, created_at)"
                " values (%s, 'HotelFlow', 1, 'ExploreStep', '{}', '{}', now())",
                named[:1],
            )
    return own_database


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("who", ["pgmem_app", None, "replica"])
async def test_nobody_changes_what_is_stored(server, filled, who, table, change):
    user = None if who == "replica" else who
    async with await psycopg.AsyncConnection.connect(server.on(filled, user), autocommit=True) as connection:
        if who == "replica":
            await connection.execute("set session_replication_role = replica")
        refusal = psycopg.errors.InsufficientPrivilege if who == "pgmem_app" else psycopg.errors.RestrictViolation

        with pytest.raises(refusal):
            await connection.execute(CHANGES[change].format(table))


@pytest.mark.parametrize(
    "statement",
    [
        "delete from pgmem.trees",
        "truncate pgmem.trees cascade",
        "update pgmem.trees set last_no = last_no - 1",
        "update pgmem.trees set version = version - 1",
        "update pgmem.trees set branch = branch - 1",
        "update pgmem.trees set open_branch = open_branch - 1",
        "update pgmem.trees set namespace = 'other'",
    ],
)
async def test_a_tree_is_never_removed_and_its_counters_never_go_back(server, filled, statement):
    async with await psycopg.AsyncConnection.connect(server.on(filled), autocommit=True) as owner:
        with pytest.raises(psycopg.errors.RestrictViolation):
            await owner.execute(statement)


@pytest.mark.parametrize("column", ["session_id", "namespace"])
async def test_the_application_may_move_only_the_moving_columns_of_a_tree(server, filled, column):
    async with await psycopg.AsyncConnection.connect(server.on(filled, "pgmem_app"), autocommit=True) as app:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await app.execute(f"update pgmem.trees set {column} = {column}")


async def test_the_reader_reads_every_view_of_all_tenants_and_nothing_else(server, filled):
    async with await psycopg.AsyncConnection.connect(server.on(filled, "pgmem_reader"), autocommit=True) as reader:
        for view in ("turn_log", "node_log", "branch_log", "log"):
            found = await reader.execute(f"select count(*) from pgmem.{view}")
            assert (await found.fetchone())[0] > 0
        for table in (*TABLES, "trees"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await reader.execute(f"select * from pgmem.{table}")


async def test_the_views_say_where_every_fact_is(server, filled):
    async with await psycopg.AsyncConnection.connect(server.on(filled, "pgmem_reader"), autocommit=True) as reader:
        turns = await (await reader.execute("select no, status, node from pgmem.turn_log order by no")).fetchall()
        nodes = await (await reader.execute("select no, status, outcome from pgmem.node_log")).fetchall()
        branches = await (await reader.execute("select no, cause, active from pgmem.branch_log")).fetchall()
        facts = await (await reader.execute("select no, fact from pgmem.log order by no")).fetchall()

    assert turns == [(1, "erased", None), (2, "erased", None)]
    assert nodes == [(3, "abandoned", "pass")]
    assert branches == [(4, "erase", True)]
    assert facts == [(1, "turn"), (2, "turn"), (3, "node"), (4, "branch"), (90, "verdict"), (91, "policy")]


async def test_ten_thousand_operations_update_and_delete_nothing_but_trees(server, own_database):
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        session = await memory.session("k")
        for number in range(1000):
            for _ in range(9):
                await session.add_turn("user", f"{number}")
            await (session.compress(summary="s") if number % 10 else session.erase())
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as owner:
        await owner.execute("select pg_stat_clear_snapshot()")
        found = await owner.execute(
            "select relname, n_tup_ins, n_tup_upd, n_tup_del from pg_stat_user_tables where schemaname = 'pgmem' order by relname"
        )
        rows = {name: tuple(rest) for name, *rest in await found.fetchall()}

    assert rows["turns"][0] == 9000
    assert {name: rest[1:] for name, rest in rows.items() if name != "trees"} == {name: (0, 0) for name in rows if name != "trees"}
    assert rows["trees"][1] == 10_000
    assert rows["trees"][2] == 0


async def test_updates_of_a_tree_are_heap_only(server, own_database):
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        session = await memory.session("k")
        for number in range(500):
            await session.add_turn("user", f"{number}")
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as owner:
        found = await owner.execute("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'trees'")
        updates, hot = await found.fetchone()

    assert hot >= 0.9 * updates > 0
