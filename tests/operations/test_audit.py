"""The audit: everything that was ever stored, in order, with where it is now."""

from __future__ import annotations

import pytest

import pgmem
from tests.support.talk import assistant, user


async def test_turns_lists_all_in_order_with_status_and_node(session):
    await session.add_turns([user("a"), assistant("b")])
    await session.erase()
    await session.add_turns([user("c"), assistant("d")])
    node = await session.compress(summary="s")
    await session.add_turn("user", "e")

    found = [(turn.no, turn.status, turn.node) async for turn in session.turns()]

    assert found == [
        (1, "erased", None),
        (2, "erased", None),
        (4, "compressed", node.no),
        (5, "compressed", node.no),
        (7, "active", None),
    ]


async def test_turns_pages_itself_and_starts_after_a_position(session):
    await session.add_turns([user(str(number)) for number in range(1234)])

    found = [turn.content async for turn in session.turns(after=34)]

    assert found == [str(number) for number in range(34, 1234)]


@pytest.mark.parametrize("status", ["erased", "active", "compressed", "abandoned"])
async def test_turns_can_be_of_one_status_only(session, status):
    await session.add_turns([user("a")])
    await session.erase()
    await session.add_turns([user("b")])
    await session.compress(summary="s")
    await session.add_turn("user", "c")

    found = [turn.content async for turn in session.turns(status=status)]

    assert found == {"erased": ["a"], "compressed": ["b"], "active": ["c"], "abandoned": []}[status]


@pytest.mark.parametrize("arguments", [{"after": -1}, {"after": True}, {"after": "1"}, {"status": "gone"}, {"status": 1}])
async def test_turns_refuses_what_it_does_not_know_at_the_call(session, arguments):
    with pytest.raises(pgmem.InvalidArgument):
        session.turns(**arguments)


async def test_path_gives_the_active_path_root_first_and_nodes_gives_all(session):
    made = []
    for number in range(3):
        await session.add_turn("user", str(number))
        made.append(await session.compress(summary=f"s{number}", label=f"l{number}"))
    path = await session.path()
    await session.erase()

    assert path == made
    assert await session.path() == []
    assert [(node.no, node.status) async for node in session.nodes()] == [(node.no, "abandoned") for node in made]


async def test_verdicts_gives_all_that_judges_said_as_maintain_gave_it_with_the_branch_that_a_fail_began(session):
    async def fails(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="no price", missing=("299 EUR", "é"), judge="me", model="m")

    await session.add_turns([user("a"), assistant("b")])
    bad = await session.compress(summary="s")
    said = [await session.maintain(bad, judge=fails), await session.maintain(bad, judge=fails)]
    await session.compress(summary="t")
    said.append(await session.maintain(judge="coverage"))

    found = [verdict async for verdict in session.verdicts()]

    assert found == said
    assert [(verdict.outcome, verdict.missing, verdict.reopened) for verdict in found] == [
        ("fail", ("299 EUR", "é"), said[0].no + 1),
        ("fail", ("299 EUR", "é"), None),
        ("pass", (), None),
    ]


async def test_a_node_shows_its_range_strategy_and_sizes(session):
    await session.add_turns([user("x" * 40), assistant("y" * 40)])

    node = await session.compress(summary="s" * 8)

    assert (node.first_no, node.last_no, node.strategy, node.tokens, node.source_tokens) == (1, 2, "given", 2, 20)
    assert (node.model, node.prompt_version, node.status) == (None, None, "pending")


async def test_verify_finds_nothing_in_an_untouched_tree(session):
    assert await session.verify() is None
    await session.add_turns([user("é\0\ud83d"), assistant("b"), {"role": "user", "content": "c", "x": [1.50, 10**30]}])
    await session.add_turn("user", "k", idempotency_key="k", pinned=True)
    await session.compress(summary="s", label="l", cumulative=True)
    await session.erase(keep_summary=True, actor="ada")
    await session.add_turns([user(str(number)) for number in range(1100)])
    await session.compact()
    await session.erase()

    assert await session.verify() is None


TAMPERINGS = {
    "an edited body": ("update pgmem.turns set content = 'forged' where session_id = %(id)s and no = 2", 2),
    "an edited time": ("update pgmem.turns set created_at = created_at + '1s' where session_id = %(id)s and no = 2", 2),
    "a removed turn": ("delete from pgmem.turns where session_id = %(id)s and no = 2", 2),
    "a removed last fact": ("delete from pgmem.turns where session_id = %(id)s and no = 6", 6),
    "an edited summary": ("update pgmem.nodes set summary = 'forged' where session_id = %(id)s", 4),
    "an undone erase": ("update pgmem.branches set left_to = null where session_id = %(id)s", 5),
    "a swap": (
        "update pgmem.turns set no = 4000 + no where session_id = %(id)s and no in (1, 2);"
        "update pgmem.turns set no = 4003 - no where session_id = %(id)s and no > 3000",
        1,
    ),
    "a turn on another branch": ("update pgmem.turns set branch = 1 where session_id = %(id)s and no = 2", 2),
    "a node on another branch": ("update pgmem.nodes set branch = 1 where session_id = %(id)s", 4),
    "a forged turn past the end": (
        "insert into pgmem.turns (session_id, namespace, no, branch, role, content, pinned, tokens, chain, created_at)"
        " values (%(id)s, 'main', 5000, 0, 'user', 'forged', false, 1, '', now())",
        5000,
    ),
    "a head that was moved": ("update pgmem.trees set head = 4, boundary = 2 where session_id = %(id)s", 0),
    "an erase that was undone on the tree": ("update pgmem.trees set boundary = 0 where session_id = %(id)s", 0),
    "a chain that was set back": ("update pgmem.trees set chain = sha256('x') where session_id = %(id)s", 6),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
async def test_verify_names_the_first_fact_that_is_not_as_it_was_stored(server, own_database, tampering):
    import psycopg

    statements, first_bad = TAMPERINGS[tampering]
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        session = await memory.session("k")
        await session.add_turns([user("a"), assistant("b"), user("c")])
        await session.compress(summary="s", through=2)
        await session.erase()
        await session.add_turn("user", "d")
        async with await psycopg.AsyncConnection.connect(server.on(own_database), autocommit=True) as owner:
            for table in ("turns", "nodes", "branches", "trees"):
                await owner.execute(f"alter table pgmem.{table} disable trigger all")
            for statement in statements.split(";"):
                await owner.execute(statement, {"id": session._found.session_id})

        assert await session.verify() == first_bad
