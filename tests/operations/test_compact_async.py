"""compact_async: the compaction is off the response path, owned, joined, retried, and bounded."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from pathlib import Path

import pytest

import pgmem
from pgmem.testing import ScriptedModel, failing, failure, passing, summary
from tests.support.talk import assistant, fault_of_provider, user

ROOT = Path(__file__).parents[2]
POLICY = pgmem.Policy(threshold=6, keep_recent=2)
MEANWHILE = 1_000 if os.environ.get("PGMEM_TEST_LONG") else 200


async def grow(session, count=8):
    await session.add_turns([(user, assistant)[number % 2](f"turn {number} says several words.") for number in range(count)])


def models(endpoint):
    model = pgmem.OpenAIModel("m", base_url=endpoint.base_url, api_key="k", retry_attempts=1)
    return {"summary_model": model, "judge_model": model}


async def test_it_compresses_and_judges_and_the_task_tells_all(app_url, key):
    async with ScriptedModel([summary("memory"), passing()]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)

            task = await session.compact_async()
            done = await task

            assert (done.node.summary, done.verdict.outcome, done.attempts, task.done, task.error) == (
                "memory",
                "pass",
                1,
                True,
                None,
            )
            assert [node.status for node in await session.path()] == ["compressed"]


async def test_it_returns_at_once_and_the_agent_goes_on(app_url, key):
    asked, answered = asyncio.Event(), asyncio.Event()

    async def when_let(request):
        asked.set()
        await answered.wait()
        return summary("memory") if request.asks_for == "summary" else passing()

    async with ScriptedModel(rule=when_let) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, pool_size=1, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)
            began, sent = time.perf_counter(), memory.round_trips
            task = await session.compact_async()
            took, sent = time.perf_counter() - began, memory.round_trips - sent
            await asked.wait()
            for number in range(50):
                await session.add_turn("user", f"meanwhile {number}")
                await session.context()
            still_working = not task.done
            answered.set()

            done = await task

            assert took < 0.05
            assert sent == 0
            assert still_working
            assert "meanwhile" not in done.node.summary
            assert len([turn async for turn in session.turns(status="active")]) == 52


async def test_a_second_call_joins_the_one_under_way(app_url, key):
    async with ScriptedModel([summary("memory"), passing()]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)

            tasks = [await session.compact_async() for _ in range(3)]
            results = await asyncio.gather(*tasks)

            assert len({id(task) for task in tasks}) == 1
            assert len({result.node.no for result in results}) == 1
            assert len(endpoint.requests) == 2


async def test_a_failed_summary_is_tried_again_with_what_the_judge_said(app_url, key):
    async with ScriptedModel([summary("bad"), failing("drops the price"), summary("good"), passing()]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)

            done = await (await session.compact_async())

            assert (done.attempts, done.node.summary, done.verdict.outcome) == (2, "good", "pass")
            assert "drops the price" in str(endpoint.requests[2].body)
            assert [node.status async for node in session.nodes()] == ["failed", "compressed"]


async def test_after_three_failures_tool_clear_makes_the_node_and_an_event_says_so(app_url, key):
    answers = [answer for number in range(3) for answer in (summary(f"bad {number}"), failing("no"))]
    async with ScriptedModel(answers) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            events = []
            memory.on_event(events.append)
            session = await memory.session(key)
            await grow(session)

            done = await (await session.compact_async())

            assert (done.attempts, done.node.strategy, len(endpoint.requests)) == (3, "tool_clear", 6)
            assert [node.status async for node in session.nodes()] == ["failed"] * 3 + ["pending"]
            assert sum(isinstance(event, pgmem.AttemptsExhausted) for event in events) == 1


async def test_keep_raw_leaves_the_turns_raw_after_a_fail(app_url, key):
    async with ScriptedModel([summary("bad"), failing("no")]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)

            done = await (await session.compact_async(on_fail="keep_raw"))

            assert (done.node, done.verdict.outcome, done.attempts) == (None, "fail", 1)
            assert await session.path() == []


async def test_keep_raw_asks_nobody_and_leaves_the_turns_raw_once_the_attempts_are_used_up(app_url, key):
    async with ScriptedModel(rule=lambda request: summary("bad") if request.asks_for == "summary" else failing("no")) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)

            ends = [await (await session.compact_async(on_fail="keep_raw")) for _ in range(5)]

            assert [(done.node, done.attempts) for done in ends] == [(None, 1)] * 3 + [(None, 0)] * 2
            assert len(endpoint.requests) == 6
            assert await session.path() == []


async def test_below_the_threshold_no_model_is_asked(app_url, key):
    async with ScriptedModel() as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session, 5)

            done = await (await session.compact_async())

            assert (done.node, done.verdict, done.attempts, len(endpoint.requests)) == (None, None, 0, 0)


async def test_without_a_summary_model_tool_clear_makes_the_node_and_nobody_judges_it(app_url, key):
    async with pgmem.open(app_url, policy=POLICY) as memory:
        session = await memory.session(key)
        await grow(session)

        done = await (await session.compact_async())

        assert (done.node.strategy, done.verdict, done.attempts) == ("tool_clear", None, 0)


async def test_without_a_judge_model_coverage_judges(app_url, key):
    async def strategy(request):
        return "nothing of what was said"

    async with pgmem.open(app_url, policy=POLICY, summary_model=strategy) as memory:
        session = await memory.session(key)
        await session.add_turns([user(f"order A-{number}5512 costs {number}99 EUR") for number in range(8)])

        done = await (await session.compact_async(on_fail="keep_raw"))

        assert (done.verdict.judge, done.verdict.outcome) == ("coverage", "fail")


async def test_a_task_that_nobody_keeps_or_awaits_still_ends_and_its_error_is_logged(app_url, key, caplog):
    async with ScriptedModel(rule=lambda request: failure(500)) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            failed = asyncio.Event()
            memory.on_event(lambda event: failed.set() if isinstance(event, pgmem.CompactionFailed) else None)
            session = await memory.session(key)
            await grow(session)

            await session.compact_async()
            gc.collect()
            await asyncio.wait_for(failed.wait(), 10)

    assert "the compaction of session" in caplog.text
    assert "never retrieved" not in caplog.text


async def test_awaiting_a_failed_task_raises_and_the_next_call_starts_anew(app_url, key):
    async with ScriptedModel([failure(500), summary("memory"), passing()]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)
            task = await session.compact_async()

            with pytest.raises(pgmem.SummaryFailed):
                await task

            assert isinstance(task.error, pgmem.SummaryFailed)
            assert (await (await session.compact_async())).node.summary == "memory"


async def test_who_is_cancelled_while_awaiting_does_not_cancel_the_compaction(app_url, key):
    async with ScriptedModel([summary("memory").after(0.3), passing()]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)
            task = await session.compact_async()

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.05)

            assert (await task).node.summary == "memory"


async def test_leaving_open_waits_for_the_compaction(app_url, key):
    async with ScriptedModel([summary("memory").after(0.3), passing()]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)
            await session.compact_async()
        async with pgmem.open(app_url) as memory:
            path = await (await memory.session(key)).path()

    assert [node.summary for node in path] == ["memory"]


async def test_what_does_not_end_in_time_is_ended_logged_and_can_be_compacted_again(app_url, key, caplog, monkeypatch):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "0.5")

    async def strategy(request):
        await asyncio.Event().wait()

    async with pgmem.open(app_url, policy=POLICY, summary_model=strategy) as memory:
        session = await memory.session(key)
        await grow(session)
        await session.compact_async()

    assert "did not end within" in caplog.text
    async with pgmem.open(app_url, policy=POLICY) as memory:
        assert (await (await memory.session(key)).compact()) is not None


async def test_leaving_that_is_cancelled_leaves_no_compaction_behind(app_url, key, caplog):
    async def strategy(request):
        await asyncio.Event().wait()

    working = asyncio.Event()

    async def work():
        async with pgmem.open(app_url, policy=POLICY, summary_model=strategy) as memory:
            for number in range(6):
                session = await memory.session(f"{key}/{number}")
                await grow(session)
                await session.compact_async()
            working.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await working.wait()
    task.cancel()
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.1)

    assert [left.get_name() for left in asyncio.all_tasks() if "compaction" in left.get_name()] == []
    assert "6 did not end within" in caplog.text


async def test_many_turns_and_contexts_wait_for_no_lock_meanwhile(app_url, key, owner):
    enough = asyncio.Event()

    async def rule(request):
        await enough.wait()
        return summary("memory") if request.asks_for == "summary" else passing()

    async with ScriptedModel(rule=rule) as endpoint:
        async with pgmem.open(f"{app_url} application_name={key}", policy=POLICY, pool_size=1, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)
            task = await session.compact_async()
            seen = asyncio.create_task(sampled(owner, key, task))
            await endpoint.asked()
            for number in range(MEANWHILE):
                await session.add_turn("user", f"meanwhile {number}")
                context = await session.context()
            enough.set()
            done = await task
            samples, waits, oldest = await seen

    assert fault_of_provider(context.messages) is None
    assert done.node.status == "compressed"
    assert samples > 10
    assert waits == 0
    assert oldest < 0.1


async def sampled(owner, name, task):
    """How often a look at the server found one of ours waiting for a lock, and the longest open transaction in seconds."""
    samples, waits, oldest = 0, 0, 0.0
    while not task.done:
        found = await owner.execute(
            "select count(*) filter (where wait_event_type = 'Lock') as waits,"
            " coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0)::float8 as oldest"
            " from pg_stat_activity where application_name = %s",
            (name,),
        )
        row = await found.fetchone()
        samples, waits, oldest = samples + 1, waits + row["waits"], max(oldest, row["oldest"])
        await asyncio.sleep(0.01)
    return samples, waits, oldest


@pytest.mark.parametrize("arguments", [{"on_fail": "explode"}, {"threshold": 0}, {"keep_recent": 6}, {"strategy": "magic"}])
async def test_wrong_arguments_are_refused_at_the_call(app_url, key, arguments):
    async with pgmem.open(app_url, policy=POLICY) as memory:
        session = await memory.session(key)

        with pytest.raises(pgmem.InvalidArgument):
            await session.compact_async(**arguments)


async def test_llm_without_a_model_is_refused_at_the_call(session):
    with pytest.raises(pgmem.NoSummaryModel):
        await session.compact_async(strategy="llm")


async def test_a_model_that_goes_away_after_a_fail_leaves_a_bounded_context_and_an_error(app_url, key):
    async with ScriptedModel([summary("bad"), failing("no"), failure(500)]) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            session = await memory.session(key)
            await grow(session)

            with pytest.raises(pgmem.SummaryFailed):
                await (await session.compact_async())

            assert [node.strategy for node in await session.path()] == ["tool_clear"]


PROGRAM = """
import asyncio, sys, pgmem

