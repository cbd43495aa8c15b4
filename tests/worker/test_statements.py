"""The queue's statements beside others that are open on the same rows: each waits, and then sees what became of them."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import pgmem
from pgmem.operations.compact import KIND
from pgmem.store import job_queue, job_runs
from pgmem.store.job_queue import MOST_RUNS
from pgmem.store.job_runs import Run
from tests.support.workers import grow, jobs


@pytest.fixture
async def job(memory, key):
    session = await memory.session(key)
    await grow(session)
    return (await session.compact_async()).job_id


@pytest.fixture
async def owner(server, own_database):
    async with await psycopg.AsyncConnection.connect(server.on(own_database)) as connection:
        yield connection


async def begun(owner, job):
    """A live worker that begins the job, in the owner's open transaction."""
    await owner.execute("insert into pgmem_queue.procrastinate_workers default values")
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'doing', worker_id = 1 where id = %s", (job,))


async def meanwhile(statement, owner):
    """What the statement gives that waits for the owner's transaction."""
    waiting = asyncio.create_task(statement)
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await owner.commit()
    return await asyncio.wait_for(waiting, 10)


async def one(owner):
    found = await owner.execute(
        "select status::text, attempts, worker_id, abort_requested from pgmem_queue.procrastinate_jobs order by id limit 1"
    )
    row = await found.fetchone()
    await owner.commit()
    return row


async def test_a_job_that_is_begun_while_it_is_cancelled_is_asked_to_stop(memory, owner, job):
    await begun(owner, job)

    was = await meanwhile(job_queue.cancel(memory._database, job), owner)

    assert was == "doing"
    assert await one(owner) == ("doing", 0, 1, True)


async def test_a_dead_workers_job_that_a_live_one_begins_meanwhile_is_not_taken_from_it(memory, owner, job):
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'")
    await owner.commit()
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'todo', attempts = 1")
    await begun(owner, job)

    waits = await meanwhile(job_queue.retry(memory._database, job), owner)

    assert waits is None
    assert await one(owner) == ("doing", 1, 1, False)


async def test_a_run_that_is_ended_twice_at_once_is_ended_once(memory, owner, job):
    await begun(owner, job)
    await owner.commit()
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'succeeded', attempts = 1")

    ended = await meanwhile(job_runs.end_run(memory._database, Run(job, 0)), owner)

    assert ended is None
    assert await one(owner) == ("succeeded", 1, 1, False)


async def heir_of(session, owner, job, *, attempts=0):
    await begun(owner, job)
    await owner.commit()
    heir = (await session.compact_async()).job_id
    await owner.execute("update pgmem_queue.procrastinate_jobs set attempts = %s where id = %s", (attempts, heir))
    await owner.commit()
    return heir


@pytest.mark.parametrize(
    ("had", "before", "then"),
    [
        (0, 0, 1),
        (0, 4, 5),
        (3, 1, 3),
        (MOST_RUNS, 6, MOST_RUNS + 7),
        (MOST_RUNS + 2, 0, MOST_RUNS + 2),
    ],
)
async def test_a_run_that_gives_way_without_a_pause_hands_its_count_over(memory, key, owner, job, had, before, then):
    session = await memory.session(key)
    heir = await heir_of(session, owner, job, attempts=had)
    await owner.execute("update pgmem_queue.procrastinate_jobs set attempts = %s where id = %s", (before, job))
    await owner.commit()

    ended = await job_runs.end_run(memory._database, Run(job, before))
    found = await owner.execute("select attempts, scheduled_at from pgmem_queue.procrastinate_jobs where id = %s", (heir,))

    assert ended == "aborted"
    assert await found.fetchone() == (then, None)
    assert await job_queue.successor(memory._database, job) == heir


