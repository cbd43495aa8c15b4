"""A summary that nobody judged, since its maker died: judged before another one is built on it, whoever goes on."""

from __future__ import annotations

import asyncio

import pytest

import pgmem
from pgmem.operations import compact, compress
from pgmem.operations.compress import Asking, Extent
from tests.support.workers import facts, grow, passes, summarise, working
from tests.worker.conftest import POLICY


async def left_unjudged(session):
    asking = Asking(summariser=summarise, goal=None, max_summary_tokens=8000, deadline_seconds=10)
    await compress.by_model(session._place, Extent(keep_recent=2), asking, kind=compact.KIND, label=None)


@pytest.fixture
async def session(memory, key):
    """One with such a summary, which talked on."""
    made = await memory.session(key)
    await grow(made)
    await left_unjudged(made)
    await grow(made)
    return made


@pytest.mark.parametrize("model", ["away", "there"])
async def test_keep_raw_stops_also_after_a_fail_of_what_an_earlier_one_left_unjudged(session, url, model):
    asked = []

    async def writes(request):
        asked.append(1)
        if model == "away":
            raise pgmem.ModelUnavailable("down")
        return "another one"

    async def fails(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="it drops the hinge")

    task = await session.compact_async(on_fail="keep_raw")
    async with working(url, writes, fails):
        done = await task.wait(timeout_seconds=30)
    _, _, nodes = await facts(session)

    assert (done.node, done.verdict.outcome, asked) == (None, "fail", [])
    assert [node.status for node in nodes] == ["failed"]
    assert {turn.status async for turn in session.turns()} == {"active"}


async def test_tool_clear_bounds_the_context_also_while_the_judge_is_away(session, url):
    async def away(request):
        raise pgmem.ModelUnavailable("down")

    task = await session.compact_async(strategy="tool_clear")
    async with working(url, summarise, away):
        done = await task.wait(timeout_seconds=30)

    assert done.node.strategy == "tool_clear"
    assert len((await session.context()).messages) < 6


async def test_no_summary_is_built_on_an_unjudged_one_with_another_topic_between(memory, url, key):
    session = await memory.session(key)
    await grow(session)
    await left_unjudged(session)
    await session.add_turn("user", "now for something else")
    await session.compress(summary="something else", kind="topic")
    await grow(session)
    async with pgmem.open(url, policy=POLICY, summary_model=summarise, judge_model=passes) as own:
        await (await (await own.session(key)).compact_async())
    _, verdicts, nodes = await facts(session)

    assert [node.no for node in nodes if node.kind == compact.KIND] == [node for node, _ in verdicts]


async def test_a_worker_without_a_model_judges_what_it_finds_before_it_builds_on_it(session, url):
    task = await session.compact_async()

    async with working(url, None, passes):
        done = await task.wait(timeout_seconds=30)
    _, verdicts, nodes = await facts(session)

    assert verdicts == [(nodes[0].no, "test")]
    assert [(node.strategy, node.status) for node in nodes] == [("llm", "compressed"), ("tool_clear", "pending")]
    assert done.node.no == nodes[1].no


async def test_a_summary_that_comes_in_between_without_a_verdict_is_judged_before_another_one_is_built_on_it(memory, url, key):
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def asks(request):
        begun.set()
        await let_go.wait()
        return f"made of {request.turns[0].no} to {request.turns[-1].no}"

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, asks, passes):
        await begun.wait()
        await left_unjudged(session)  # by one that was late, and died before its verdict
        await grow(session, 10)
        let_go.set()
        await task.wait(timeout_seconds=30)
    _, verdicts, nodes = await facts(session)

    assert len(nodes) == 2
    assert [node.no for node in nodes] == [node for node, _ in verdicts]
    assert {node.status for node in nodes} == {"compressed"}
