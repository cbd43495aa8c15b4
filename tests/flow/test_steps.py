"""Which step a flow is in, when its hooks run, how an exchange ends, and what is saved."""

from __future__ import annotations

import asyncio
import json
import logging

import psycopg
import pytest
from psycopg.rows import dict_row

import pgmem
from tests.flow.support import calls, erasing, flow_of, say, step, talk, texts
from tests.support.wire import wire


def counting(name, namespace=None, **methods):
    """A step that tells which of its hooks ran, in the class's own list."""
    ran = []

    async def on_enter(self):
        ran.append("enter")

    async def on_exit(self):
        ran.append("exit")

    async def on_restore(self):
        ran.append("restore")

    made = step(name, namespace, on_enter=on_enter, on_exit=on_exit, on_restore=on_restore, **methods)
    made.ran = ran
    return made


BEGUN = [(1, "A", [], {}), (2, "A", ["A"], {})]
"""What a start in A leaves: the claim, and the step that was entered."""


async def stages(owner, session):
    read = "select no, step, entered, state from pgmem.stage_log where session_id = %s order by flow, no"
    return [tuple(row.values()) for row in await (await owner.execute(read, (session._found.session_id,))).fetchall()]


@pytest.fixture
async def reader(server, database):
    async with await psycopg.AsyncConnection.connect(
        server.on(database, "pgmem_reader"), autocommit=True, row_factory=dict_row
    ) as connection:
        yield connection


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
    before = await stages(reader, session)

    async with flow.exchange("hello") as x:
        await x.go(a)
        await x.reply(None, tool_calls=calls("c1"))
        await x.stay()
        await x.direct("done")
    history = texts(await say(flow, "next"))

    assert a.ran == ["enter"]
    assert "already in A" in caplog.text
    assert await stages(reader, session) == before == BEGUN
    assert history == ["You are in A.", "hello", None, "input validated", "done", "next"]


async def test_reentering_runs_both_hooks_and_is_told(session, reader):
    a = counting("A")
    flow = await flow_of(a)(session).start()

    async with flow.exchange("again") as x:
        await x.go(a, reenter=True)

    assert a.ran == ["enter", "exit", "enter"]
    assert await stages(reader, session) == [*BEGUN, (3, "A", ["A"], {})]


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


async def test_stay_answers_the_open_call_and_the_same_exchange_goes_on(session):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("book it") as x:
        await x.request()
        await x.reply(None, tool_calls=calls("c1"))
        await x.stay("the date is missing")
        request = await x.request()
        going_on = not x.answered

    assert request[-1] == {"role": "tool", "tool_call_id": "c1", "content": "the date is missing"}
    assert going_on


async def test_stay_says_by_default_that_the_input_is_taken(session):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("book it") as x:
        await x.reply(None, tool_calls=calls("c1"))
        await x.stay()

        assert (await x.request())[-1]["content"] == "input validated"


async def test_stay_without_an_open_call_is_an_error_and_so_is_one_of_several(session):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("book it") as x:
        with pytest.raises(pgmem.FlowNotReady, match="none is open"):
            await x.stay("what?")
        await x.reply(None, tool_calls=calls("c1", "c2"))
        with pytest.raises(pgmem.FlowNotReady, match="open are 'c1', 'c2': name one"):
            await x.stay("which?")
        await x.stay("the second", call_id="c2")
        await x.stay("the first")

        assert [message["content"] for message in (await x.request())[-2:]] == ["the first", "the second"]


async def test_a_direct_answer_is_word_for_word_and_what_is_open_at_the_end_is_answered(session):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("price?") as x:
        await x.reply(None, tool_calls=calls("c1", "c2", "c3"))
        turn = await x.direct("99.50 EUR, breakfast  included\n")
        answered = x.answered
        await x.tool_result("c2", "found by the next handler")
        await x.go(b)
        await x.reply(None, tool_calls=calls("c4"))
    history = (await session.namespace("A").context()).messages
    elsewhere = (await session.namespace("B").context()).messages

    assert (turn.role, turn.content, answered) == ("assistant", "99.50 EUR, breakfast  included\n", True)
    assert [message.get("content") for message in history] == [
        "price?",
        None,
        "answered directly",
        "found by the next handler",
        "answered directly",
        "99.50 EUR, breakfast  included\n",
    ]
    assert [message.get("content") for message in elsewhere] == [None, "answered directly"]


