"""When a flow's namespaces are summarised: at an exchange's end, once, of exactly what lies before the cut; what a failure does."""

from __future__ import annotations

import asyncio
import math

import psycopg
import pytest
from psycopg.rows import dict_row

import pgmem
from pgmem.testing import empty, failing, failure, hanging, malformed, summary
from tests.flow.support import calls, flow_of, say, step, talk, texts
from tests.support.talk import fault_of_provider
from tests.support.wire import wire

explore = step("Explore", "hotel-explore", prompt="prompt-sentinel")
other = step("Other")


def flow_at(llm, least=8, recent=4, steps=(explore,), enable=("hotel-explore",), **config):
    return flow_of(*steps, llm=llm, enable=enable, min_messages=least, recent_messages=recent, **config)


async def rows(session, namespace="hotel-explore"):
    """Every stored turn as its content."""
    return [turn.content async for turn in session.namespace(namespace).turns()]


def of_a_plain_talk(exchanges, least, recent, messages=2):
    """How many summaries so many exchanges of so many messages cost: the closed form of the docs."""
    first, each = math.ceil((least - 1) / messages), math.ceil((least - 1 - recent) / messages)
    return 0 if exchanges < first else 1 + (exchanges - first) // each


async def add(flow, count, start=1):
    """So many exchanges of one message each: the user speaks, nobody answers."""
    for number in range(start, start + count):
        async with flow.exchange(f"message {number}"):
            pass


async def test_a_namespace_that_is_not_enabled_keeps_every_message_and_asks_nobody(session, llm):
    flow = await flow_at(llm, enable=())(session).start()

    await talk(flow, 50)

    assert llm.requests == []
    assert len(await say(flow, "last")) == 1 + 100 + 1


async def test_the_defaults_fire_at_16_and_keep_8(session, llm):
    flow = await flow_of(explore, llm=llm, enable=("hotel-explore",))(session).start()

    await add(flow, 14)
    at_15 = len(llm.requests)
    await add(flow, 1, start=15)

    assert (at_15, len(llm.requests)) == (0, 1)
    request = await say(flow, "next")
    assert texts(request)[2:] == [f"message {number}" for number in range(8, 16)] + ["next"]


async def test_it_fires_at_exactly_the_least_with_the_system_prompts_slot_counted(session, llm):
    flow = await flow_at(llm)(session).start()

    await add(flow, 6)
    at_7 = len(llm.requests)
    await add(flow, 1, start=7)

    assert (at_7, len(llm.requests)) == (0, 1)


async def test_at_8_and_4_three_are_covered_and_four_stay_in_order_and_as_they_were(session, llm):
    flow = await flow_at(llm)(session).start()

    await add(flow, 7)

    (node,) = [node async for node in session.namespace("hotel-explore").nodes()]
    covered = [turn.content async for turn in session.namespace("hotel-explore").turns(status="compressed")]
    assert covered == ["message 1", "message 2", "message 3"]
    assert texts(await say(flow, "next"))[2:] == [f"message {number}" for number in range(4, 8)] + ["next"]
    assert (node.first_no, node.last_no) == (1, 3)
    asked = llm.requests[0].prompt
    assert all((f"message {number}" in asked) is (number <= 3) for number in range(1, 8))


async def test_the_prompt_is_never_summarised_and_asked_for_anew_before_every_call(session, llm):
    counted = iter(range(1, 100))
    counting = step("Counting", prompt_of=None)
    counting.prompt = lambda self, state: f"prompt {next(counted)}, {state.get('found')}"
    flow = await flow_at(llm, steps=(counting,), enable=("Counting",))(session).start()

    async with flow.exchange("q") as x:
        first = await x.request()
        await x.reply(None, tool_calls=calls("c1"))
        await x.tool_result("c1", "Hotel Miramar")
        x.state["found"] = ["Miramar"]
        second = await x.request()
    await add(flow, 8)

    assert (first[0]["content"], second[0]["content"]) == ("prompt 1, None", "prompt 2, ['Miramar']")
    assert len(llm.requests) == 2
    assert not any("prompt 1" in request.prompt or "prompt 2" in request.prompt for request in llm.requests)


