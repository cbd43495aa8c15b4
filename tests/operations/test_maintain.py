"""Maintain: a summary stands only once a judge says so, and one that fails costs the agent nothing."""

from __future__ import annotations

import asyncio

import pytest

import pgmem
from pgmem.testing import ScriptedModel, failing, hanging, malformed, passing, summary
from tests.support.talk import assistant, calls, result, statuses, text_of, user


async def passes(request):
    return pgmem.Judgement(outcome=pgmem.Outcome.PASS, reason="all there", judge="me")


async def fails(request):
    return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="the price is gone", missing=("299 EUR",), judge="me")


async def raises(request):
    raise RuntimeError("judge is ill")


async def grow(session, count=4):
    await session.add_turns([(user, assistant)[number % 2](f"sentinel-{number}.") for number in range(count)])


async def test_a_pass_is_stored_with_judge_and_time_and_the_node_is_compressed(session):
    await grow(session)
    node = await session.compress(summary="s")

    verdict = await session.maintain(judge=passes)

    assert (verdict.node, verdict.outcome, verdict.reason, verdict.judge, verdict.reopened) == (
        node.no,
        "pass",
        "all there",
        "me",
        None,
    )
    assert [made.status for made in await session.path()] == ["compressed"]


async def test_a_pass_changes_no_byte_of_the_context(session):
    await grow(session)
    await session.compress(summary="s")
    before = await session.context("sys")

    await session.maintain(judge=passes)

    assert (await session.context("sys")).messages == before.messages


async def test_compress_works_without_maintain_and_maintain_alone(session):
    await grow(session)
    node = await session.compress(summary="s")

    assert (await session.path())[0].status == "pending"
    assert (await session.maintain(node, judge=passes)).outcome == "pass"


async def test_a_failed_node_leaves_the_path_in_the_verdicts_commit_and_its_turns_are_raw_again(session):
    await grow(session)
    node = await session.compress(summary="a bad summary")

    verdict = await session.maintain(judge=fails)

    assert (verdict.outcome, verdict.missing) == ("fail", ("299 EUR",))
    assert await session.path() == []
    assert set((await statuses(session)).values()) == {"active"}
    context = await session.context()
    assert [message["content"] for message in context.messages] == [f"sentinel-{number}." for number in range(4)]
    assert [(made.no, made.status) async for made in session.nodes()] == [(node.no, "failed")]
    assert [(branch.no, branch.cause) async for branch in session.branches()] == [(verdict.reopened, "reopen")]
    assert await session.verify() is None


async def test_what_was_built_on_a_failed_node_leaves_the_path_with_it(session):
    await grow(session)
    first = await session.compress(summary="first")
    await grow(session)
    bad = await session.compress(summary="bad")
    await grow(session)
    await session.compress(summary="on top of it")

    await session.maintain(bad, judge=fails)

    assert [node.no for node in await session.path()] == [first.no]
    assert [node.status async for node in session.nodes()] == ["pending", "failed", "abandoned"]
    assert list((await statuses(session)).values()) == ["compressed"] * 4 + ["active"] * 8


async def test_as_of_a_failing_verdict_means_the_reopen_that_came_with_it(session):
    await grow(session)
    await session.compress(summary="bad")
    verdict = await session.maintain(judge=fails)
    after = (await session.context()).messages

    assert (await session.context(as_of=verdict.no)).messages == after
    assert (await session.context(as_of=verdict.no + 1)).messages == after
    assert (await session.context(as_of=verdict.no - 1)).messages != after


async def test_the_agent_that_talks_meanwhile_is_not_refused_by_a_fail(memory, key):
    agent, judge = await memory.session(key), await memory.session(key)
    await grow(agent)
    await agent.compress(summary="bad")
    await agent.context()

    await judge.maintain(judge=fails)

    assert (await agent.add_turn("assistant", "goes on")).no > 0


async def test_a_fail_that_leaves_too_many_raw_turns_is_followed_by_tool_clear_at_once(app_url, key):
    async with pgmem.open(app_url, policy=pgmem.Policy(threshold=8, keep_recent=2)) as memory:
        session = await memory.session(key)
        await grow(session, 10)
        await session.compress(summary="bad")

        await session.maintain(judge=fails)

        (node,) = await session.path()
        assert (node.strategy, node.last_no) == ("tool_clear", 8)


async def test_a_verdict_on_a_node_that_was_abandoned_meanwhile_is_kept_and_moves_nothing(session):
    await grow(session)
    node = await session.compress(summary="s")
    await session.erase()
    before = (await session.context()).messages

    verdict = await session.maintain(node, judge=fails)

    assert verdict.reopened is None
    assert (await session.context()).messages == before
    assert await session.verify() is None