@pytest.mark.parametrize("content", [{"price": 99.5, "größe": [1, None]}, ["a"], 7, None, True])
async def test_a_direct_answer_that_is_no_text_becomes_json(session, content):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("price?") as x:
        turn = await x.direct(content)

    assert json.loads(turn.content) == content


@pytest.mark.parametrize("content", [float("nan"), {1: 2}, object(), ("a",)])
async def test_a_direct_answer_that_is_no_json_is_refused(session, content):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("price?") as x:
        with pytest.raises(pgmem.InvalidArgument):
            await x.direct(content)
        await x.direct("fine")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a text", "a text"),
        ([{"type": "text", "text": "a part"}], [{"type": "text", "text": "a part"}]),
        ({"found": 2}, '{"found": 2}'),
        ([{"name": "Miramar"}], '[{"name": "Miramar"}]'),
        ([], "[]"),
        (None, "null"),
        (7, "7"),
    ],
)
async def test_what_a_tool_gave_is_text_or_parts_and_any_other_json_becomes_text(session, given, kept):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("go") as x:
        await x.reply(None, tool_calls=calls("c1"))

        assert (await x.tool_result("c1", given)).content == kept


async def test_a_result_of_an_earlier_exchange_goes_where_its_call_is_shown_whatever_the_step_and_the_process(
    app_url, session, key
):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()
    async with flow.exchange("may I?") as x:
        await x.reply(None, tool_calls=calls("c1"))

    async with pgmem.open(app_url) as memory:
        again = await flow_of(a, b)(await memory.session(key)).start()
        async with again.exchange("yes") as x:
            await x.go(b)
            await x.tool_result("c1", "approved")
            in_b = texts(await x.request())

    assert in_b == ["You are in B."]
    assert [turn.content async for turn in session.namespace("A").turns()] == ["may I?", None, "yes", "approved"]


@pytest.mark.parametrize("call_id", ["c7", "", None, 7])
async def test_a_result_for_a_call_that_nobody_made_is_an_error(session, call_id):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("go") as x:
        await x.reply(None, tool_calls=calls("c1"))
        with pytest.raises(pgmem.FlowNotReady, match="no step of this flow shows a tool call"):
            await x.tool_result(call_id, "of nothing")

    assert [turn.content async for turn in session.namespace("A").turns()] == ["go", None]


async def test_a_result_that_is_sent_twice_stays_in_its_namespace(session):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        await x.reply(None, tool_calls=calls("c1"))
        await x.go(flow.steps[1], message="go")
        await x.tool_result("c1", "once")
        await x.tool_result("c1", "twice")

        assert texts(await x.request()) == ["You are in B.", "go"]


async def test_the_same_id_in_two_namespaces_is_answered_here_first(session):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        await x.reply(None, tool_calls=calls("call_0"))
        await x.go(flow.steps[1], message="go")
        await x.reply(None, tool_calls=calls("call_0"))
        await x.tool_result("call_0", "of B")
        await x.tool_result("call_0", "of A")

    assert [turn.content async for turn in session.namespace("B").turns()] == ["go", None, "of B"]
    assert [turn.content async for turn in session.namespace("A").turns()] == ["go", None, "of A"]


async def test_a_call_of_a_step_that_was_left_does_not_stay_open_for_ever(session, llm):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b, llm=llm, enable=("A",), min_messages=8)(session).start()

    for number in range(12):
        async with flow.exchange(f"question {number}") as x:
            await x.go(a, message=f"question {number}")
            await x.reply(None, tool_calls=calls(f"c{number}"))
            await x.go(b)

    turns = [turn async for turn in session.namespace("A").turns()]
    active = [turn for turn in turns if turn.status == "active"]
    assert len(llm.requests) > 0
    assert len(active) < 12
    assert "the conversation went on in another step" in {turn.content for turn in turns}


async def test_a_result_of_an_erased_call_never_comes_back_into_the_clean_context(session):
    a = erasing("A")
    flow = await flow_of(a)(session).start()

    async with flow.exchange("find") as x:
        await x.reply(None, tool_calls=calls("c1"))
        await x.go(a, reenter=True, state={"x": 1}, message="find")
        with pytest.raises(pgmem.FlowNotReady, match="was erased"):
            await x.tool_result("c1", "OLD-LIST")
        await x.reply(None, tool_calls=calls("c2"))
        await flow.step.erase_memory()
        await x.direct("done")

    assert texts(await say(flow, "next")) == ["You are in A.", "done", "next"]