@pytest.mark.parametrize(
    ("least", "recent", "messages", "exchanges"), [(8, 4, 1, 100), (8, 4, 2, 50), (8, 4, 2, 100), (16, 8, 2, 60), (12, 3, 1, 40)]
)
async def test_the_number_of_summaries_is_the_closed_form_and_a_request_is_bounded(
    session, llm, least, recent, messages, exchanges
):
    flow = await flow_at(llm, least, recent)(session).start()
    sizes = []

    for number in range(exchanges):
        async with flow.exchange(f"question {number}") as x:
            request = await x.request()
            sizes.append(sum(not str(message["content"]).startswith("Conversation memory") for message in request))
            if messages == 2:
                await x.reply(f"answer {number}")

    assert len(llm.requests) == of_a_plain_talk(exchanges, least, recent, messages)
    assert max(sizes) == least
    assert len(await rows(session)) == exchanges * messages


async def test_nothing_is_summarised_inside_an_exchange(session, llm):
    flow = await flow_at(llm, steps=(explore, other, step("Third")))(session).start()
    await add(flow, 6)
    inside = []

    async with flow.exchange("a question") as x:
        for number in range(5):
            await x.request()
            await x.reply(None, tool_calls=calls(f"c{number}"))
            await x.tool_result(f"c{number}", "a result")
            inside.append(len(llm.requests))
        await x.go(other)
        await x.request()
        await x.go(flow.steps[2])
        await x.go(explore)
        await x.reply("an answer")
        inside.append(len(llm.requests))
    newest = [turn.content async for turn in session.namespace("hotel-explore").turns()][-1]

    assert inside == [0] * 6
    assert len(llm.requests) == 1
    assert newest == "an answer"


async def test_what_is_stored_after_the_exchange_holds_the_summary_already(app_url, session, key, llm):
    llm.answers = [summary("the guest wants a pool")]
    flow = await flow_at(llm)(session).start()
    await add(flow, 7)

    async with pgmem.open(app_url) as memory:
        again = await flow_at(llm)(await memory.session(key)).start()
        request = await say(again, "next")

    assert request[1] == {"role": "system", "content": "Conversation memory for this step:\nthe guest wants a pool"}
    assert texts(request)[2:] == [f"message {number}" for number in range(4, 8)] + ["next"]


class Slow(Exception):
    pass


@pytest.mark.parametrize("fault", [failure(500), failure(400), empty(), malformed(), "raises", "hangs"])
async def test_a_summary_that_cannot_be_made_never_fails_the_exchange_and_is_tried_at_the_next(
    app_url, key, llm, fault, caplog, monkeypatch
):
    monkeypatch.setenv("PGMEM_MODEL_TIMEOUT_SECONDS", "0.3")
    broken = True

    async def summarise(request):
        if broken and fault == "hangs":
            await asyncio.sleep(60)
        if broken:
            raise Slow("out of order")
        return "at last"

    llm.answers = [] if isinstance(fault, str) else [fault]
    async with pgmem.open(app_url) as memory:
        events = []
        memory.on_event(events.append)
        session = await memory.session(key)
        flow = flow_at(llm)(session)
        if isinstance(fault, str):
            flow.memory.set_summary_model(summarise)
        await flow.start()
        await add(flow, 6)

        request = await say(flow, "message 7", "the reply")

        assert "Memory compaction skipped: " in caplog.text
        assert [event.error for event in events if isinstance(event, pgmem.CompactionFailed)]
        assert texts(request) == ["prompt-sentinel", *(f"message {number}" for number in range(1, 8))]
        assert texts(await say(flow, "message 9"))[-2:] == ["the reply", "message 9"]
        assert await session.namespace("hotel-explore").path() == []
        broken = False
        llm.answers = [summary("at last")]
        await add(flow, 1, start=10)
        assert [node.summary for node in await session.namespace("hotel-explore").path()] == ["at last"]


