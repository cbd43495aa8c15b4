"""The statements: each prepares against the schema, and reads no more than it shows."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import psycopg
import pytest

import pgmem
from pgmem.operations.place import MOST_HINTS, MOST_NODES, MOST_TURNS
from pgmem.store import queries
from pgmem.store.queries import Queries

NAMES = [field.name for field in fields(Queries)]


@pytest.mark.parametrize("name", NAMES)
async def test_every_statement_prepares_against_the_schema(server, database, name):
    async with await psycopg.AsyncConnection.connect(server.on(database, "pgmem_app"), autocommit=True) as connection:
        await connection.execute(f"prepare q as {getattr(queries.load('pgmem'), name).text}")


def test_every_file_is_a_statement_that_the_code_knows_and_says_what_it_does():
    files = sorted(Path(queries.__file__).parent.glob("*.sql"))

    assert [path.stem for path in files] == sorted(NAMES)
    for path in files:
        lines = path.read_text().splitlines()
        assert lines[0].startswith("-- ")
        assert not any(";" in line for line in lines if not line.lstrip().startswith("--"))


def test_another_schema_stands_in_every_statement():
    for name in NAMES:
        statement = getattr(queries.load("mem"), name).text
        assert "pgmem." not in statement
        assert name in ("check_server", "check_queue") or '"mem".' in statement or '"mem_queue".' in statement


async def rows_read(connection, statement, parameters) -> int:
    """Rows that all scans of tables and indexes read, the ones they threw away included."""
    await connection.execute("set plan_cache_mode = force_generic_plan")
    await connection.execute(f"prepare q as {statement.text}")
    values = ", ".join(psycopg.sql.Literal(parameters[name]).as_string(connection) for name in statement.names)
    found = await connection.execute(f"explain (analyze, format json) execute q({values})")
    plan = (await found.fetchone())[0]
    await connection.execute("deallocate q")
    plan = json.loads(plan) if isinstance(plan, str) else plan

    def total(node):
        own = 0
        if "Relation Name" in node:
            loops = node["Actual Loops"]
            own = (
                node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            ) * loops
        return own + sum(total(child) for child in node.get("Plans", ()))

    return round(total(plan[0]["Plan"]))


async def read_of_context(server, database, session, as_of=None) -> int:
    parameters = {
        "session_id": session._found.session_id,
        "namespace": session.name,
        "as_of": as_of,
        "most_nodes": MOST_NODES,
        "most_turns": MOST_TURNS,
        "most_hints": MOST_HINTS,
    }
    async with await psycopg.AsyncConnection.connect(server.on(database), autocommit=True) as connection:
        await connection.execute("analyze")
        return await rows_read(connection, queries.load("pgmem").read_snapshot, parameters)


@pytest.fixture
async def own_memory(server, own_database):
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        yield memory


async def talk(session, count):
    for start in range(0, count, 10_000):
        await session.add_turns(
            [
                {"role": "tool", "tool_call_id": "c", "content": str(number)} if number else {"role": "user", "content": "the task"}
                for number in range(start, min(count, start + 10_000))
            ]
        )


async def test_a_context_at_100_000_turns_reads_what_it_shows(server, own_database, own_memory):
    session = await own_memory.session("long")
    await talk(session, 100_000)
    await session.compress(summary="all", through=99_980)

    shown = len((await session.context()).messages)
    read = await read_of_context(server, own_database, session)
    read_then = await read_of_context(server, own_database, session, as_of=100_001)

    assert shown == 22
    assert read <= 2 * shown
    assert read_then <= 2 * shown + 10


async def test_a_context_after_an_erase_of_100_000_turns_reads_what_it_shows(server, own_database, own_memory):
    session = await own_memory.session("long")
    await session.add_turns([{"role": "user", "content": str(number)} for number in range(10_000)])
    for _ in range(9):
        await session.add_turns([{"role": "user", "content": str(number)} for number in range(10_000)])
    await session.erase()
    await session.add_turn("assistant", "fresh")

    assert await read_of_context(server, own_database, session) <= 10


@pytest.mark.parametrize("cumulative", [True, False])
async def test_a_context_at_a_path_of_10_000_nodes_reads_what_it_shows(server, own_database, own_memory, cumulative):
    session = await own_memory.session("deep")
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as owner:
        await grow_path(owner, session, 10_000, cumulative=cumulative)

    context = await session.context()
    read = await read_of_context(server, own_database, session)
    read_then = await read_of_context(server, own_database, session, as_of=context.no - 1)

    shown = 1 if cumulative else MOST_NODES
    assert len(context.nodes) == shown
    assert len(await session.path()) == 10_000
    assert read <= 2 * shown + 20
    assert read_then <= 2 * shown + 30


@pytest.fixture
async def many_small_trees(server, own_database):
    """20,000 trees of ten turns: what makes a planner believe that every tree is small."""
    server.execute(
        "insert into pgmem.sessions (tenant, key) select 'default', 's' || i from generate_series(1, 20000) i;"
        "insert into pgmem.trees (session_id, namespace, chain, last_no)"
        " select session_id, 'main', sha256('x'), 10 from pgmem.sessions;"
        "insert into pgmem.turns (session_id, namespace, no, branch, role, content, pinned, tokens, chain, created_at)"
        " select session_id, 'main', i, 0, 'user', 't', i = 1, 1, '', now() from pgmem.sessions, generate_series(1, 10) i;",
        own_database,
    )


async def test_a_long_path_among_many_small_trees_reads_what_it_shows(server, own_database, own_memory, many_small_trees):
    session = await own_memory.session("deep")
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as owner:
        await grow_path(owner, session, 10_000, cumulative=True)

    assert await read_of_context(server, own_database, session) <= 25
    assert await read_of_context(server, own_database, session, as_of=19_999) <= 35


async def test_pinned_turns_of_many_erased_lines_are_not_read(server, own_database, own_memory, many_small_trees):
    session = await own_memory.session("pins")
    for number in range(40):
        for pin in range(5):
            await session.add_turn("user", f"{number}/{pin}", pinned=True)
        await session.erase()
    await session.add_turn("user", "now", pinned=True)

    assert (await session.context()).messages == [{"role": "user", "content": "now"}]
    # of 200 pinned turns none; the few branches of this database are read by a scan
    assert await read_of_context(server, own_database, session) <= 12 + 2 * 40


async def test_a_status_filter_works_out_what_is_left_behind_once_a_tree(server, own_database, own_memory, many_small_trees):
    session = await own_memory.session("long")
    await talk(session, 20_000)
    await session.erase()
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as connection:
        await connection.execute("analyze")
        one = await connection.execute(
            "explain (analyze, format json) select count(*) from pgmem.turn_log where session = 'long' and status = 'erased'"
        )
        (plan,) = (await one.fetchone())[0]
        everything = await connection.execute(
            "explain (analyze, format json) select count(*) from pgmem.turn_log where status = 'erased'"
        )
        (whole,) = (await everything.fetchone())[0]

    assert calls_of_function(plan["Plan"]) == 1
    assert calls_of_function(whole["Plan"]) == 20_001


def calls_of_function(node):
    own = node["Actual Loops"] if node.get("Function Name") == "left_behind" else 0
    return own + sum(calls_of_function(child) for child in node.get("Plans", ()))


async def grow_path(owner, session, count, *, cumulative):
    """A path of that many nodes, one turn each, put in by hand: 20,000 statements would take minutes."""
    values = {"id": session._found.session_id, "count": count, "cumulative": cumulative}
    await owner.execute(
        "insert into pgmem.turns (session_id, namespace, no, branch, role, content, pinned, tokens, chain, created_at)"
        " select %(id)s, 'main', 2 * i - 1, 0, case when i = 1 then 'user' else 'assistant' end, 'turn ' || i, false, 1, '', now()"
        " from generate_series(1, %(count)s) i",
        values,
    )
    await owner.execute(
        "insert into pgmem.nodes (session_id, namespace, no, branch, parent, first_no, last_no, kind, strategy, summary,"
        " cumulative, tokens, source_tokens, chain, created_at)"
        " select %(id)s, 'main', 2 * i, 0, nullif(2 * i - 2, 0), 2 * i - 1, 2 * i - 1, 'topic', 'given', 'summary ' || i,"
        " %(cumulative)s, 1, 1, '', now() from generate_series(1, %(count)s) i",
        values,
    )
    await owner.execute(
        "update pgmem.trees set last_no = 2 * %(count)s, head = 2 * %(count)s, boundary = 2 * %(count)s - 1, version = %(count)s"
        " where session_id = %(id)s",
        values,
    )


async def test_ranges_left_behind_by_revisions_are_walked_not_scanned(server, own_database, own_memory):
    session = await own_memory.session("revised")
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as owner:
        # 2,000 attempts of three turns, each left behind, then a summary and two live turns
        await owner.execute(
            "insert into pgmem.turns (session_id, namespace, no, branch, role, content, pinned, tokens, chain, created_at)"
            " select %(id)s, 'main', i, 0, 'user', 'turn ' || i, false, 1, '', now()"
            " from generate_series(1, 8003) i where i %% 4 <> 1",
            {"id": session._found.session_id},
        )
        await owner.execute(
            "insert into pgmem.branches (session_id, namespace, no, cause, left_from, left_to, chain, created_at)"
            " select %(id)s, 'main', 4 * i + 1, 'revise', 4 * i - 2, 4 * i, '', now() from generate_series(1, 2000) i",
            {"id": session._found.session_id},
        )
        await owner.execute(
            "update pgmem.trees set last_no = 8003, branch = 8001, open_branch = 8001, boundary = 8001 where session_id = %(id)s",
            {"id": session._found.session_id},
        )

    assert [turn.content async for turn in session.turns(status="active")] == ["turn 8002", "turn 8003"]
    assert len((await session.context()).messages) == 2
    assert await read_of_context(server, own_database, session) <= 12 + MOST_NODES


async def test_the_view_of_turns_filters_100_000_without_a_scan_of_branches_a_turn(server, own_database, own_memory):
    session = await own_memory.session("long")
    await talk(session, 100_000)
    await session.erase()
    async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as connection:
        await connection.execute("analyze")
        found = await connection.execute(
            "explain (analyze, format json) select count(*) from pgmem.turn_log where status = 'erased'"
        )
        plan = (await found.fetchone())[0]

    assert calls_of_function(plan[0]["Plan"]) == 1