async def test_staying_for_a_call_that_is_not_open_is_an_error(session):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("go") as x:
        await x.reply(None, tool_calls=calls("c1"))
        with pytest.raises(pgmem.FlowNotReady, match="open are 'c1'"):
            await x.stay("what?", call_id="c2")


async def test_a_reply_may_be_the_whole_message(session):
    flow = await flow_of(step("A"))(session).start()
    whole = {"role": "assistant", "content": "hm", "tool_calls": calls("c1"), "reasoning": "because"}

    async with flow.exchange("go") as x:
        turn = await x.reply(whole)
        with pytest.raises(pgmem.InvalidArgument, match="role is 'user'"):
            await x.reply({"role": "user", "content": "hi"})
        with pytest.raises(pgmem.InvalidArgument, match="either the whole message"):
            await x.reply(whole, extra={"a": 1})
        await x.stay()

    assert (dict(turn.message), x.answered) == (whole, False)


async def test_a_request_without_any_user_message_is_warned_of(session, caplog):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        await x.request()
        fine = caplog.text
        await x.go(flow.steps[1])
        await x.request()

    assert (fine, "the request of B has no user message" in caplog.text) == ("", True)


async def test_what_a_prompt_does_to_the_state_it_is_shown_is_not_saved(session):
    def prompt(self, state):
        state["written"] = True
        return "prompt"

    writing = step("Writing")
    writing.prompt = prompt
    flow = await flow_of(writing)(session).start()

    await say(flow, "hello")

    assert flow.state == {}


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


async def test_the_state_stays_the_dict_that_somebody_holds(session):
    async def broken(self):
        raise ValueError("broken")

    flow = await flow_of(step("A"), step("B", on_enter=broken))(session).start()

    async with flow.exchange("go") as x:
        held = x.state
        with pytest.raises(ValueError, match="broken"):
            await x.go(flow.steps[1], state={"n": 1})
        held["kept"] = 1

    assert flow.state == {"kept": 1}


async def test_a_state_larger_than_a_message_may_be_is_refused(app_url, key, monkeypatch):
    monkeypatch.setenv("PGMEM_MAX_TURN_BYTES", "1000")
    async with pgmem.open(app_url) as memory:
        flow = await flow_of(step("A"))(await memory.session(key)).start()

        async def too_much():
            async with flow.exchange("go") as x:
                x.state["large"] = "é" * 600

        with pytest.raises(pgmem.InvalidArgument, match="the state has over 1000 bytes"):
            await too_much()


async def test_the_longest_names_are_fine(session):
    long = erasing("S" * 128)
    flow = await type("F" * 128, (flow_of(long),), {})(session).start()

    (branch,) = [branch async for branch in session.namespace("S" * 128).branches()]
    assert (type(flow.step), len(branch.actor)) == (long, 256)


async def test_a_save_whose_acknowledgement_is_lost_is_known_as_ones_own(app_url, key):
    a, b = step("A"), step("B")
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        flow = await flow_of(a, b)(session).start()
        async with flow.exchange("go") as x:
            await x.go(b, state={"n": 1})
            proxy.cut_after = b"SELECT 0"
        proxy.cut_after = None
        after = (type(flow.step), dict(flow.state))
        await say(flow, "next")

        assert after == (b, {"n": 1})
        assert [stage.no async for stage in session.stages()] == [1, 2, 3]


async def test_a_start_that_died_before_the_first_step_was_entered_is_taken_over(session, monkeypatch):
    tries = []

    async def once_broken(self):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("broken")
        self.state["initial"] = True

    a = step("A", on_enter=once_broken)
    with pytest.raises(ValueError, match="broken"):
        await flow_of(a)(session).start()
    monkeypatch.setattr("pgmem.flow.flow.CLAIM_SECONDS", 0.1)

    flow = await flow_of(a)(session).start()

    assert (len(tries), flow.state) == (2, {"initial": True})