@pytest.mark.parametrize("stop", [asyncio.CancelledError, KeyboardInterrupt])
async def test_a_real_cancellation_ends_the_exchange_with_step_and_state_saved_and_no_half_of_a_summary(app_url, key, stop):
    async def summarise(request):
        raise stop

    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)
        flow = flow_at(None)(session)
        flow.memory.set_summary_model(summarise)
        await flow.start()
        await add(flow, 6)

        with pytest.raises(stop):
            async with flow.exchange("message 7") as x:
                x.state["kept"] = True

        # what the user was told is done: only the summary is missing, and the next exchange makes it
        assert (await flow_at(None, enable=())(session).start()).state == {"kept": True}
        assert await session.namespace("hotel-explore").path() == []
        assert (await rows(session))[-1] == "message 7"
        flow.memory._summariser = None
        assert texts(await say(flow, "message 8"))[-1] == "message 8"


async def test_after_a_failure_the_old_summary_and_the_history_are_as_they_were(session, llm):
    llm.answers = [summary("the first summary"), failure(500)]
    flow = await flow_at(llm)(session).start()
    await add(flow, 7)
    before = await session.namespace("hotel-explore").context("prompt-sentinel")

    await add(flow, 3, start=8)
    after = await session.namespace("hotel-explore").context("prompt-sentinel")

    assert len(llm.requests) == 2
    assert after.messages[: len(before.messages)] == before.messages


@pytest.mark.parametrize(
    ("attempts", "answers", "requests", "summaries"),
    [
        (3, [failure(500), failure(500), summary("s")], 3, 1),
        (3, [failure(500)], 3, 0),
        (1, [failure(500)], 1, 0),
        (2, [failure(503), summary("s")], 2, 1),
    ],
)
async def test_retry_attempts_is_the_total(session, llm, attempts, answers, requests, summaries):
    llm.answers = answers
    flow = await flow_at(llm, retry_attempts=attempts)(session).start()

    await add(flow, 7)

    assert len(llm.requests) == requests
    assert len(await session.namespace("hotel-explore").path()) == summaries


async def test_each_enabled_namespace_is_on_its_own_and_one_that_fails_stops_no_other(session, llm):
    async def rule(request):
        return failure(400) if "in the first" in request.prompt else summary("of the second")

    llm._rule = rule
    flow = await flow_at(llm, steps=(explore, other), enable=("hotel-explore", "Other"))(session).start()
    for number in range(6):
        await say(flow, f"in the first {number}")
    only_one = len(llm.requests)

    async with flow.exchange("in the first, the last") as x:
        await x.go(other)
        for number in range(7):
            await x.reply(f"in the second {number}")

    assert only_one == 0
    assert await session.namespace("hotel-explore").path() == []
    assert [node.summary for node in await session.namespace("Other").path()] == ["of the second"]
    assert len(llm.requests) == 2


async def test_only_the_namespace_that_is_full_is_summarised(session, llm):
    flow = await flow_at(llm, steps=(explore, other), enable=("hotel-explore", "Other"))(session).start()

    async with flow.exchange("one") as x:
        await x.go(other, message="two")
    await add(flow, 6)

    assert len(llm.requests) == 1
    assert await session.namespace("hotel-explore").path() == []


