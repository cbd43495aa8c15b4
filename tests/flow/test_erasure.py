"""Steps that start clean: what the model sees after an erase, what stays in the table, and who shares a namespace."""

from __future__ import annotations

import pytest

import pgmem
from pgmem.testing import summary
from tests.flow.support import calls, erasing, flow_of, say, step, talk, texts

explore = step("Explore", "hotel-explore")
present = erasing("Present")
compare = step("Compare", "hotel-compare")


async def started(session, *steps, **config):
    return await flow_of(*steps, **config)(session).start()


async def turns_of(session, namespace):
    return [turn async for turn in session.namespace(namespace).turns()]


async def test_after_an_erase_the_request_holds_nothing_from_before(session):
    flow = await started(session, compare)
    await talk(flow, 3)

    await flow.step.erase_memory()

    assert texts(await say(flow, "fresh")) == ["You are in Compare.", "fresh"]


async def test_an_erase_deletes_nothing_and_the_audit_says_who_and_when(session, owner):
    flow = await started(session, compare)
    await talk(flow, 3)
    read = "select no, content, chain from pgmem.turns where session_id = %s and namespace = 'hotel-compare' order by no"
    before = await (await owner.execute(read, (session._found.session_id,))).fetchall()

    await flow.step.erase_memory()

    after = await (await owner.execute(read, (session._found.session_id,))).fetchall()
    (branch,) = [branch async for branch in session.namespace("hotel-compare").branches()]
    assert (len(before), after) == (6, before)
    assert {turn.status for turn in await turns_of(session, "hotel-compare")} == {"erased"}
    assert (branch.cause, branch.actor, branch.created_at is not None) == ("erase", "TestFlow/Compare", True)
    assert await session.namespace("hotel-compare").verify() is None


async def test_who_asked_can_be_named(session):
    flow = await started(session, compare)

    await flow.step.erase_memory(actor="ada")

    assert [branch.actor async for branch in session.namespace("hotel-compare").branches()] == ["ada"]


async def test_an_erase_tells_how_many_turns_it_left_behind_and_changes_no_context_that_was_read(session):
    flow = await started(session, compare)
    empty = await flow.step.erase_memory()
    await talk(flow, 3)
    read = await session.namespace("hotel-compare").context("x")
    shown = list(read.messages)

    first = await flow.step.erase_memory()
    again = await flow.step.erase_memory()
    await say(flow, "one more")
    then = await flow.step.erase_memory()

    assert (empty, first, again, then) == (0, 6, 0, 1)
    assert read.messages == shown


async def test_turns_that_a_revise_had_left_are_not_counted_again(session):
    flow = await started(session, compare)
    await talk(flow, 3)
    await session.namespace("hotel-compare").revise(after_turn=2)

    assert await flow.step.erase_memory() == 2


async def test_a_revise_counts_too(session):
    flow = await started(session, compare)
    await talk(flow, 3)
    branch = await session.namespace("hotel-compare").revise(after_turn=2)

    assert await session.namespace("hotel-compare").count_left(branch) == 4
    assert await session.namespace("hotel-compare").count_left(branch.no) == 4
    assert await session.namespace("hotel-compare").count_left(1) == 0


@pytest.mark.parametrize("way_in", [explore, compare])
async def test_an_erase_on_entry_works_whoever_is_the_step_before(session, way_in):
    flow = await started(session, explore, compare, present)
    async with flow.exchange("hello") as x:
        await x.go(present)
        await x.reply("list-1-sentinel")
        await x.go(way_in)
    async with flow.exchange("show them again") as x:
        await x.go(present)
        request = await x.request()

    assert texts(request) == ["You are in Present."]


async def test_the_default_namespace_is_the_classs_name_and_private(session):
    flow = await started(session, explore, present)
    await talk(flow, 2)
    before = await session.namespace("hotel-explore").context("prompt")
    async with flow.exchange("go") as x:
        await x.go(present)
        await x.reply("in present")
        await x.go(explore)
        await x.go(present)
        await x.go(explore)

    after = await session.namespace("hotel-explore").context("prompt")
    assert after.messages[: len(before.messages)] == before.messages
    assert await session.namespaces() == ["Present", "hotel-explore", "main"]


class Inherited(compare):
    """Has its parent's namespace, as Python has it."""


class Child(present):
    """Its parent names none, so it has its own name."""


async def test_a_subclass_shares_the_namespace_that_its_parent_names_and_no_other(session):
    flow = await started(session, compare, Inherited, present, Child)
    async with flow.exchange("hello") as x:
        await x.go(Child)
        await x.reply("in child")

    assert [turn.content for turn in await turns_of(session, "Child")] == ["in child"]
    with pytest.raises(pgmem.InvalidArgument, match="Inherited"):
        await flow._of(compare).erase_memory()