async def test_a_start_waits_for_one_that_is_entering_the_first_step(session):
    entering, let_go, ran = asyncio.Event(), asyncio.Event(), []

    async def slow(self):
        ran.append("enter")
        entering.set()
        await let_go.wait()
        await self.erase_memory()

    async def on_restore(self):
        ran.append("restore")

    a = step("A", on_enter=slow, on_restore=on_restore)
    first = asyncio.create_task(flow_of(a)(session).start())
    await entering.wait()
    second = asyncio.create_task(flow_of(a)(session).start())
    await asyncio.sleep(0.2)
    waits = not second.done()
    let_go.set()
    await first
    flow = await second
    request = await say(flow, "my first question")

    assert (waits, ran) == (True, ["enter", "restore"])
    assert texts(request) == ["You are in A.", "my first question"]


async def test_further_fields_of_replies_and_results_are_kept(session):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("go") as x:
        said = await x.reply("hm", tool_calls=calls("c1"), extra={"reasoning": "because"})
        gave = await x.tool_result("c1", "done", extra={"seconds": 2})

    assert (said.message["reasoning"], gave.message["seconds"]) == ("because", 2)


async def test_a_flow_and_a_step_say_what_they_are(session):
    flow = flow_of(step("A", "a-space"))(session)
    before = repr(flow)
    await flow.start()

    assert (before, repr(flow), repr(flow.step)) == (
        "<TestFlow not started>",
        "<TestFlow in A>",
        "<step A, namespace 'a-space'>",
    )


async def test_a_loop_ends_when_the_user_has_an_answer(session):
    flow = await flow_of(step("A"))(session).start()
    script = iter([{"tool_calls": calls("c1")}, {"tool_calls": calls("c2")}, {"content": "the end"}])
    asked = 0

    async with flow.exchange("go") as x:
        while not x.answered:
            await x.request()
            asked += 1
            said = next(script)
            turn = await x.reply(said.get("content"), tool_calls=said.get("tool_calls"))
            for call in turn.message.get("tool_calls") or ():
                await x.tool_result(call["id"], "done")

    assert asked == 3


async def test_a_result_goes_where_its_call_was_made_whatever_the_step_is_now(session):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("go") as x:
        await x.reply(None, tool_calls=calls("c1"))
        await x.go(b)
        await x.tool_result("c1", "moved on")
        in_b = texts(await x.request())

    assert in_b == ["You are in B."]
    assert [turn.content async for turn in session.namespace("A").turns()] == ["go", None, "moved on"]


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


async def test_messages_are_stored_at_once_and_step_and_state_when_the_exchange_ends(session, reader):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("hello") as x:
        await x.go(b, state={"hotels": ["Miramar"]})
        await x.reply("hi")
        inside = (await stages(reader, session), [turn.content async for turn in session.namespace("B").turns()])

    assert inside == (BEGUN, ["hi"])
    assert (await stages(reader, session))[2:] == [(3, "B", ["B"], {"hotels": ["Miramar"]})]


async def test_the_steps_on_the_way_are_told(session, reader):
    a, b, c = step("A"), step("B"), step("C")
    flow = await flow_of(a, b, c)(session).start()

    async with flow.exchange("hello") as x:
        await x.go(b)
        await x.go(c)
        await x.go(a)

    assert (await stages(reader, session))[2:] == [(3, "A", ["B", "C", "A"], {})]


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_body_that_raises_saves_no_state_and_keeps_its_messages(session, reader, error):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()
    async with flow.exchange("first") as x:
        x.state["seen"] = [1]

    async def second():
        async with flow.exchange("second") as x:
            await x.go(b, state={"lost": True})
            x.state["seen"].append(2)
            raise error

    with pytest.raises(type(error)):
        await second()

    assert (type(flow.step), flow.state) == (a, {"seen": [1]})
    assert (await stages(reader, session))[2:] == [(3, "A", [], {"seen": [1]})]
    assert texts(await say(flow, "third")) == ["You are in A.", "first", "second", "third"]


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


@pytest.mark.parametrize("hook", ["on_enter", "on_restore"])
async def test_a_start_whose_hook_raises_can_be_tried_again(session, hook):
    tries = []

    async def once_broken(self):
        tries.append(hook)
        if len(tries) == 1:
            raise ValueError(hook)

    a = step("A", **{hook: once_broken})
    if hook == "on_restore":
        await flow_of(a)(session).start()
    flow = flow_of(a)(session)

    with pytest.raises(ValueError, match=hook):
        await flow.start()
    await flow.start()

    assert (len(tries), type(flow.step)) == (2, a)


