"""A model that is slow, down or talks nonsense is asked a bounded number of times; then job and tree are in a clear state."""

from __future__ import annotations

import asyncio

import pytest

import pgmem
from pgmem.llm import pace
from pgmem.store.job_queue import MOST_RUNS
from pgmem.testing import ScriptedModel, empty, failing, failure, half, hanging, malformed, refusal, summary, text
from pgmem.worker import worker as worker_module
from tests.chaos.support import QUIET_SECONDS, job_statuses, open_jobs, talk
from tests.support.talk import statuses
from tests.support.waiting import until
from tests.support.workers import working

ATTEMPTS = 2
"""Requests that one question may take."""

SWEEPS = 12
"""So many sweeps in peace, which take longer than a tree needs to count as forgotten: then nothing more comes."""

BAD = {
    "slow": lambda request: summary("too late").after(30),
    "silent": lambda request: hanging(),
    "refusing": lambda request: refusal(),
    "empty": lambda request: empty(),
    "over-long": lambda request: text("word " * 100_000),
    "malformed": lambda request: malformed(),
    "429": lambda request: failure(429, retry_after_seconds=0),
    "429 for an hour": lambda request: failure(429, retry_after_seconds=3600),
    "500": lambda request: failure(500),
    "half a stream": lambda request: half(),
    "echoing": lambda request: text(request.prompt),
    "401": lambda request: failure(401),
}

BAD_SUMMARIES = BAD | {
    "empty in the right form": lambda request: summary(" \n"),
    "over-long in the right form": lambda request: summary("word " * 100_000),
    "echoing in the right form": lambda request: summary(request.prompt),
}

TIMEOUT_SECONDS = {"slow": 0.1, "silent": 0.1}
"""How long a request may take, where that is what the test is about."""

ONE_RUN = {"refusing", "401"}
"""What asking again cannot mend: the job is not run again."""


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "FIRST_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(worker_module, "LONGEST_ASKED_SECONDS", 0.01)


def asked_for(endpoint: ScriptedModel, kind: str) -> int:
    return sum(request.asks_for == kind for request in endpoint.requests)


async def at_peace(owner, worker: pgmem.Worker, endpoint: ScriptedModel) -> None:
    """Waits until no job is left and several sweeps in a row brought no request; fails when that does not come."""
    seen, quiet_since = -1, 0
    swept, sweeps = worker.health.swept_at, 0

    async def is_quiet() -> bool:
        nonlocal seen, quiet_since, swept, sweeps
        if worker.health.swept_at != swept:
            swept, sweeps = worker.health.swept_at, sweeps + 1
        if len(endpoint.requests) != seen or await open_jobs(owner):
            seen, quiet_since = len(endpoint.requests), sweeps
        return sweeps - quiet_since >= SWEEPS

    await until(is_quiet, f"{SWEEPS} sweeps brought no request", within_seconds=90)


@pytest.fixture
async def play(memory, url, key, owner):
    """Queues a compaction and has a worker at it until all is quiet; gives the session, the endpoint and the jobs' statuses."""

    async def played(kind: str, bad, *, timeout_seconds: float = 30.0, **options):
        session = await memory.session(key)
        await session.add_turns(talk())
        async with ScriptedModel(rule=lambda request: bad(request) if request.asks_for == kind else None) as endpoint:
            whole = pgmem.OpenAIModel("whole", base_url=endpoint.base_url)
            broken = pgmem.OpenAIModel(
                "broken", base_url=endpoint.base_url, timeout_seconds=timeout_seconds, retry_attempts=ATTEMPTS
            )
            writer, judge = (broken, whole) if kind == "summary" else (whole, broken)
            await session.compact_async(**options)
            async with whole, broken, working(url, writer, judge, quiet_seconds=QUIET_SECONDS) as worker:
                await at_peace(owner, worker, endpoint)
        return session, endpoint, await job_statuses(owner)

    return played


async def assert_whole(session: pgmem.Session) -> None:
    assert await session.verify() is None
    assert [turn.content async for turn in session.turns()] == [message["content"] for message in talk()]


@pytest.mark.parametrize("name", BAD_SUMMARIES)
async def test_a_summariser_that_gives_none_fails_the_job_and_leaves_the_turns_raw(play, name):
    session, endpoint, ended = await play("summary", BAD_SUMMARIES[name], timeout_seconds=TIMEOUT_SECONDS.get(name, 30.0))

    runs = 1 if name in ONE_RUN else MOST_RUNS
    assert ended == {"failed": 1}
    assert runs <= len(endpoint.requests) <= runs * ATTEMPTS
    assert [node async for node in session.nodes()] == []
    assert set((await statuses(session)).values()) == {"active"}
    assert (await session.context()).messages == talk()
    await assert_whole(session)


@pytest.mark.parametrize("name", BAD)
async def test_a_judge_that_gives_no_verdict_fails_the_job_and_leaves_one_pending_node(play, name):
    session, endpoint, ended = await play("judgement", BAD[name], timeout_seconds=TIMEOUT_SECONDS.get(name, 30.0))

    # a node without a verdict is found by a sweep once: a second job
    runs = 2 * (1 if name in ONE_RUN else MOST_RUNS)
    assert ended == {"failed": 2}
    assert asked_for(endpoint, "summary") == 1
    assert runs <= asked_for(endpoint, "judgement") <= runs * ATTEMPTS
    assert [node.status async for node in session.nodes()] == ["pending"]
    assert [verdict async for verdict in session.verdicts()] == []
    await assert_whole(session)


async def test_a_judge_that_fails_every_summary_is_asked_so_often_as_there_are_attempts_and_tool_clear_ends_it(play):
    session, endpoint, ended = await play("judgement", lambda request: failing("it drops it"))

    attempts = pgmem.Policy().max_attempts
    assert ended == {"succeeded": 1}
    assert (asked_for(endpoint, "summary"), asked_for(endpoint, "judgement")) == (attempts, attempts)
    assert [node.strategy for node in await session.path()] == ["tool_clear"]
    await assert_whole(session)


async def test_turns_that_shall_stay_raw_after_a_fail_stay_raw_and_nobody_is_asked_again(play):
    session, endpoint, ended = await play("judgement", lambda request: failing("it drops it"), on_fail="keep_raw")

    assert ended == {"succeeded": 1}
    assert (asked_for(endpoint, "summary"), asked_for(endpoint, "judgement")) == (1, 1)
    assert await session.path() == []
    assert (await session.context()).messages == talk()
    await assert_whole(session)


async def test_a_model_that_comes_back_is_not_too_late(memory, url, key, owner):
    down = asyncio.Event()
    rule = lambda request: None if down.is_set() else failure(503)  # noqa: E731 - a rule in a line
    session = await memory.session(key)
    await session.add_turns(talk())
    async with ScriptedModel(rule=rule) as endpoint:
        model = pgmem.OpenAIModel("m", base_url=endpoint.base_url, retry_attempts=ATTEMPTS)
        task = await session.compact_async()
        async with model, working(url, model, model, quiet_seconds=QUIET_SECONDS):
            await endpoint.asked(ATTEMPTS + 1)  # the second run
            down.set()
            done = await task.wait(timeout_seconds=60)

    assert (done.node.status, done.verdict.outcome) == ("compressed", "pass")
    assert await job_statuses(owner) == {"succeeded": 1}
