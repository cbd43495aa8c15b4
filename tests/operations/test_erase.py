"""Erase: the model sees nothing from before, and every turn stays."""

from __future__ import annotations

import asyncio

import pytest

import pgmem
from tests.support.talk import assistant, calls, fault_of_provider, statuses, text_of, user

TALK = [user("sentinel one"), assistant("sentinel two"), user("sentinel three")]


async def test_erase_empties_the_context_and_keeps_every_turn(session):
    await session.add_turns(TALK)
    await session.compress(summary="sentinel summary", through=2)

    branch = await session.erase(actor="ada")

    assert (await session.context("sys")).messages == [{"role": "system", "content": "sys"}]
    assert (branch.cause, branch.base, branch.left_from, branch.left_to, branch.actor) == ("erase", None, 1, 4, "ada")
    assert await statuses(session) == {1: "erased", 2: "erased", 3: "erased"}
    assert [turn.message async for turn in session.turns()] == TALK


async def test_keep_summary_keeps_the_memory_of_the_head(session):
    await session.add_turns(TALK)
    node = await session.compress(summary="the memory", through=2)

    branch = await session.erase(keep_summary=True)

    assert branch.base == node.no
    assert (await session.context()).messages == [{"role": "system", "content": "Conversation memory for this step:\nthe memory"}]
    assert [made.no for made in await session.path()] == [node.no]


async def test_a_summary_after_an_erase_covers_only_what_came_after_it(session):
    await session.add_turns(TALK)
    await session.erase()
    await session.add_turns([user("new one"), assistant("new two")])

    node = await session.compress(strategy="tool_clear")

    assert (node.first_no, node.last_no, node.parent) == (5, 6, None)
    assert "sentinel" not in node.summary


async def test_a_summary_kept_by_erase_is_what_the_next_one_hangs_from(session):
    await session.add_turns(TALK)
    kept = await session.compress(summary="the memory")
    await session.erase(keep_summary=True)
    await session.add_turn("user", "new")

    node = await session.compress(summary="next")

    assert node.parent == kept.no
    assert (await session.context()).messages[0]["content"].endswith("the memory\n\nnext")


@pytest.mark.parametrize("keep_summary", [False, True])
async def test_erase_on_nothing_and_twice_shows_nothing(session, keep_summary):
    first = await session.erase(keep_summary=keep_summary)
    second = await session.erase(keep_summary=keep_summary)

    assert (first.no, first.left_to, second.no) == (1, None, 2)
    assert (await session.context()).messages == []
    assert await session.verify() is None


async def test_erase_of_a_namespace_that_was_never_used_is_a_marker_for_the_audit(session):
    namespace = session.namespace("scratch")

    branch = await namespace.erase(actor="ada")

    assert [made async for made in namespace.branches()] == [branch]


async def test_erase_of_one_namespace_leaves_the_others_as_they_are(session):
    await session.add_turns(TALK)
    await session.namespace("scratch").add_turn("user", "other")
    before = await session.context()

    await session.namespace("scratch").erase()

    assert (await session.context()).messages == before.messages


async def test_a_late_result_of_an_erased_call_is_a_note_on_the_new_line(session):
    await session.add_turns([user("q"), calls("c1")])
    await session.erase()

    await session.add_turn("tool", "late", tool_call_id="c1")

    context = await session.context()
    assert fault_of_provider(context.messages) is None
    assert "late" in text_of(context)


async def test_a_late_writer_is_refused(memory, key):
    agent, other = await memory.session(key), await memory.session(key)
    await other.erase()

    with pytest.raises(pgmem.BranchAbandoned):
        await agent.add_turn("assistant", "late")


async def test_erases_of_two_namespaces_at_once_do_not_wait_for_each_other(memory, key):
    sessions = [await memory.session(key) for _ in range(8)]

    branches = await asyncio.gather(*(handle.namespace(f"n{number % 2}").erase() for number, handle in enumerate(sessions)))

    assert sorted(branch.no for branch in branches) == [1, 1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("arguments", [{"actor": ""}, {"actor": "a\0"}, {"actor": "a" * 257}, {"actor": 5}, {"keep_summary": 1}])
async def test_erase_refuses_what_cannot_be_kept(session, arguments):
    with pytest.raises(pgmem.InvalidArgument):
        await session.erase(**arguments)

    assert [made async for made in session.branches()] == []
