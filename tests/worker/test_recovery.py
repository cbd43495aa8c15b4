"""Workers that die, sleep and come back: each queued compaction ends once, as one node with one verdict."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace

import psycopg
import pytest

import pgmem
from pgmem.operations import compact, compress, policies
from pgmem.operations.compress import Asking, Extent
from pgmem.store import migrate
from tests.support.waiting import until
from tests.support.wire import Unplugged, serving
from tests.support.workers import Hangs, facts, grow, jobs, started, summarise, sweeps, working
from tests.worker.conftest import POLICY

BY_MODEL = replace(POLICY, strategy="llm")

ASLEEP = {"beat_seconds": 3600.0, "stalled_seconds": 7200.0, "sweep_seconds": 3600.0}
"""A worker that gives no sign of life, as one that is paused."""


async def awake(request):
    return "made by the one that is awake"


async def passes(request):
    return pgmem.Judgement(outcome=pgmem.Outcome.PASS, judge="awake")


class Sleep:
    """What a worker falls into in the middle of its work, until it is woken."""

    def __init__(self):
        self.begun, self._woken, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def fall(self):
        self.begun.set()
        await self._woken.wait()
        self.over.set()

    async def wake(self):
        self._woken.set()
        await self.over.wait()


@pytest.mark.parametrize("late_with", ["a summary", "a verdict"])
async def test_what_a_worker_brings_that_comes_back_late_is_refused(memory, url, key, late_with):
    sleep = Sleep()

    async def sleeps_and_writes(request):
        if late_with == "a summary":
            await sleep.fall()
        return "made by the one that slept"

    async def sleeps_and_judges(request):
        await sleep.fall()
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="too late", judge="asleep")

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, sleeps_and_writes, sleeps_and_judges, **ASLEEP) as sleeper:
        await sleep.begun.wait()
        async with working(url, awake, passes, stalled_seconds=1.0):
            done = await task
            await sleep.wake()
            sleeper.stop()
    summaries, verdicts, nodes = await facts(session)

    assert summaries == ["made by the one that is awake" if late_with == "a summary" else "made by the one that slept"]
    assert verdicts == [(nodes[0].no, "awake")]
    assert (done.node.no, done.node.status, done.verdict.judge) == (nodes[0].no, "compressed", "awake")
    assert await session.verify() is None


@pytest.mark.parametrize("error", [pgmem.ModelUnavailable("down"), pgmem.ModelRefused("no such model"), None])
async def test_how_a_late_run_ends_is_not_how_the_run_of_the_next_worker_ends(memory, url, key, server, own_database, error):
    first, second = Sleep(), Sleep()

    async def late(request):
        await first.fall()
        if error is not None:
            raise error
        return "made by the one that was late"

    async def next_one(request):
        await second.fall()
        return "made by the next one"

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, late, passes, **ASLEEP) as sleeper:
        await first.begun.wait()
        async with working(url, next_one, passes, stalled_seconds=1.0) as awake:
            await second.begun.wait()
            await first.wake()
            await until(lambda: sleeper.health.running == 0, "the late run is over")
            sleeper.stop()
            await until(lambda: not sleeper.health.working, "the late worker stops")
            meanwhile = jobs(server, own_database)
            await second.wake()
            done = await task.wait(timeout_seconds=30)
            ended = awake.health
    _, verdicts, nodes = await facts(session)

    assert meanwhile == [(1, "doing")]
    assert jobs(server, own_database) == [(1, "succeeded")]
    assert (ended.done, ended.failed, done.node.status) == (1, 0, "compressed")
    assert (len(nodes), len(verdicts)) == (1, 1)


PROGRAM = """
import asyncio, sys, pgmem
from tests.support.workers import facts, grow, jobs, started, summarise, sweeps, working

async def summarise(request):
    print("asked", flush=True)
    await asyncio.Event().wait()

