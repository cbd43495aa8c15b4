"""Which step a flow is in, when its hooks run, and what goes along."""

from __future__ import annotations

import logging

import pytest

import pgmem
from tests.flow.support import BEGUN, calls, counting, erasing, flow_of, saved, say, step, texts


async def test_a_new_session_enters_the_first_step_and_one_that_goes_on_restores_the_step_it_was_in(app_url, session, key):
    a, b = counting("A"), counting("B")
    flow = await flow_of(a, b)(session).start()
    async with flow.exchange("hello") as x:
        await x.go(b, state={"n": 1})

    async with pgmem.open(app_url) as memory:
        resumed = await flow_of(a, b)(await memory.session(key)).start()

        assert (type(resumed.step), resumed.state) == (b, {"n": 1})
    assert (a.ran, b.ran) == (["enter", "exit"], ["enter", "restore"])


async def test_a_flow_that_was_started_and_never_used_is_not_entered_again(session, key):
    a = counting("A")

    await flow_of(a)(session).start()
    await flow_of(a)(session).start()

    assert a.ran == ["enter", "restore"]


async def test_hooks_run_on_every_real_activation(session):
    a, b = counting("A"), counting("B")
    flow = await flow_of(a, b)(session).start()

    for target in (b, a, b):
        async with flow.exchange("go") as x:
            await x.go(target)

    assert (a.ran, b.ran) == (["enter", "exit", "enter", "exit"], ["enter", "exit", "enter"])


async def test_the_step_is_the_new_one_for_on_enter_and_the_state_is_there(session):
    seen = []

    async def on_enter(self):
        seen.append((type(self.flow.step).__name__, dict(self.state)))

    async def on_exit(self):
        seen.append((type(self.flow.step).__name__, dict(self.state)))

    a, b = step("A", on_exit=on_exit), step("B", on_enter=on_enter)
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("go") as x:
        await x.go(b, state={"found": 3})

    assert seen == [("A", {}), ("B", {"found": 3})]


async def test_going_to_itself_staying_and_a_direct_answer_run_no_hook_and_add_no_row(session, reader, caplog):
    caplog.set_level(logging.DEBUG, "pgmem")
    a = counting("A")
    flow = await flow_of(a)(session).start()
    before = await saved(reader, session)

    async with flow.exchange("hello") as x:
        await x.go(a)
        await x.reply(None, tool_calls=calls("c1"))
        await x.stay()
        await x.direct("done")
    history = texts(await say(flow, "next"))

    assert a.ran == ["enter"]
    assert "already in A" in caplog.text
    assert await saved(reader, session) == before == BEGUN
    assert history == ["You are in A.", "hello", None, "input validated", "done", "next"]


async def test_reentering_runs_both_hooks_and_is_told(session, reader):
    a = counting("A")
    flow = await flow_of(a)(session).start()

    async with flow.exchange("again") as x:
        await x.go(a, reenter=True)

    assert a.ran == ["enter", "exit", "enter"]
    assert await saved(reader, session) == [*BEGUN, (3, "A", ["A"], {})]


async def test_what_was_compared_is_there_until_the_step_is_left_and_entered_again(session):
    compare, other = erasing("Compare"), step("Other")
    flow = await flow_of(compare, other)(session).start()
    for number in range(3):
        async with flow.exchange(f"compare {number}") as x:
            await x.go(compare)
            await x.reply(f"comparison {number}")
    three = texts(await say(flow, "and?"))

    async with flow.exchange("leave") as x:
        await x.go(other)
    async with flow.exchange("return") as x:
        await x.go(compare)
        none = texts(await x.request())

    assert [text for text in three if "comparison" in text] == ["comparison 0", "comparison 1", "comparison 2"]
    assert none == ["You are in Compare."]


@pytest.mark.parametrize("arguments", [{"message": 5}, {"message": ["a"]}, {"reenter": "yes"}, {"reenter": 1}, {"state": []}])
async def test_a_wrong_argument_of_go_is_refused_before_anything_has_moved(session, arguments):
    b = erasing("B")
    flow = await flow_of(step("A"), b)(session).start()
    await session.namespace("B").add_turn("user", "kept")

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.InvalidArgument):
            await x.go(b, **{"state": {"n": 1}} | arguments)

    assert (type(flow.step).__name__, flow.state) == ("A", {})
    assert [turn.status async for turn in session.namespace("B").turns()] == ["active"]