@pytest.mark.parametrize("results", range(1, 9))
async def test_a_call_and_its_results_are_never_parted(session, llm, results):
    flow = await flow_at(llm, least=8, recent=4)(session).start()
    ids = [f"c{number}" for number in range(results)]

    for before in range(1, 9):
        async with flow.exchange(f"question {before}") as x:
            await x.request()
            await x.reply(None, tool_calls=calls(*ids))
            for call_id in ids:
                await x.tool_result(call_id, f"result {call_id}")
            assert fault_of_provider(await x.request()) is None
            await x.reply("answer")
        for node in await session.namespace("hotel-explore").path():
            covered = [
                turn.message
                async for turn in session.namespace("hotel-explore").turns()
                if node.first_no <= turn.no <= node.last_no
            ]
            assert fault_of_provider(covered) is None


async def test_a_cut_that_falls_on_a_result_walks_back_so_that_both_stay(session, llm):
    flow = await flow_at(llm, least=8, recent=4)(session).start()
    await add(flow, 2)

    async with flow.exchange("message 3") as x:
        await x.reply(None, tool_calls=calls("c1"))
        await x.tool_result("c1", "the result")
        await x.reply("answer 1")
        await x.reply("answer 2")

    # the cut at 8 - 4 falls between the call and its result
    assert [turn.content async for turn in session.namespace("hotel-explore").turns(status="compressed")] == [
        "message 1",
        "message 2",
        "message 3",
    ]


async def test_without_a_safe_cut_nothing_is_asked_and_an_event_and_at_the_third_time_a_warning_say_so(app_url, key, llm, caplog):
    async with pgmem.open(app_url) as memory:
        events, warned = [], []
        memory.on_event(events.append)
        session = await memory.session(key)
        flow = await flow_at(llm)(session).start()
        # one call with so many results that every cut that leaves four messages falls among them
        async with flow.exchange("go") as x:
            await flow.step.erase_memory()
            await x.reply(None, tool_calls=calls(*(f"c{number}" for number in range(12))))
            for number in range(12):
                await x.tool_result(f"c{number}", f"result {number}")
        for number in range(1, 4):
            warned.append("nothing could be compacted" in caplog.text)
            requests = len(llm.requests)
            await add(flow, 1, start=number)
        warned.append("3 times in a row" in caplog.text)
        await add(flow, 1, start=4)

        reasons = [event.reason for event in events if isinstance(event, pgmem.CompactionSkipped)]
        assert (requests, reasons, warned) == (0, ["no_safe_cut"] * 4, [False, False, True, True])
        # and the first exchange that leaves a place to cut goes on
        assert len(llm.requests) == 1
        assert (await session.namespace("hotel-explore").path())[0].source_tokens > 0


async def test_what_is_covered_stays_auditable_with_the_same_bytes(session, llm, owner):
    flow = await flow_at(llm)(session).start()
    await add(flow, 6)
    read = "select no, chain, content from pgmem.turns where session_id = %s order by no"  # the chain is over all of the row
    before = await (await owner.execute(read, (session._found.session_id,))).fetchall()

    await add(flow, 1, start=7)
    after = await (await owner.execute(read, (session._found.session_id,))).fetchall()

    assert len(llm.requests) == 1
    assert (after[:6], len(after)) == (before, 7)


async def test_the_summary_before_goes_in_word_for_word_with_only_the_new_messages(session, llm):
    numbers = iter(range(1, 100))
    llm._rule = lambda request: summary(f"summary number {next(numbers)}")
    flow = await flow_at(llm)(session).start()

    await add(flow, 7 + 3 + 3)

    first, second, third = (request.prompt for request in llm.requests)
    assert "summary number" not in first
    assert "summary number 1" in second
    assert "summary number 2" in third
    assert "summary number 1" not in third
    assert [number for number in range(1, 14) if f"message {number}\n" in second.replace("<", "\n<")] == [4, 5, 6]


async def test_the_first_time_there_is_no_trace_of_a_summary_before(session, llm):
    flow = await flow_at(llm)(session).start()

    await add(flow, 7)

    asked = llm.requests[0].messages[-1]["content"]
    assert "None" not in asked
    assert "null" not in asked