STATES = [
    {"n": float("nan")},
    {1: "a"},
    {"t": (1, 2)},
    {"s": {1, 2}},
    {"o": object()},
    {"nul": "\0"},
    {"half": "\ud800"},
    {"b": b"x"},
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: next(iter(map(str, state))))
async def test_state_that_would_not_come_back_equal_is_refused_where_it_is_given(session, state):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.InvalidArgument, match="state"):
            await x.go(flow.steps[1], state=state)
        x.state.clear()

    assert (type(flow.step).__name__, flow.state) == ("A", {})


async def test_state_that_became_no_json_is_refused_at_the_end_and_nothing_is_saved(session, reader):
    flow = await flow_of(step("A"))(session).start()

    with pytest.raises(pgmem.InvalidArgument, match=r"state.hotels"):
        async with flow.exchange("go") as x:
            x.state["hotels"] = {"a", "b"}

    assert flow.state == {}
    assert await stages(reader, session) == BEGUN


async def test_state_round_trips_value_for_value(app_url, session, key):
    state = {"n": [0.1, 10**400, -0.0, True, None], "text": "größer \U0001f3e8 <>&'", "deep": {"a": {"b": []}}, "": ""}
    flow = await flow_of(step("A"))(session).start()
    async with flow.exchange("go") as x:
        await x.go(flow.steps[0], state=state)

    async with pgmem.open(app_url) as memory:
        again = await flow_of(step("A"))(await memory.session(key)).start()

    assert json.dumps(again.state) == json.dumps(state)


async def test_what_the_caller_does_to_the_state_it_gave_changes_nothing(session):
    flow = await flow_of(step("A"), step("B"))(session).start()
    hotels = ["Miramar"]

    async with flow.exchange("go") as x:
        await x.go(flow.steps[1], state={"hotels": hotels})
        hotels.append("Excelsior")

    assert flow.state == {"hotels": ["Miramar"]}


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


@pytest.mark.parametrize("state", [[], "x", 7])
async def test_given_state_is_a_dict(session, state):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.InvalidArgument, match="state is of type"):
            await x.go(flow.steps[1], state=state)


async def test_a_flow_left_in_a_step_that_is_gone_is_told_with_the_nearest(session):
    flow = await flow_of(step("Explore"), step("Presenting"))(session).start()
    async with flow.exchange("go") as x:
        await x.go(flow.steps[1])

    with pytest.raises(pgmem.UnknownStep, match=r"left in 'Presenting', .*did you mean 'Present'.*it has Explore, Present"):
        await flow_of(step("Explore"), step("Present"))(session).start()


async def test_two_flows_of_different_names_over_one_session_have_steps_of_their_own(session):
    first = await flow_of(step("A"), step("B"))(session).start()
    other = type("Other", (flow_of(step("C")),), {"name": "side-talk"})
    second = await other(session).start()
    async with first.exchange("go") as x:
        await x.go(first.steps[1])

    assert type(second.step).__name__ == "C"
    assert type((await flow_of(*first.steps)(session).start()).step).__name__ == "B"


async def test_of_two_exchanges_at_once_the_second_to_end_keeps_its_messages_and_not_its_state(session):
    a, b = step("A"), step("B")
    one, other = await flow_of(a, b)(session).start(), await flow_of(a, b)(session).start()

    async def in_between():
        async with one.exchange("from the one") as x:
            async with other.exchange("from the other") as y:
                y.state["n"] = 2
            await x.go(b)

    with pytest.raises(pgmem.StaleFlow, match="the next exchange goes on from there"):
        await in_between()

    again = await flow_of(a, b)(session).start()
    assert (type(again.step), again.state) == (a, {"n": 2})
    assert texts(await say(again, "next")) == ["You are in A.", "from the one", "from the other", "next"]


async def test_a_flow_object_goes_on_where_somebody_else_left_the_flow(session):
    a, b = counting("A"), counting("B")
    one, other = await flow_of(a, b)(session).start(), await flow_of(a, b)(session).start()
    async with other.exchange("go") as x:
        await x.go(b, state={"n": 2})

    request = await say(one, "where am I?")

    assert texts(request) == ["You are in B.", "where am I?"]
    assert one.state == {"n": 2}
    assert b.ran == ["enter", "restore"]