async def strategy(request):
    print("asked", flush=True)
    await asyncio.Event().wait()

async def main():
    async with pgmem.open(sys.argv[1], policy=pgmem.Policy(threshold=6, keep_recent=2), summary_model=strategy) as memory:
        session = await memory.session(sys.argv[2])
        await (await session.compact_async())

asyncio.run(main())
"""


async def test_a_process_killed_in_the_middle_leaves_no_half_node_and_the_next_one_compacts(memory, app_url, key):
    session = await memory.session(key)
    await grow(session)
    before = await session.context()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, app_url, key, stdout=pipe, cwd=ROOT)
    assert await process.stdout.readline() == b"asked\n"

    process.kill()
    await process.communicate()

    assert (await session.context()).messages == before.messages
    assert await session.path() == []
    assert (await session.compact(threshold=6, keep_recent=2)).last_no == 6
    assert await session.verify() is None


async def test_a_compaction_that_cancels_itself_is_logged(app_url, key, caplog):
    async def cancels(request):
        raise asyncio.CancelledError

    async with pgmem.open(app_url, policy=POLICY, summary_model=cancels) as memory:
        session = await memory.session(key)
        await grow(session)
        task = await session.compact_async()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert "was cancelled" in caplog.text


@pytest.mark.parametrize("outcome", ["pass", "fail"])
async def test_a_node_that_left_the_path_while_it_was_judged_is_not_said_to_stand(app_url, key, outcome):
    async def strategy(request):
        return "a summary"

    async def judge(request):
        await session.erase()
        return pgmem.Judgement(outcome=pgmem.Outcome(outcome))

    async with pgmem.open(app_url, policy=POLICY, summary_model=strategy, judge_model=judge) as memory:
        session = await memory.session(key)
        await grow(session)

        done = await (await session.compact_async())

    assert (done.node, done.verdict.outcome) == (None, outcome)


async def test_leaving_does_not_wait_for_a_strategy_that_swallows_its_cancellation(app_url, key, monkeypatch):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "0.3")
    monkeypatch.setattr("pgmem.operations.background.GRACE_SECONDS", 0.2)
    let_go = asyncio.Event()

    async def stubborn(request):
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    async with asyncio.timeout(20):
        async with pgmem.open(app_url, policy=POLICY, summary_model=stubborn) as memory:
            session = await memory.session(key)
            await grow(session)
            task = await session.compact_async()
    left = not task.done
    let_go.set()
    with pytest.raises(pgmem.PgmemError):
        await task

    assert left


async def test_a_closed_memory_starts_no_compaction(app_url, key):
    async with pgmem.open(app_url, policy=POLICY) as memory:
        session = await memory.session(key)
        await grow(session)

    with pytest.raises(pgmem.DatabaseUnavailable, match="this Memory is closed"):
        await session.compact_async()


async def test_below_the_threshold_used_up_attempts_are_no_event(app_url, key):
    async with ScriptedModel(rule=lambda request: summary("bad") if request.asks_for == "summary" else failing("no")) as endpoint:
        async with pgmem.open(app_url, policy=POLICY, **models(endpoint)) as memory:
            events = []
            memory.on_event(events.append)
            session = await memory.session(key)
            turns = await session.add_turns([user(f"turn {number} says several words.") for number in range(8)])
            for _ in range(3):
                await (await session.compact_async(on_fail="keep_raw"))
            await session.revise(after_turn=turns[4])

            await (await session.compact_async(on_fail="keep_raw"))

            assert not any(isinstance(event, pgmem.AttemptsExhausted) for event in events)