async def test_a_pass_on_a_node_that_failed_before_does_not_bring_it_back(session):
    await grow(session)
    node = await session.compress(summary="s")
    await session.maintain(node, judge=fails)

    await session.maintain(node, judge=passes)

    assert await session.path() == []


async def test_nothing_pending_is_nothing_to_judge(session):
    assert await session.maintain(judge=raises) is None


@pytest.mark.parametrize("node", [99, 1])
async def test_an_unknown_node_is_a_typed_error_and_writes_nothing(session, node):
    await grow(session)

    with pytest.raises(pgmem.NodeNotFound):
        await session.maintain(node, judge=passes)

    assert await session.verify() is None


async def judged_none(request):
    return None


async def judged_a_text(request):
    return "PASS"


async def judged_nothing_known(request):
    return pgmem.Judgement(outcome="maybe")


async def judged_for_ever(request):
    await asyncio.Event().wait()


def answering(**fields):
    async def judge(request):
        return pgmem.Judgement(**({"outcome": "pass"} | fields))

    return judge


async def test_a_judge_may_say_its_outcome_as_a_text_and_a_nul_in_its_words_is_shown_as_what_it_is(session):
    await grow(session)
    await session.compress(summary="s")

    verdict = await session.maintain(judge=answering(outcome="fail", reason="a\0b", missing=["c\ud83d"]))

    assert (verdict.outcome, verdict.reason, verdict.missing) == (pgmem.Outcome.FAIL, "a\ufffdb", ("c\ufffd",))


@pytest.mark.parametrize(
    "fields", [{"usage": {"input_tokens": 1}}, {"model": 7}, {"missing": "abc"}, {"missing": [1]}, {"judge": ""}, {"reason": 5}]
)
async def test_a_judgement_with_a_part_of_another_type_is_no_verdict(session, fields):
    await grow(session)
    await session.compress(summary="s")

    with pytest.raises(pgmem.JudgeFailed):
        await session.maintain(judge=answering(**fields))


@pytest.mark.parametrize("judge", [raises, judged_none, judged_a_text, judged_nothing_known, judged_for_ever])
async def test_a_judge_that_breaks_gives_no_verdict_and_the_node_stays_pending(app_url, key, judge, monkeypatch):
    monkeypatch.setenv("PGMEM_MODEL_TIMEOUT_SECONDS", "0.3")
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)
        await grow(session)
        node = await session.compress(summary="s")

        with pytest.raises(pgmem.JudgeFailed) as caught:
            await session.maintain(judge=judge)

        assert caught.value.node == node.no
        assert [made.status for made in await session.path()] == ["pending"]


async def test_the_judge_sees_goal_memory_covered_turns_and_summary_and_nothing_else(memory, key):
    other = await memory.session(f"{key}-other", goal="another goal")
    await other.add_turns([user("secret of another session")])
    session = await memory.session(key, goal="book a hotel")
    await grow(session)
    await session.compress(summary="memory of before")
    await session.add_turns([user("covered"), calls("c"), result("c", "body")])
    await session.context()
    await session.compress(summary="the summary")
    await session.add_turns([user("later")])
    seen = []

    async def judge(request):
        seen.append(request)
        return await passes(request)

    await session.maintain(judge=judge)

    (request,) = seen
    assert (request.goal, request.memory, request.node.summary) == ("book a hotel", "memory of before", "the summary")
    assert [turn.message for turn in request.turns] == [user("covered"), calls("c"), result("c", "body")]


async def test_no_connection_is_held_while_a_judge_works(app_url, key):
    async with pgmem.open(app_url, pool_size=1) as memory:
        session = await memory.session(key)
        await grow(session)
        await session.compress(summary="s")

        async def judge(request):
            await session.add_turn("user", "meanwhile")
            return await fails(request)

        await session.maintain(judge=judge)

        assert (await session.context()).messages[-1] == user("meanwhile")


async def test_the_commit_of_a_fail_is_tried_again_and_the_judge_is_not_asked_again(memory, key):
    session, other = await memory.session(key), await memory.session(key)
    await grow(session)
    node = await session.compress(summary="bad")
    asked = []

    async def judge(request):
        asked.append(1)
        await grow(other)
        await other.compress(summary="on top of it, meanwhile")
        return await fails(request)

    verdict = await session.maintain(node, judge=judge)

    assert (asked, verdict.reopened is not None) == ([1], True)
    assert await session.path() == []


async def test_an_llm_judges_over_http_and_its_model_and_usage_are_stored(app_url, key):
    async with ScriptedModel([failing("drops the decision", missing=["pay by invoice"])]) as endpoint:
        model = pgmem.OpenAIModel("judge-x", base_url=endpoint.base_url, api_key="k")
        async with pgmem.open(app_url, judge_model=model) as memory:
            session = await memory.session(key, goal="the goal")
            await grow(session)
            await session.compress(summary="a summary")

            verdict = await session.maintain()

            assert (verdict.outcome, verdict.reason, verdict.missing) == ("fail", "drops the decision", ("pay by invoice",))
            assert verdict.model == "judge-x"
            assert [row.model for row in await session.usage()] == ["judge-x"]
            asked = str(endpoint.requests[0].body)
            assert "the goal" in asked
            assert "sentinel-2." in asked


