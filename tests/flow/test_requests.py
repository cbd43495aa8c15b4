"""What the model is sent in a flow: the executing step's prompt, its namespace's memory, its verbatim tail, and nothing else."""

from __future__ import annotations

import pytest

import pgmem
from pgmem.testing import summary
from tests.flow.support import calls, flow_of, say, step, talk, texts

explore = step("Explore", "hotel-explore", prompt="find one")
other = step("Other")


async def summarised(session, llm, text="what is known"):
    """A flow whose Explore has a summary and four messages."""
    llm.answers = [summary(text)]
    flow = await flow_of(explore, other, llm=llm, enable=("hotel-explore",), min_messages=8, recent_messages=4)(session).start()
    await talk(flow, 4)
    return flow


async def test_the_memory_message_stands_second_with_its_exact_heading_then_the_tail(session, llm):
    flow = await summarised(session, llm)

    request = await say(flow, "next")

    assert request == [
        {"role": "system", "content": "find one"},
        {"role": "system", "content": "Conversation memory for this step:\nwhat is known"},
        {"role": "user", "content": "question 3"},
        {"role": "assistant", "content": "answer 3"},
        {"role": "user", "content": "question 4"},
        {"role": "assistant", "content": "answer 4"},
        {"role": "user", "content": "next"},
    ]


async def test_the_newest_user_message_stands_before_a_tail_that_has_none(session, llm):
    llm.answers = [summary("what is known")]
    flow = await flow_of(explore, llm=llm, enable=("hotel-explore",), min_messages=8, recent_messages=2)(session).start()
    async with flow.exchange("the only question") as x:
        for number in range(4):
            await x.reply(None, tool_calls=calls(f"c{number}"))
            await x.tool_result(f"c{number}", f"result {number}")

    request = (await session.namespace("hotel-explore").context("find one")).messages
    assert [message["role"] for message in request] == ["system", "system", "user", "assistant", "tool"]
    assert texts(request)[2] == "the only question"


async def test_the_memory_message_is_not_stored_not_counted_and_not_summarised_again(session, llm):
    flow = await summarised(session, llm)
    stored = [turn.content async for turn in session.namespace("hotel-explore").turns()]

    await talk(flow, 1, start=5)

    # slot, four kept and two new messages are seven of eight: the memory message is no eighth
    assert len(llm.requests) == 1
    assert not any("Conversation memory" in content for content in stored)
    await talk(flow, 1, start=6)
    assert len(llm.requests) == 2
    assert llm.requests[1].prompt.count("what is known") == 1


async def test_without_a_summary_the_request_is_prompt_and_history(session, llm):
    flow = await flow_of(explore, llm=llm, enable=("hotel-explore",))(session).start()

    assert await say(flow, "hello") == [{"role": "system", "content": "find one"}, {"role": "user", "content": "hello"}]


async def test_a_step_without_a_prompt_text_sends_no_empty_system_message(session):
    silent = step("Silent", prompt="")
    flow = await flow_of(silent)(session).start()

    assert await say(flow, "hello") == [{"role": "user", "content": "hello"}]


async def test_a_step_sees_nothing_of_another_namespace_and_neither_does_a_flow_of_another_name(session, llm):
    flow = await summarised(session, llm, "a secret of explore")

    async with flow.exchange("go on") as x:
        await x.go(other, message="hello")
        in_other = await x.request()
        child = await type("ChildFlow", (pgmem.Flow,), {"steps": [step("Child")]})(session).start()
        in_child = await say(child, "hello, child")

    assert texts(in_other) == ["You are in Other.", "hello"]
    assert texts(in_child) == ["You are in Child.", "hello, child"]


async def test_the_memory_message_has_an_id_that_changes_with_its_node_only(session, llm):
    flow = await summarised(session, llm)
    ids = []
    for number in range(5, 8):
        async with flow.exchange(f"question {number}") as x:
            await x.request()
            ids.append(x.context.memory_id)
            await x.reply("answer")

    first, second, third = ids
    node = (await session.namespace("hotel-explore").path())[0].no
    assert first == second == f"memory-{node}"
    assert third not in (None, first)


async def test_without_a_memory_message_there_is_no_id(session):
    flow = await flow_of(explore)(session).start()

    async with flow.exchange("hello") as x:
        await x.request()

        assert x.context.memory_id is None


async def test_the_memory_message_may_be_of_the_user_role(app_url, key, llm):
    async with pgmem.open(app_url, memory_role="user") as memory:
        flow = await summarised(await memory.session(key), llm)

        assert (await say(flow, "next"))[1]["role"] == "user"


async def test_the_same_request_comes_after_a_restart(app_url, key, session, llm):
    flow = await summarised(session, llm)
    async with flow.exchange("next") as x:
        x.state["dates"] = "June 3 to 5"
        before = await x.request()

    async with pgmem.open(app_url) as memory:
        again = await memory.session(key)
        resumed = await flow_of(explore, other, llm=llm, enable=("hotel-explore",), min_messages=8, recent_messages=4)(
            again
        ).start()
        after = await again.namespace("hotel-explore").context(resumed.step.prompt(resumed.state))

    assert after.messages == before
    assert resumed.state == {"dates": "June 3 to 5"}


async def test_a_prompt_that_is_no_text_is_an_error_that_names_the_step(session):
    odd = step("Odd")
    odd.prompt = lambda self, state: {"role": "system"}
    flow = await flow_of(odd)(session).start()

    async with flow.exchange("hello") as x:
        with pytest.raises(pgmem.InvalidArgument, match=r"Odd.prompt gave a dict: it must give a text"):
            await x.request()


async def test_a_request_keeps_to_a_budget(session):
    flow = await flow_of(explore)(session).start()

    async with flow.exchange("word " * 500) as x:
        with pytest.raises(pgmem.OverBudget):
            await x.request(budget_tokens=50)