async def test_facts_survive_ten_summaries_unless_they_are_superseded(session, llm):
    """The model here keeps what its prompt shows it by a rule: the newest of each fact."""

    def merged(request):
        known = dict(
            pair.split("=")
            for word in request.messages[-1]["content"].replace("<", " ").split()
            if "=" in word and len((pair := word).split("=")) == 2 and word.split("=")[0] in ("guest", "date")
        )
        return summary(" ".join(f"{name}={value}" for name, value in known.items()))

    llm._rule = merged
    flow = await flow_at(llm)(session).start()
    await say(flow, "I am guest=Ada, date=June-3")
    await add(flow, 12)
    await say(flow, "make it date=July-4")

    await add(flow, 20)

    memory = (await say(flow, "next"))[1]["content"]
    assert len(llm.requests) >= 10
    assert "guest=Ada" in memory
    assert "July-4" in memory
    assert "June-3" not in memory


async def test_the_prompt_asks_to_merge_and_to_supersede(session, llm):
    flow = await flow_at(llm)(session).start()

    await add(flow, 7)

    task = llm.requests[0].messages[0]["content"]
    assert "The memory is cumulative. A fact of the memory so far stays until a turn supersedes it" in task


async def test_what_summaries_cost_is_counted(session, llm):
    llm.answers = [summary("s").counting(input_tokens=700, output_tokens=30)]
    flow = await flow_at(llm)(session).start()

    await add(flow, 10)

    (row,) = await session.usage()
    assert (row.calls, row.usage) == (2, pgmem.Usage(input_tokens=1400, output_tokens=60))


async def test_it_is_compress_underneath(session, llm, owner):
    flow = await flow_at(llm)(session).start()

    await add(flow, 10)

    nodes = [node async for node in session.namespace("hotel-explore").nodes()]
    assert [(node.strategy, node.kind, node.cumulative, node.model) for node in nodes] == [("llm", "compaction", True, "m")] * 2
    assert await session.namespace("hotel-explore").verify() is None


async def test_an_exchange_with_nothing_due_ends_with_at_most_one_round_trip(app_url, key, llm):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        flow = await flow_at(llm, steps=(explore, other), enable=("hotel-explore", "Other"))(session).start()
        counted = []
        await say(flow, "the connection prepares its statements once")
        for change in (False, True, False):
            async with flow.exchange("q") as x:
                await x.request()
                if change:
                    x.state["seen"] = True
                proxy.reset()
            counted.append(proxy.round_trips)

    assert counted == [1, 1, 1]


async def test_an_exchange_without_summaries_and_without_a_change_ends_without_a_round_trip(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        flow = await flow_of(explore)(await memory.session(key)).start()
        async with flow.exchange("q"):
            proxy.reset()

        assert proxy.round_trips == 0


async def test_in_the_background_the_exchange_does_not_wait(app_url, key, llm):
    asked, answered = asyncio.Event(), asyncio.Event()

    async def when_let(request):
        asked.set()
        await answered.wait()
        return summary("message 1, message 2, message 3")

    llm._rule = when_let
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)
        flow = await flow_at(llm, background=True)(session).start()
        await add(flow, 7)
        await asked.wait()
        raw = await say(flow, "meanwhile")
        answered.set()
        (task,) = memory._compactions._running.values()
        done = await task
        after = await say(flow, "later")

    assert len(raw) == 1 + 7 + 1
    assert done.node.summary == "message 1, message 2, message 3"
    assert len(after) == 1 + 1 + 4 + 2


async def test_tools_state_and_step_are_not_touched_by_a_compaction(session, llm, server, database):
    flow = await flow_at(llm, steps=(explore, other))(session).start()
    async with flow.exchange("message 1") as x:
        x.state["hotels"] = [{"name": "Miramar", "price": 99.5}]
    await add(flow, 5, start=2)
    before = (dict(flow.state), type(flow.step), await saved(server.on(database), session))

    await add(flow, 1, start=7)

    assert len(llm.requests) == 1
    assert (dict(flow.state), type(flow.step), await saved(server.on(database), session)) == before