async def test_an_llm_that_cannot_be_parsed_is_no_verdict(app_url, key):
    async with ScriptedModel(rule=lambda request: malformed()) as endpoint:
        model = pgmem.OpenAIModel("judge-x", base_url=endpoint.base_url, api_key="k", retry_attempts=1)
        async with pgmem.open(app_url, judge_model=model) as memory:
            session = await memory.session(key)
            await grow(session)
            await session.compress(summary="a summary")

            with pytest.raises(pgmem.JudgeFailed):
                await session.maintain()

            assert (await session.path())[0].status == "pending"


async def test_a_summary_is_written_by_a_model_over_http(app_url, key):
    async with ScriptedModel([summary("the updated memory")]) as endpoint:
        model = pgmem.OpenAIModel("writer-x", base_url=endpoint.base_url, api_key="k")
        async with pgmem.open(app_url, summary_model=model) as memory:
            session = await memory.session(key, goal="the goal")
            await grow(session, 20)

            node = await session.compress()

            assert (node.summary, node.strategy, node.model, node.cumulative) == ("the updated memory", "llm", "writer-x", True)
            assert len(endpoint.requests) == 1
            assert node.prompt_version
            (row,) = await session.usage()
            assert (row.model, row.calls) == ("writer-x", 1)


async def test_a_summariser_that_fails_raises_and_moves_nothing(app_url, key):
    async def ill(request):
        raise RuntimeError("no")

    async with pgmem.open(app_url, summary_model=ill) as memory:
        session = await memory.session(key)
        await grow(session)

        with pytest.raises(pgmem.SummaryFailed, match="RuntimeError"):
            await session.compress()

        assert set((await statuses(session)).values()) == {"active"}


@pytest.mark.parametrize("text", ["", "  \n", "x" * 40_000, None, 7])
async def test_what_cannot_be_a_summary_is_an_error_and_no_node(app_url, key, text):
    async def strategy(request):
        return text

    async with pgmem.open(app_url, summary_model=strategy) as memory:
        session = await memory.session(key)
        await grow(session)

        with pytest.raises(pgmem.SummaryFailed):
            await session.compress()

        assert [node async for node in session.nodes()] == []


async def test_the_memory_that_the_context_shows_goes_in_and_nothing_older(app_url, key):
    seen = []

    async def strategy(request):
        seen.append(request)
        return f"memory {len(seen)}"

    async with pgmem.open(app_url, summary_model=strategy) as memory:
        session = await memory.session(key)
        for _ in range(3):
            await grow(session)
            await session.compress()

    assert [request.memory for request in seen] == ["", "memory 1", "memory 2"]
    assert [len(request.turns) for request in seen] == [4, 4, 4]


async def test_a_failed_verdict_is_told_to_the_next_compress_there(app_url, key):
    seen = []

    async def strategy(request):
        seen.append(request)
        return f"attempt {len(seen)}"

    async with pgmem.open(app_url, summary_model=strategy) as memory:
        session = await memory.session(key)
        await grow(session)
        await session.compress()
        await session.maintain(judge=fails)
        await session.compress()

    assert [request.failures for request in seen] == [(), ("the price is gone; missing: 299 EUR",)]


async def test_a_sibling_that_was_abandoned_is_never_in_what_a_model_is_asked(app_url, key):
    seen = []

    async def strategy(request):
        seen.append(str(request))
        return "memory"

    async with pgmem.open(app_url, summary_model=strategy) as memory:
        session = await memory.session(key)
        start = await session.add_turn("user", "start")
        await session.add_turns([assistant("abandoned-sentinel")])
        await session.compress(summary="abandoned-summary")
        await session.revise(after_turn=start)
        await session.add_turn("assistant", "another way")
        await session.compress()

    assert "another way" in seen[0]
    assert "abandoned" not in seen[0]
    assert text_of


async def test_a_hanging_model_is_ended_at_its_deadline(app_url, key):
    async with ScriptedModel(rule=lambda request: hanging()) as endpoint:
        model = pgmem.OpenAIModel("m", base_url=endpoint.base_url, api_key="k", timeout_seconds=0.2, retry_attempts=1)
        async with pgmem.open(app_url, summary_model=model) as memory:
            session = await memory.session(key)
            await grow(session)

            with pytest.raises(pgmem.SummaryFailed):
                await session.compress()