async def main():
    async with pgmem.open(sys.argv[1], summary_model=summarise) as memory:
        await pgmem.Worker(memory, **QUICK).run()

asyncio.run(main())
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
async def test_the_job_of_a_process_that_is_killed_or_stopped_is_taken_over(memory, url, key, end):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    process = started(PROGRAM, url)
    try:
        await asyncio.to_thread(process.stdout.readline)
        process.send_signal(end)
        async with working(url, awake, passes, stalled_seconds=1.0):
            done = await task.wait(timeout_seconds=60)
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    summaries, verdicts, nodes = await facts(session)

    assert done.node.summary == "made by the one that is awake"
    assert (len(summaries), verdicts) == (1, [(nodes[0].no, "awake")])
    assert len([turn async for turn in session.turns()]) == 8


async def test_a_tree_that_nobody_queued_is_found_and_queued_once(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    await policies.keep(session._place, BY_MODEL)  # and then the owner died

    async with working(url, awake, passes, quiet_seconds=0.2) as worker:
        await until(lambda: worker.health.done == 1, "a job is done")
        await sweeps(worker, 2)

    assert jobs(server, own_database) == [(1, "succeeded")]
    assert [node.status for node in await session.path()] == ["compressed"]


async def test_a_tree_whose_swept_job_failed_is_not_queued_again_until_it_is_touched(memory, url, key, server, own_database):
    async def broken(request):
        raise pgmem.ModelRefused("no such model")

    session = await memory.session(key)
    await grow(session)
    await policies.keep(session._place, BY_MODEL)

    async with working(url, broken, passes, quiet_seconds=0.2) as worker:
        await until(lambda: worker.health.failed == 1, "a run has failed")
        await sweeps(worker, 3)
        once = jobs(server, own_database)
        await session.add_turn("user", "still here")
        await until(lambda: worker.health.failed == 2, "another run has failed")

    assert once == [(1, "failed")]
    assert jobs(server, own_database)[-1] == (2, "failed")


async def test_a_node_that_nobody_judged_is_found_and_judged_once(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    await policies.keep(session._place, BY_MODEL)
    asking = Asking(summariser=summarise, goal=None, max_summary_tokens=8000, deadline_seconds=10)
    # and then the owner died, before the verdict
    await compress.by_model(session._place, Extent(keep_recent=2), asking, kind=compact.KIND, label=None)

    async with working(url, awake, passes, quiet_seconds=0.2) as worker:
        await until(lambda: worker.health.done == 1, "a job is done")
        await sweeps(worker, 2)

    _, verdicts, nodes = await facts(session)
    assert verdicts == [(nodes[0].no, "awake")]
    assert len(jobs(server, own_database)) == 1


async def test_trees_without_stored_settings_are_left_alone(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session, 40)

    async with working(url, awake, passes, quiet_seconds=0.2) as worker:
        await sweeps(worker, 3)

    assert jobs(server, own_database) == []


async def test_a_lost_job_whose_tree_is_queued_again_already_gives_way(memory, url, key, server, own_database):
    hangs = Hangs()

    session = await memory.session(key)
    await grow(session)
    first = await session.compact_async()
    async with working(url, hangs, **ASLEEP | {"stop_seconds": 0.1}):
        await hangs.begun.wait()
        second = await session.compact_async()
        async with working(url, awake, passes, stalled_seconds=1.0):
            done = await second

    assert first.job_id != second.job_id
    assert done.node.status == "compressed"
    assert {status for _, status in jobs(server, own_database)} <= {"succeeded", "aborted"}


async def test_a_worker_waits_out_a_database_that_closes_its_connections(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    async with working(url, awake, passes) as worker:
        await until(lambda: worker.health.working, "the worker works")
        with psycopg.connect(server.on(own_database), autocommit=True) as connection:
            ended = connection.execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where datname = current_database() and application_name = 'pgmem worker'"
            ).fetchone()
        task = await session.compact_async()
        done = await task.wait(timeout_seconds=60)

    assert ended[0] > 0
    assert done.node.status == "compressed"


async def test_turns_that_are_to_stay_raw_stay_so_when_the_job_is_forgotten(memory, url, key, server, own_database):
    async def fails(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="no")

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async(on_fail="keep_raw")
    async with working(url, awake, fails, quiet_seconds=0.3) as worker:
        await task
        server.execute("delete from pgmem_queue.procrastinate_jobs", own_database)
        await sweeps(worker, 5)

    assert jobs(server, own_database) == []
    assert await session.path() == []


async def test_turns_that_a_revise_left_make_no_tree_due(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    await policies.keep(session._place, BY_MODEL)
    await session.revise(after_turn=2)

    async with working(url, awake, passes, quiet_seconds=0.2) as worker:
        await sweeps(worker, 4)

    assert jobs(server, own_database) == []


async def test_two_schemas_in_one_database_do_not_hear_of_each_others_jobs(server, url, own_database, key):
    migrate.upgrade(server.on(own_database), schema="other")
    asked, let_go, calls = asyncio.Event(), asyncio.Event(), []

    async def slow(request):
        calls.append(1)
        asked.set()
        await let_go.wait()
        return "made without a break"

    async with (
        pgmem.open(url, policy=POLICY, background="queue") as memory,
        pgmem.open(url, policy=POLICY, background="queue", schema="other") as others,
    ):
        mine, theirs = await memory.session(key), await others.session(key)
        await grow(mine)
        await grow(theirs)
        task, other = await mine.compact_async(), await theirs.compact_async()
        async with working(url, slow, passes) as worker:
            await asked.wait()
            assert (task.job_id, await other.cancel()) == (other.job_id, True)
            server.execute("update other_queue.procrastinate_jobs set status = 'doing'", own_database)
            await other.cancel()
            await asyncio.sleep(0.3)
            let_go.set()
            done = await task.wait(timeout_seconds=30)
            failed = worker.health.failed

    assert (done.node.summary, failed, len(calls)) == ("made without a break", 0, 1)


@pytest.mark.parametrize("at_time", ["infinity", "-infinity", "20000-01-01"])
async def test_a_job_of_a_time_that_python_cannot_hold_is_taken_over_as_others_are(memory, url, key, server, own_database, at_time):
    tasks = []
    for number in range(2):
        session = await memory.session(f"{key}/{number}")
        await grow(session)
        tasks.append(await session.compact_async())
    server.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'", own_database)  # by a worker that is gone
    server.execute(f"update pgmem_queue.procrastinate_jobs set scheduled_at = '{at_time}' where id = 1", own_database)

    async with working(url, awake, passes):
        done = [await task.wait(timeout_seconds=30) for task in tasks]

    assert [found.node.status for found in done] == ["compressed"] * 2


async def test_a_job_that_may_start_since_the_beginning_of_time_is_done_as_others_are(
    memory, url, key, server, own_database, caplog
):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    server.execute("update pgmem_queue.procrastinate_jobs set scheduled_at = '-infinity'", own_database)

    async with working(url, awake, passes):
        done = await task.wait(timeout_seconds=30)

    assert done.node.status == "compressed"
    assert "no more jobs are taken" not in caplog.text


async def test_a_worker_whose_connections_fell_silent_makes_others(memory, url, key, monkeypatch):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "3")
    session = await memory.session(key)
    await grow(session)
    first = await session.compact_async()
    async with serving(Unplugged(url)) as silent, working(silent.url, awake, passes, stalled_seconds=3600.0) as worker:
        await first.wait(timeout_seconds=30)
        await until(lambda: worker.health.running == 0, "its end is stored")
        silent.unplug()
        await grow(session)
        second = await session.compact_async()
        done = await second.wait(timeout_seconds=60)

    assert done.node.no > 8
    assert worker.health.done == 2