async def test_workers_that_die_of_a_tree_one_after_another_let_it_fail_though_the_talk_goes_on(
    memory, key, owner, job, server, own_database
):
    session = await memory.session(key)
    await owner.execute("insert into pgmem_queue.procrastinate_workers default values")
    ends = []
    for _ in range(MOST_RUNS):
        await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'doing', worker_id = 1 where status = 'todo'")
        await owner.commit()
        ((number, before),) = await (
            await owner.execute("select id, attempts from pgmem_queue.procrastinate_jobs where status = 'doing'")
        ).fetchall()
        await session.compact_async()
        ends.append(await job_runs.end_run(memory._database, Run(number, before)))

    assert ends == ["aborted"] * (MOST_RUNS - 1) + ["failed"]


async def test_the_patience_of_a_put_is_over_with_its_statement(memory, key, url, job):
    session = await memory.session(key)
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("set lock_timeout = '7s'")
        await session.compact_async(connection=connection)
        found = await (await connection.execute("show lock_timeout")).fetchone()
        await connection.rollback()
    await job_queue.put(memory._database, job_queue.TreeJob(1, "main", 1), patience="20ms")
    async with memory._database._pool.connection(asyncio.get_running_loop().time() + 5) as own:
        own_timeout = await (await own.execute("show lock_timeout")).fetchone()

    assert found == ("7s",)
    assert own_timeout == {"lock_timeout": "0"}


async def test_a_failure_that_somebody_may_await_is_not_forgotten_at_once(memory, key, owner, job, server, own_database):
    session = await memory.session(key)
    await begun(owner, job)
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'failed'")
    await owner.commit()
    await session.compact_async()

    await job_runs.forget(memory._database, hours=24)
    at_once = jobs(server, own_database)
    await owner.execute("update pgmem_queue.procrastinate_events set at = at - interval '2 minutes'")
    await owner.commit()
    await job_runs.forget(memory._database, hours=24)

    assert at_once == [(1, "failed"), (2, "todo")]
    assert jobs(server, own_database) == [(2, "todo")]


async def test_what_is_no_object_is_left_as_it_is(memory, owner, job):
    await begun(owner, job)
    await owner.execute("update pgmem_queue.procrastinate_jobs set args = '[1]'")
    await owner.commit()

    await job_runs.end_run(memory._database, Run(job, 0), status="failed", error="InvalidArgument")
    found = await owner.execute("select args from pgmem_queue.procrastinate_jobs")

    assert await found.fetchone() == ([1],)


async def test_jobs_that_gave_way_in_a_ring_are_lost_and_not_followed_for_ever(memory, key, owner, job):
    session = await memory.session(key)
    task = await session.compact_async()
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'")
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'aborted', args = args || '{\"heir\": 1}'")
    await owner.commit()

    with pytest.raises(pgmem.CompactionLost, match="gave way to another one that is gone"):
        await task.wait(timeout_seconds=10)


@pytest.mark.parametrize(
    ("before", "how", "then"),
    [
        (MOST_RUNS - 1, {}, ("failed", MOST_RUNS)),
        (MOST_RUNS - 2, {"stopped": True}, ("todo", MOST_RUNS - 1)),
        (MOST_RUNS - 1, {"stopped": True}, ("todo", 2 * MOST_RUNS - 1)),
        (2 * MOST_RUNS - 1, {}, ("failed", 2 * MOST_RUNS)),
        (2**31 - 1, {}, ("failed", 2**31 - 1)),
        (2**31 - 1, {"status": "succeeded"}, ("succeeded", 2**31 - 1)),
    ],
)
async def test_the_last_run_that_a_job_may_have_fails_it_unless_the_worker_was_stopped(memory, owner, job, before, how, then):
    await begun(owner, job)
    await owner.execute("update pgmem_queue.procrastinate_jobs set attempts = %s", (before,))
    await owner.commit()

    await job_runs.end_run(memory._database, Run(job, before), **how)

    assert (await one(owner))[:2] == then


@pytest.mark.parametrize(("status", "becomes"), [("failed", "cancelled"), ("succeeded", "succeeded"), (None, "cancelled")])
async def test_a_run_that_was_to_stop_is_cancelled_unless_it_is_done(memory, owner, job, status, becomes):
    await begun(owner, job)
    await owner.commit()
    await job_queue.cancel(memory._database, job)

    assert await job_runs.end_run(memory._database, Run(job, 0), status=status) == becomes


