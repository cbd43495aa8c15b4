"""How a run of a job ends, and what becomes of the job: it is run again, gives way, has failed, is cancelled."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise

import psycopg
import pytest

import pgmem
from pgmem.store import job_queue, job_runs
from pgmem.store.job_queue import MOST_RUNS
from pgmem.worker.runs import Runs
from tests.support.waiting import until
from tests.support.workers import Hangs, facts, grow, jobs, passes, started, summarise, sweeps, working


async def test_a_failed_run_gives_way_to_the_job_that_waits_and_who_awaits_it_goes_on_with_that(memory, url, key):
    asked, let_go, tries = asyncio.Event(), asyncio.Event(), []

    async def down_at_first(request):
        tries.append(1)
        asked.set()
        await let_go.wait()
        if len(tries) == 1:
            raise pgmem.ModelUnavailable("down for a moment")
        return "made by the second job"

    session = await memory.session(key)
    await grow(session)
    first = await session.compact_async()
    async with working(url, down_at_first, passes):
        await asked.wait()
        second = await session.compact_async()
        numbers = (first.job_id, second.job_id)
        let_go.set()
        done = await first.wait(timeout_seconds=60)

    assert numbers[0] != numbers[1]
    assert (first.job_id, done.node.summary) == (numbers[1], "made by the second job")


async def test_a_job_whose_end_could_not_be_stored_is_given_back_by_the_next_sweeps(memory, url, key, monkeypatch):
    finish, failures = Runs.finish_job, []

    async def broken_once(self, **arguments):
        if not failures:
            failures.append(1)
            raise RuntimeError("the statement failed")
        await finish(self, **arguments)

    monkeypatch.setattr(Runs, "finish_job", broken_once)
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, summarise, passes):
        done = await task.wait(timeout_seconds=60)
    summaries, verdicts, _ = await facts(session)

    assert (failures, done.node.status) == ([1], "compressed")
    assert (len(summaries), len(verdicts)) == (1, 1)


async def test_a_strategy_that_cancels_itself_is_run_so_often_and_not_for_ever(memory, url, key, monkeypatch):
    monkeypatch.setattr("pgmem.worker.worker.FIRST_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("pgmem.worker.worker.FIRST_AGAIN_SECONDS", 0.001)
    asked = []

    async def cancels(request):
        asked.append(1)
        raise asyncio.CancelledError

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, cancels):
        with pytest.raises(pgmem.CompactionLost, match="failed"):
            await task.wait(timeout_seconds=60)

    assert len(asked) == 8


async def test_pauses_and_the_bound_of_runs_hold_while_the_talk_goes_on(memory, url, key, monkeypatch, server, own_database):
    monkeypatch.setattr("pgmem.worker.worker.FIRST_AGAIN_SECONDS", 0.05)
    asked = []

    async def down(request):
        asked.append(asyncio.get_running_loop().time())
        raise pgmem.ModelUnavailable("down for a while")

    session = await memory.session(key)
    await grow(session)
    await session.compact_async()
    async with working(url, down):
        async with asyncio.timeout(60):
            while "failed" not in {status for _, status in jobs(server, own_database)}:
                await session.compact_async()
                await asyncio.sleep(0.01)
    pauses = [later - earlier for earlier, later in pairwise(asked[:8])]

    assert len(asked) in (8, 9)  # the next job of the tree may have begun
    assert all(pause >= 0.05 * 2**number for number, pause in enumerate(pauses))


async def test_the_wait_that_a_models_server_asks_for_is_kept(memory, url, key, server, own_database):
    async def busy(request):
        raise pgmem.ModelUnavailable("come back later", status=429, retry_after_seconds=600)

    session = await memory.session(key)
    await grow(session)
    await session.compact_async()
    async with working(url, busy) as worker:
        await until(lambda: jobs(server, own_database) == [(1, "todo")] and worker.health.failed, "it waits again")
    with psycopg.connect(server.on(own_database)) as connection:
        seconds = "select extract(epoch from scheduled_at - now()) from pgmem_queue.procrastinate_jobs"
        assert 590 < connection.execute(seconds).fetchone()[0] <= 600


ODD = (
    "[1, 2]",
    "5",
    '"x"',
    "null",
    '{"session_id": 1e400}',
    '{"session_id": "abc"}',
    '{"session_id": 100000000000000000000000, "namespace": "main", "policy": 9, "last_no": 9}',
    '{"session_id": 1, "namespace": "main", "policy": -1, "last_no": 9}',
    '{"session_id": 1, "namespace": "main", "policy": true, "last_no": 9}',
    '{"self": 1, "context": 2, "told": 3, "task": 4}',
)
"""What a job of ours is never told."""


async def test_what_is_no_job_of_ours_fails_once_and_holds_nobody_up(memory, url, key, server, own_database, caplog):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    odd = [("pgmem.compact", args) for args in ODD]
    odd += [("somebody.elses", '{"session_id": 1, "namespace": "main", "policy": 9, "last_no": 9}')]
    for number, (name, args) in enumerate(odd):
        server.execute(
            "insert into pgmem_queue.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)"
            f" values ('pgmem', '{name}', 'bad {number}', 'bad {number}', '{args}')",
            own_database,
        )
    server.execute(
        "insert into pgmem.trees (session_id, namespace, chain) values (1, 'odd', sha256(''));"
        "insert into pgmem.policies (session_id, namespace, no, policy, chain, created_at)"
        """ values (1, 'odd', 1, '{"threshold": "many"}', sha256(''), now())""",
        own_database,
    )
    async with working(url, summarise, passes, quiet_seconds=0.2) as worker:
        await task.wait(timeout_seconds=30)
        await until(lambda: worker.health.failed == len(odd), "the others have failed")
        await sweeps(worker, 3)
        listed = await job_queue.listed(memory._database, status="failed", most=100)

    assert [job.attempts for job in listed] == [1] * len(odd)
    assert [job.error for job in listed if job.error is None] == [None] * 4  # where there is no object to hold it
    assert {job.error for job in listed} == {None, "InvalidArgument"}
    assert {job.namespace for job in listed if job.session} <= {"main"}
    assert "Task was not found" not in caplog.text


EXITS = """
import asyncio, sys, pgmem
from tests.support.workers import QUICK