@pytest.mark.parametrize("hook", ["on_enter", "on_exit"])
async def test_going_on_from_inside_a_hook_is_refused(session, hook):
    async def go_on(self):
        await self.flow._exchange.go(self.flow.steps[2])

    first, second = (step("A", on_exit=go_on), step("B")) if hook == "on_exit" else (step("A"), step("B", on_enter=go_on))
    flow = await flow_of(first, second, step("C"))(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.FlowNotReady, match="between two steps"):
            await x.go(second)
        await x.reply("stayed")

    assert type(flow.step).__name__ == "A"


async def test_a_flow_and_a_step_say_what_they_are(session):
    flow = flow_of(step("A", "a-space"))(session)
    before = repr(flow)
    await flow.start()

    assert (before, repr(flow), repr(flow.step)) == (
        "<TestFlow not started>",
        "<TestFlow in A>",
        "<step A, namespace 'a-space'>",
    )


async def test_a_message_can_be_forwarded(session):
    a, b = step("A"), erasing("B")
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("show me") as x:
        await x.go(b, message="show me", state={"hotels": 3})
        assert texts(await x.request()) == ["You are in B.", "show me"]


@pytest.mark.parametrize(
    ("target", "given", "warned"),
    [
        ("erasing", {"message": "show them"}, True),
        ("erasing", {"message": "show them", "state": {}}, True),
        ("erasing", {"message": "show them", "state": {"hotels": []}}, False),
        ("erasing", {}, False),
        ("keeping", {"message": "show them"}, False),
    ],
)
async def test_carrying_data_by_a_message_into_a_step_that_erases_is_warned_of(session, caplog, target, given, warned):
    steps = {"erasing": erasing("Erasing"), "keeping": step("Keeping")}
    flow = await flow_of(step("A"), *steps.values())(session).start()

    async with flow.exchange("hello") as x:
        await x.go(steps[target], **given)

    assert ("give go(..., state={...})" in caplog.text) is warned


async def test_with_something_in_the_state_already_a_forwarded_message_is_no_mistake(session, caplog):
    flow = await flow_of(step("A"), erasing("Erasing"))(session).start()

    async with flow.exchange("hello") as x:
        x.state["hotels"] = ["Miramar"]
        await x.go(flow.steps[1], message="compare them")

    assert "give go(" not in caplog.text


async def test_the_steps_on_the_way_are_told(session, reader):
    a, b, c = step("A"), step("B"), step("C")
    flow = await flow_of(a, b, c)(session).start()

    async with flow.exchange("hello") as x:
        await x.go(b)
        await x.go(c)
        await x.go(a)

    assert (await saved(reader, session))[2:] == [(3, "A", ["B", "C", "A"], {})]


@pytest.mark.parametrize("hook", ["on_exit", "on_enter"])
async def test_a_hook_that_raises_leaves_the_flow_where_it_was(session, hook):
    async def broken(self):
        self.state["half"] = True
        raise ValueError(hook)

    a, b = step("A", **({hook: broken} if hook == "on_exit" else {})), step("B", **({hook: broken} if hook == "on_enter" else {}))
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(ValueError, match=hook):
            await x.go(b, state={"n": 1})
        after = (type(flow.step), dict(flow.state))
        await x.reply("I could not")

    assert after == (a, {})
    assert texts(await say(flow, "next"))[1:] == ["go", "I could not", "next"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("Present", "got its name: give the class"),
        (step("Present"), "another class of that name"),
        ("Presnt", "did you mean 'Present'"),
        (step("Presnt"), "put it into `steps`"),
        (None, "go to A, Present"),
        (7, "no step"),
    ],
)
async def test_going_to_what_is_no_step_names_the_nearest(session, target, says):
    flow = await flow_of(step("A"), step("Present"))(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.InvalidArgument, match=says):
            await x.go(target)