async def test_who_holds_a_job_that_gave_way_looks_at_the_next_one_and_cancels_that(memory, key, owner, job):
    session = await memory.session(key)
    looks, cancels = await session.compact_async(), await session.compact_async()
    heir = await heir_of(session, owner, job)
    await job_runs.end_run(memory._database, Run(job, 0))

    status = await looks.status()
    cancelled = await cancels.cancel()

    assert (status, looks.job_id, cancelled, cancels.job_id) == ("todo", heir, True, heir)
    assert (await looks.status(), await cancels.cancel()) == ("cancelled", False)


async def test_a_job_that_was_cancelled_is_kept_until_a_later_one_is_there(memory, key, owner, job, server, own_database):
    session = await memory.session(key)
    await job_queue.cancel(memory._database, job)
    await owner.execute("update pgmem_queue.procrastinate_events set at = at - interval '25 hours'")
    await owner.commit()

    await job_runs.forget(memory._database, hours=24)
    alone = jobs(server, own_database)
    await session.compact_async()
    await job_runs.forget(memory._database, hours=24)

    assert (alone, jobs(server, own_database)) == ([(1, "cancelled")], [(2, "todo")])


async def test_all_who_hold_a_job_that_gave_way_go_on_with_the_next_one(memory, key, owner, job):
    session = await memory.session(key)
    task = await session.compact_async()
    heir = await heir_of(session, owner, job)
    waiting = [asyncio.create_task(task.wait(timeout_seconds=30)) for _ in range(2)]
    await asyncio.sleep(0.1)
    await job_runs.end_run(memory._database, Run(job, 0))

    looked = await asyncio.gather(*(task.status() for _ in range(5)))
    _, cancelled = await asyncio.gather(task.status(), task.cancel())
    lost = await asyncio.gather(*waiting, return_exceptions=True)

    assert (looked, cancelled, task.job_id) == (["todo"] * 5, True, heir)
    assert [(error.job_id, error.status) for error in lost] == [(heir, "cancelled")] * 2


async def test_who_learns_late_that_a_job_gave_way_goes_on_with_the_newest_one(memory, key, owner, job):
    session = await memory.session(key)
    task = await session.compact_async()
    newest = job
    for before in range(2):
        was, newest = newest, await heir_of(session, owner, newest)
        assert await job_runs.end_run(memory._database, Run(was, before)) == "aborted"
    await task.status()

    assert task.job_id == newest
    assert await task._gave_way(job)
    assert (task.job_id, await task.status()) == (newest, "todo")


async def test_a_tree_whose_job_was_to_stop_too_late_is_due_by_what_came_since(memory, key, owner, job):
    session = await memory.session(key)
    await begun(owner, job)
    await owner.commit()
    await grow(session)
    await job_queue.cancel(memory._database, job)
    await job_runs.end_run(memory._database, Run(job, 0), status="succeeded")
    await asyncio.sleep(0.1)

    due = [found.tree async for found in job_runs.orphans(memory._database, kind=KIND, quiet_seconds=0.05)]

    assert due == [f"{session._place.session_id}/main"]


@pytest.mark.parametrize(
    ("status", "attempts", "then"),
    [
        ("failed", 1, MOST_RUNS),
        ("failed", MOST_RUNS - 1, MOST_RUNS),
        ("failed", MOST_RUNS, MOST_RUNS),
        ("failed", MOST_RUNS + 1, 2 * MOST_RUNS),
        ("failed", 2**31 - 1, 2**31 - MOST_RUNS),
        ("doing", 2, 3),
        ("doing", 2**31 - 1, 2**31 - 1),
    ],
)
async def test_a_failed_job_that_is_queued_again_has_as_many_runs_as_a_new_one(memory, owner, job, status, attempts, then):
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'")
    await owner.execute("update pgmem_queue.procrastinate_jobs set status = %s, attempts = %s", (status, attempts))
    await owner.commit()

    assert await job_queue.retry(memory._database, job) == job
    assert (await one(owner))[:2] == ("todo", then)