async def summarise(request):
    sys.exit(7)

async def main():
    async with pgmem.open(sys.argv[1], summary_model=summarise) as memory:
        await pgmem.Worker(memory, **QUICK).run()

asyncio.run(main())
"""


async def test_an_exit_that_a_strategy_asks_for_ends_the_process_and_the_job_waits_again(memory, url, key):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    process = started(EXITS, url)
    code = await asyncio.to_thread(process.wait, 30)
    process.stdout.close()

    assert code == 7
    assert await task.status() == "todo"


async def test_the_second_job_of_a_tree_begins_when_the_first_one_ends(memory, url, key):
    ends = []

    async def quick(request):
        ends.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.3)
        return "what was said"

    session = await memory.session(key)
    async with working(url, quick, passes, sweep_seconds=60.0):
        await grow(session)
        first = await session.compact_async()
        await until(lambda: ends, "the first one is under way")
        await grow(session)
        second = await session.compact_async()
        await first.wait(timeout_seconds=30)
        await second.wait(timeout_seconds=30)

    assert first.job_id != second.job_id
    assert ends[1] - ends[0] < 3  # and not after the five seconds between two looks at the queue


async def test_a_strategy_that_refuses_for_good_fails_the_job_and_the_waiter_is_told(memory, url, key):
    async def broken(request):
        raise pgmem.ModelRefused("no such model")

    session = await memory.session(key)
    await grow(session)

    task = await session.compact_async()
    async with working(url, broken) as worker:
        with pytest.raises(pgmem.CompactionLost, match="failed: the turns stay") as caught:
            await task
        health = worker.health

    assert (caught.value.job_id, caught.value.status, health.failed) == (task.job_id, "failed", 1)
    assert await session.path() == []


async def test_a_job_that_may_pass_later_is_run_again(memory, url, key, monkeypatch):
    tries = []

    async def once_broken(request):
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("for a moment")
        return "at last"

    session = await memory.session(key)
    await grow(session)

    task = await session.compact_async()
    async with working(url, once_broken, passes):
        done = await task

    assert (done.node.summary, len(tries)) == ("at last", 2)


async def test_a_job_that_runs_is_stopped_when_it_is_cancelled_and_not_run_again(memory, url, key):
    hangs = Hangs()

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, hangs):
        await hangs.begun.wait()
        hangs.begun.clear()
        assert await task.cancel()
        with pytest.raises(pgmem.CompactionLost, match="was cancelled: the turns stay"):
            await task.wait(timeout_seconds=30)

    assert not hangs.begun.is_set()
    assert await session.path() == []


async def test_settings_and_jobs_of_a_newer_release_are_understood(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    server.execute("update pgmem_queue.procrastinate_jobs set args = args || '{\"new\": 1}'", own_database)
    server.execute("alter table pgmem.policies disable trigger all", own_database)
    server.execute("update pgmem.policies set policy = (policy::jsonb || '{\"new\": 1}')::json", own_database)

    async with working(url, summarise, passes):
        assert (await task).node.status == "compressed"


async def test_the_pause_and_the_error_of_a_run_whose_end_could_not_be_stored_are_kept(
    memory, url, key, server, own_database, caplog
):
    begun, let_go, asked = asyncio.Event(), asyncio.Event(), []

    async def busy(request):
        asked.append(1)
        begun.set()
        await let_go.wait()
        raise pgmem.ModelUnavailable("come back later", status=429, retry_after_seconds=600)

    session = await memory.session(key)
    await grow(session)
    await session.compact_async()
    async with await psycopg.AsyncConnection.connect(url) as connection, working(url, busy) as worker:
        await begun.wait()
        await session.compact_async(connection=connection)  # and it stays open
        let_go.set()
        await until(lambda: "the end of job 1 cannot be stored now" in caplog.text, "the run has failed")
        await sweeps(worker, 3)
        held = jobs(server, own_database)
        await connection.rollback()
        await until(lambda: jobs(server, own_database) == [(1, "todo")], "its end is stored")
    (job,) = await job_queue.listed(memory._database, status=None, most=10)

    assert (held, asked) == ([(1, "doing")], [1])
    assert job.error == "SummaryFailed: ModelUnavailable"
    assert (job.next_run_at - datetime.now(UTC)).total_seconds() > 500


async def test_eight_stops_of_workers_let_no_job_fail(memory, url, key, server, own_database):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    for _ in range(MOST_RUNS):
        hangs = Hangs()
        async with working(url, hangs) as worker:
            await asyncio.wait_for(hangs.begun.wait(), 30)
            worker.stop(at_once=True)

    (job,) = await job_queue.listed(memory._database, status=None, most=10)
    async with working(url, summarise, passes):
        done = await task.wait(timeout_seconds=30)

    assert (job.status, job.attempts, job.error) == ("todo", 2 * MOST_RUNS - 1, None)
    assert done.node.status == "compressed"


async def test_a_job_that_its_worker_puts_back_since_nobody_heard_of_it_fails_at_its_last_run(
    memory, url, key, server, own_database, monkeypatch
):
    async def unheard(database, worker):
        raise pgmem.DatabaseUnavailable("the network is down")

    monkeypatch.setattr(job_runs, "beat", unheard)
    hangs = Hangs()
    session = await memory.session(key)
    await grow(session)
    await session.compact_async()
    server.execute(f"update pgmem_queue.procrastinate_jobs set attempts = {MOST_RUNS - 1}", own_database)
    async with working(url, hangs, beat_seconds=0.1, stalled_seconds=1.0, stop_seconds=0.1, sweep_seconds=60.0):
        await hangs.begun.wait()
        await until(lambda: jobs(server, own_database) != [(1, "doing")], "its run has ended")

    assert jobs(server, own_database) == [(1, "failed")]


async def test_a_job_goes_on_while_no_other_can_be_taken(memory, url, key, server, own_database, monkeypatch, caplog):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "3")
    begun, let_go, asked = asyncio.Event(), asyncio.Event(), []

    async def slow(request):
        asked.append(1)
        begun.set()
        await let_go.wait()
        return await summarise(request)

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, slow, passes, stop_seconds=0.5, stalled_seconds=60.0):
        await begun.wait()
        async with await psycopg.AsyncConnection.connect(server.on(own_database)) as owner:
            await owner.execute("lock table pgmem_queue.procrastinate_jobs in access exclusive mode")
            await until(lambda: "no job can be taken now" in caplog.text, "it could take none")
            await asyncio.sleep(1)
        let_go.set()
        done = await task.wait(timeout_seconds=30)

    assert (done.node.status, asked) == ("compressed", [1])