async def saved(url, session):
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        found = await connection.execute(
            "select no, step, entered, state from pgmem.stages where session_id = %s order by no", (session._found.session_id,)
        )
        return await found.fetchall()


async def test_steps_that_share_a_namespace_share_a_conversation_and_its_policy_applies_once(session, llm):
    shared = step("Shared", "hotel-explore")
    flow = await flow_at(llm, steps=(explore, shared))(session).start()
    await add(flow, 3)
    async with flow.exchange("message 4") as x:
        await x.go(shared)

    await add(flow, 3, start=5)

    # one conversation of both steps: the policy applies once
    assert len(llm.requests) == 1
    assert texts(await say(flow, "next"))[2:] == [f"message {number}" for number in range(4, 8)] + ["next"]


async def test_a_judge_that_fails_a_background_summary_puts_the_messages_back(app_url, key, llm):
    llm._rule = lambda request: failing("drops it") if request.asks_for == "judgement" else summary("bad")
    model = pgmem.OpenAIModel("judge", base_url=llm.base_url)
    async with model, pgmem.open(app_url, judge_model=model, policy=pgmem.Policy(max_attempts=1)) as memory:
        session = await memory.session(key)
        flow = await flow_at(llm, background=True)(session).start()
        await add(flow, 7)
        (task,) = memory._compactions._running.values()
        done = await task

    assert (done.attempts, done.node.strategy) == (1, "tool_clear")


async def test_step_and_state_are_saved_although_the_summary_fails(app_url, key, session, llm):
    llm.answers = [failure(500)]
    flow = await flow_at(llm, steps=(explore, other))(session).start()
    await add(flow, 6)

    async with flow.exchange("message 7") as x:
        await x.go(other, state={"n": 1})

    async with pgmem.open(app_url) as memory:
        again = await flow_at(llm, steps=(explore, other))(await memory.session(key)).start()
    assert len(llm.requests) == 1
    assert (type(again.step), again.state) == (other, {"n": 1})


async def test_after_a_revise_only_live_messages_count(app_url, key, llm):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        flow = await flow_at(llm)(session).start()
        await talk(flow, 3)
        await session.namespace("hotel-explore").revise(after_turn=1)
        await say(flow, "once, for the statements to be prepared")
        counted = []
        for number in range(3):
            async with flow.exchange(f"after {number}"):
                proxy.reset()
            counted.append(proxy.round_trips)

    assert counted == [1, 1, 1]
    assert llm.requests == []


async def test_the_strategy_of_the_flow_counts_in_the_background_too(app_url, key):
    async with pgmem.open(app_url, summary_model=lambda request: 1 / 0) as memory:
        session = await memory.session(key)
        flow = await flow_of(explore, enable=("hotel-explore",), min_messages=8, strategy="tool_clear", background=True)(
            session
        ).start()
        await add(flow, 7)
        (task,) = memory._compactions._running.values()

        assert (await task).node.strategy == "tool_clear"


async def test_a_cancelled_request_is_saved_and_leaves_no_half_of_a_summary(app_url, key, llm):
    llm.answers = [hanging()]
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)
        flow = await flow_at(llm, steps=(explore, other))(session).start()
        await add(flow, 6)

        async def request():
            async with flow.exchange("message 7") as x:
                await x.go(other, state={"order": 7})
                await x.reply("refunded")

        task = asyncio.create_task(request())
        await llm.asked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        again = await flow_at(llm, steps=(explore, other))(session).start()
        assert (type(again.step), again.state) == (other, {"order": 7})
        assert await session.namespace("hotel-explore").path() == []
        assert await session.namespace("hotel-explore").verify() is None
        assert texts(await say(flow, "and now?"))[1:] == ["refunded", "and now?"]