async def test_an_exchange_that_cannot_begin_leaves_the_flow_usable(session):
    tries = []

    async def broken_once(self):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("broken")

    a, b = step("A"), step("B", on_restore=broken_once)
    one, other = await flow_of(a, b)(session).start(), await flow_of(a, b)(session).start()
    async with other.exchange("go") as x:
        await x.go(b)

    with pytest.raises(ValueError, match="broken"):
        await say(one, "first")

    assert texts(await say(one, "second")) == ["You are in B.", "second"]


async def test_of_many_first_starts_at_once_one_enters_the_step(app_url, key, reader):
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)
        a = counting("A")
        flows = [flow_of(a)(session) for _ in range(20)]

        await asyncio.gather(*(flow.start() for flow in flows))

        assert await stages(reader, session) == BEGUN
        assert sorted(a.ran) == ["enter", *["restore"] * 19]


async def test_writers_of_one_namespace_never_part_a_call_from_its_results(app_url, key):
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)

        async def write(number):
            handle = session.namespace("shared").another()
            result = {"role": "tool", "tool_call_id": f"c{number}", "content": "r"}
            await handle.add_turns([{"role": "assistant", "content": None, "tool_calls": calls(f"c{number}")}, result])

        await asyncio.gather(*(write(number) for number in range(32)))
        stored = [turn async for turn in session.namespace("shared").turns()]

    assert len(stored) == 64
    for call, result in zip(stored[::2], stored[1::2], strict=True):
        assert call.message["tool_calls"][0]["id"] == result.message["tool_call_id"]


async def test_use_before_the_start_and_after_the_end_is_an_error_that_names_the_call(session):
    flow = flow_of(step("A"))(session)
    with pytest.raises(pgmem.FlowNotReady, match=r"await TestFlow\(session\).start\(\)"):
        async with flow.exchange("hello"):
            pass
    with pytest.raises(pgmem.FlowNotReady, match="start"):
        _ = flow.step
    await flow.start()
    with pytest.raises(pgmem.FlowNotReady, match="started already"):
        await flow.start()

    async with flow.exchange("hello") as x:
        with pytest.raises(pgmem.FlowNotReady, match="an exchange under way"):
            async with flow.exchange("in between"):
                pass
    unused = flow.exchange("never entered")
    with pytest.raises(pgmem.FlowNotReady, match=r"has not begun: begin it, `async with"):
        await unused.request()
    with pytest.raises(pgmem.FlowNotReady, match="has begun before"):
        async with x:
            pass
    for use in (x.request(), x.reply("late"), x.tool_result("c", "late"), x.go(flow.steps[0]), x.stay(), x.direct("late")):
        with pytest.raises(pgmem.FlowNotReady, match="has ended"):
            await use

    assert texts(await say(flow, "next"))[1:] == ["hello", "next"]


async def test_a_message_that_cannot_be_stored_begins_no_exchange(session):
    flow = await flow_of(step("A"))(session).start()

    with pytest.raises(pgmem.InvalidMessage):
        async with flow.exchange(None):
            pass

    assert texts(await say(flow, "next"))[1:] == ["next"]


async def test_a_message_with_an_idempotency_key_is_stored_once(session):
    flow = await flow_of(step("A"))(session).start()

    for _ in range(2):
        async with flow.exchange("hello", idempotency_key="message-1"):
            pass

    assert [turn.content async for turn in session.namespace("A").turns()] == ["hello"]


async def test_an_unknown_session_is_an_error_and_never_a_new_one(memory, key):
    with pytest.raises(pgmem.SessionNotFound):
        await memory.session(key, create=False)

    assert [found.key async for found in memory.sessions(key)] == []


async def test_an_exchange_begins_with_two_round_trips(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        flow = await flow_of(step("A"))(await memory.session(key)).start()
        await say(flow, "the connection prepares its statements once")
        proxy.reset()
        async with flow.exchange("q"):
            began = proxy.round_trips

    assert began == 2


async def test_a_start_costs_one_round_trip_when_it_goes_on_and_three_when_it_begins(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        await flow_of(step("A"))(await memory.session(f"{key}-warm")).start()
        session = await memory.session(key)
        proxy.reset()
        await flow_of(step("A"))(session).start()
        began = proxy.round_trips
        proxy.reset()
        await flow_of(step("A"))(session).start()

    assert (began, proxy.round_trips) == (3, 1)


async def test_talk_in_a_step_goes_to_its_namespace_only(session):
    flow = await flow_of(step("A"), step("B"))(session).start()

    await talk(flow, 2)

    assert await session.namespaces() == ["A", "main"]
