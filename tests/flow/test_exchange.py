"""What happens in an exchange: replies, tool results, staying, direct answers, and what is told when it is used wrongly."""

from __future__ import annotations

import asyncio
import json

import pytest

import pgmem
from tests.flow.support import calls, erasing, flow_of, say, step, talk, texts
from tests.support.wire import wire


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


async def test_further_fields_of_replies_and_results_are_kept(session):
    flow = await flow_of(step("A"))(session).start()

    async with flow.exchange("go") as x:
        said = await x.reply("hm", tool_calls=calls("c1"), extra={"reasoning": "because"})
        gave = await x.tool_result("c1", "done", extra={"seconds": 2})

    assert (said.message["reasoning"], gave.message["seconds"]) == ("because", 2)


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


async def test_an_exchange_begins_with_two_round_trips(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        flow = await flow_of(step("A"))(await memory.session(key)).start()
        await say(flow, "the connection prepares its statements once")
        proxy.reset()
        async with flow.exchange("q"):
            began = proxy.round_trips

    assert began == 2


async def test_talk_in_a_step_goes_to_its_namespace_only(session):
    flow = await flow_of(step("A"), step("B"))(session).start()

    await talk(flow, 2)

    assert await session.namespaces() == ["A", "main"]