async def test_erasing_a_namespace_that_others_share_is_an_error_that_lists_them(session):
    other, third = step("Other", "hotel-compare"), step("Third", "hotel-compare")
    flow = await started(session, compare, other, third, explore)
    await talk(flow, 2)

    with pytest.raises(pgmem.InvalidArgument, match=r"shares the namespace 'hotel-compare' with Other, Third") as caught:
        await flow.step.erase_memory()

    assert "erase_memory(shared=True)" in str(caught.value)
    assert len(await say(flow, "still here")) == 1 + 4 + 1


async def test_with_shared_all_of_its_steps_are_clean(session):
    other = step("Other", "hotel-compare")
    flow = await started(session, compare, other)
    await talk(flow, 2)

    assert await flow.step.erase_memory(shared=True) == 4

    async with flow.exchange("hello") as x:
        await x.go(other)
        assert texts(await x.request()) == ["You are in Other.", "hello"]


@pytest.mark.parametrize("shared", [1, "yes", None])
async def test_shared_is_true_or_false(session, shared):
    flow = await started(session, compare, step("Other", "hotel-compare"))

    with pytest.raises(pgmem.InvalidArgument, match="shared is"):
        await flow.step.erase_memory(shared=shared)


@pytest.mark.parametrize("keep", [False, True])
async def test_an_erase_takes_the_summary_along_unless_it_is_kept(session, llm, keep):
    llm.answers = [summary("summary-sentinel")]
    flow = await started(session, explore, llm=llm, enable=("hotel-explore",), min_messages=8)
    await talk(flow, 4)

    await flow.step.erase_memory(keep_summary=keep)

    request = await say(flow, "fresh")
    assert ("summary-sentinel" in str(request)) is keep
    assert texts(request)[-1] == "fresh"
    assert len(request) == 2 + keep


async def test_after_an_erase_a_summary_covers_only_what_came_after(session, llm):
    flow = await started(session, explore, llm=llm, enable=("hotel-explore",), min_messages=8)
    await talk(flow, 3)
    await flow.step.erase_memory()

    await talk(flow, 4, start=10)

    (asked,) = llm.requests
    assert "question 10" in asked.prompt
    assert "question 1 " not in asked.prompt.replace("\n", " ")
    assert "answer 3" not in asked.prompt


async def test_an_erase_keeps_the_state_which_stands_in_every_prompt(session):
    telling = erasing("Telling")
    telling.prompt = lambda self, state: f"hotels: {state.get('hotels')}"
    flow = await started(session, explore, telling)

    async with flow.exchange("hello") as x:
        await x.go(telling, state={"hotels": ["Miramar"]})
        first = await x.request()
        await flow.step.erase_memory()
        second = await x.request()

    assert texts(first) == texts(second) == ["hotels: ['Miramar']"]
    assert flow.state == {"hotels": ["Miramar"]}


async def test_the_old_list_never_leaks_into_the_new_presentation_nor_into_a_summary(session, llm):
    flow = await started(session, explore, present, llm=llm, enable=("hotel-explore",), min_messages=8)
    seen = []
    for visit in (1, 2, 3):
        await talk(flow, 3, start=3 * visit)
        async with flow.exchange(f"search {visit}") as x:
            await x.go(present, state={"list": f"list-{visit}"})
            seen.append(await x.request())
            await x.reply(f"list-{visit}-sentinel")
            await x.reply(None, tool_calls=calls(f"call-{visit}"))
            await x.tool_result(f"call-{visit}", f"result-{visit}-sentinel")
            await x.go(explore)

    assert len(seen) == 3
    assert "sentinel" not in str(seen)
    assert len(llm.requests) >= 2
    assert all("question" in request.prompt and "sentinel" not in request.prompt for request in llm.requests)


async def test_an_erase_in_the_middle_of_an_exchange_does_not_refuse_its_own_reply(session):
    flow = await started(session, compare)
    await talk(flow, 2)

    async with flow.exchange("start over") as x:
        await x.request()
        await flow.step.erase_memory()
        await x.reply("gladly")

    assert texts(await say(flow, "next")) == ["You are in Compare.", "gladly", "next"]


async def test_a_reply_worked_out_before_somebody_elses_erase_is_refused_and_the_next_exchange_goes_on(app_url, key, session):
    flow = await started(session, compare)
    await talk(flow, 2)

    async with flow.exchange("what was the price?") as x:
        await x.request()
        async with pgmem.open(app_url) as memory:
            await (await memory.session(key)).namespace("hotel-compare").erase()
        with pytest.raises(pgmem.BranchAbandoned):
            await x.reply("an answer from what is gone")

    assert texts(await say(flow, "hello again")) == ["You are in Compare.", "hello again"]