async def test_a_model_judges_with_coverage_first(app_url, key):
    async with ScriptedModel([passing()]) as endpoint:
        model = pgmem.OpenAIModel("judge-x", base_url=endpoint.base_url, api_key="k")
        async with pgmem.open(app_url) as memory:
            session = await memory.session(key)
            await session.add_turns([user("my order is A-99812, pay 299 EUR to it"), assistant("done: A-99812 is paid")])
            await session.compress(summary="something was said")

            verdict = await session.maintain(judge=["coverage", model])

            assert (verdict.outcome, verdict.judge, len(endpoint.requests)) == ("fail", "coverage", 0)


async def test_without_a_node_only_what_the_context_shows_is_judged(session):
    await grow(session)
    first = await session.compress(summary="first")
    await grow(session)
    newer = await session.compress(summary="stands for the first one too", cumulative=True)
    await session.maintain(newer, judge=passes)

    assert await session.maintain(judge=fails) is None
    assert [node.no for node in await session.path()] == [first.no, newer.no]


async def test_what_tool_clear_made_is_judged_only_when_it_is_named(session):
    await grow(session)
    node = await session.compress(strategy="tool_clear")

    assert await session.maintain(judge=fails) is None
    assert (await session.maintain(node, judge=passes)).node == node.no


async def test_asking_until_nothing_is_pending_ends_whatever_the_judge_says(app_url, key):
    async with pgmem.open(app_url, policy=pgmem.Policy(threshold=3, keep_recent=1)) as memory:
        session = await memory.session(key)
        await grow(session, 6)
        await session.compress(summary="a summary", through=4)

        rounds = 0
        while await session.maintain(judge=fails) is not None:
            rounds += 1
            assert rounds < 3

        assert [(node.strategy, node.status) async for node in session.nodes()] == [("given", "failed"), ("tool_clear", "pending")]


async def test_a_judge_that_is_no_async_function_is_told_so(session):
    await grow(session)
    await session.compress(summary="a summary")

    with pytest.raises(pgmem.JudgeFailed, match="it must be an async function"):
        await session.maintain(judge=lambda request: pgmem.Judgement(outcome=pgmem.Outcome.PASS, judge="plain"))


@pytest.mark.parametrize("count", [1.5, "x", True, 10**30, -5, None, float("nan"), []])
async def test_a_usage_that_cannot_be_summed_is_no_verdict_and_breaks_no_sum(session, count):
    async def judge(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.PASS, usage=pgmem.Usage(input_tokens=count, output_tokens=0))

    await grow(session)
    await session.compress(summary="a summary")

    with pytest.raises(pgmem.JudgeFailed, match="usage is"):
        await session.maintain(judge=judge)

    assert await session.usage() == []
    assert (await session.path())[0].status == "pending"


@pytest.mark.parametrize("missing", [(None,), (5,), "abc", {"a": 1}])
async def test_what_is_missing_is_a_list_of_texts(session, missing):
    async def judge(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, missing=missing)

    await grow(session)
    await session.compress(summary="a summary")

    with pytest.raises(pgmem.JudgeFailed, match="missing is"):
        await session.maintain(judge=judge)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "says", "most"),
    [(Unspeakable(), r"\(Unspeakable\)", 300), (TimeoutError(), r"\(TimeoutError\)", 300), (ValueError("x" * 9**6), "x…", 1500)],
)
async def test_whatever_a_judge_raises_is_told_in_a_sentence(session, error, says, most):
    async def judge(request):
        raise error

    await grow(session)
    await session.compress(summary="a summary")

    with pytest.raises(pgmem.JudgeFailed, match=says) as caught:
        await session.maintain(judge=judge)

    assert len(str(caught.value)) < most


async def test_who_judged_the_newest_pending_node_too_late_gets_the_verdict_that_was_first(session):
    await grow(session)
    node = await session.compress(summary="s")
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def late(request):
        asked.set()
        await let_go.wait()
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="too late")

    waiting = asyncio.create_task(session.maintain(judge=late))
    await asked.wait()
    first = await session.maintain(node, judge=passes)
    let_go.set()

    assert await waiting == first
    assert [verdict async for verdict in session.verdicts()] == [first]
    assert [found.no for found in await session.path()] == [node.no]


async def test_a_fail_that_somebody_else_stored_first_is_told_and_not_acted_upon(memory, session):
    await grow(session, 12)
    node = await session.compress(summary="s")
    asked, let_go, events = asyncio.Event(), asyncio.Event(), []

    async def late(request):
        asked.set()
        await let_go.wait()
        return await passes(request)

    waiting = asyncio.create_task(session.maintain(judge=late))
    await asked.wait()
    first = await session.maintain(node, judge=fails)
    made = [found.no async for found in session.nodes()]
    memory.on_event(events.append)
    let_go.set()

    assert await waiting == first
    assert (first.outcome, events) == ("fail", [])
    assert [found.no async for found in session.nodes()] == made
