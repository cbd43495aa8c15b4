"""A job put on the caller's own connection: what becomes of it with that transaction, and what is refused at once."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

import pgmem
from pgmem.operations.queued import QueuedCompaction
from tests.support.talk import user
from tests.support.waiting import until
from tests.support.workers import jobs, sweeps, working
from tests.worker.conftest import POLICY


@pytest.fixture
async def session(memory, key):
    made = await memory.session(key)
    await made.add_turns([user(f"turn {number} says several words.") for number in range(8)])
    return made


async def connect(url, **options):
    return await psycopg.AsyncConnection.connect(url, **options)


async def summarise(request):
    return "what was said"


async def test_a_closed_connection_is_refused(session, url):
    connection = await connect(url)
    await connection.close()

    with pytest.raises(pgmem.InvalidArgument, match="closed: nothing was queued"):
        await session.compact_async(connection=connection)


async def test_a_transaction_that_has_failed_is_refused(session, url):
    async with await connect(url) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await connection.execute("select 1 / 0")

        with pytest.raises(pgmem.InvalidArgument, match="has failed; nothing is queued: roll the transaction back"):
            await session.compact_async(connection=connection)


async def test_a_connection_in_the_middle_of_a_copy_is_refused_at_once(session, url):
    async with await connect(url) as connection, connection.cursor() as cursor:
        await connection.execute("create temporary table mine (n int)")
        async with cursor.copy("copy mine from stdin"):
            with pytest.raises(pgmem.InvalidArgument, match="in the middle of a statement"):
                await asyncio.wait_for(session.compact_async(connection=connection), 5)


async def test_a_connection_that_was_lost_is_an_error_that_says_what_to_do(session, url, server, own_database):
    async with await connect(url) as connection:
        server.execute(f"select pg_terminate_backend({connection.info.backend_pid})", own_database)
        with pytest.raises(pgmem.DatabaseUnavailable, match="nothing is queued: roll the transaction back") as caught:
            await session.compact_async(connection=connection)

    assert "add_turn" not in str(caught.value)


async def test_a_wait_for_somebody_elses_transaction_has_a_deadline(url, key, monkeypatch):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "1")
    async with (
        pgmem.open(url, policy=POLICY, background="queue") as memory,
        await connect(url) as first,
        await connect(url) as second,
    ):
        session = await memory.session(key)
        await session.add_turns([user(f"turn {number}") for number in range(8)])
        await session.compact_async(connection=first)
        began = time.monotonic()

        with pytest.raises(pgmem.DatabaseTimeout, match="is a transaction elsewhere open"):
            await session.compact_async(connection=second)

        assert time.monotonic() - began < 20
        await second.rollback()
        await first.rollback()
        assert await (await session.compact_async()).status() == "todo"


async def test_a_connection_to_another_database_is_refused_and_writes_nothing_there(session, key, server, template):
    other = server.make_database(template)
    async with pgmem.open(server.on(other, "pgmem_app"), policy=POLICY, tenant="somebody else") as memory:
        theirs = await memory.session(key)  # of the same number, and the same key
        await theirs.add_turns([user(f"secret {number}") for number in range(8)])
    async with await connect(server.on(other, "pgmem_app")) as connection:
        with pytest.raises(pgmem.InvalidArgument, match="leads to another database"):
            await session.compact_async(connection=connection)
        await connection.commit()
        rows = await (await connection.execute("select count(*) from pgmem_queue.procrastinate_jobs")).fetchone()

    assert session._found.session_id == theirs._found.session_id
    assert rows == (0,)


async def test_who_awaits_the_job_in_the_transaction_that_it_is_part_of_is_told_at_once(session, url):
    async with await connect(url) as connection:
        task = await session.compact_async(connection=connection)
        with pytest.raises(pgmem.InvalidArgument, match="commit it, then await the job"):
            async with asyncio.timeout(5):
                await task
        await connection.commit()

        async with working(url, summarise):
            assert (await task.wait(timeout_seconds=30)).node.summary == "what was said"


async def test_after_a_rollback_who_awaits_is_told_that_there_is_no_such_job(session, url):
    async with await connect(url) as connection:
        task = await session.compact_async(connection=connection)
        await connection.rollback()

        with pytest.raises(pgmem.CompactionLost, match="rolled back") as caught:
            await asyncio.wait_for(task.wait(), 5)

    assert (caught.value.status, caught.value.job_id) == ("gone", task.job_id)


async def test_who_waits_while_another_task_has_the_transaction_open_is_told_so_in_the_end(session, url):
    async with await connect(url) as connection:
        task = await session.compact_async(connection=connection)
        waiting = asyncio.create_task(task.wait(timeout_seconds=0.3))

        with pytest.raises(pgmem.DatabaseTimeout, match="was not committed within"):
            await waiting
        await connection.rollback()


async def test_an_open_transaction_of_a_caller_keeps_only_its_own_tree_waiting(memory, url, key, server, own_database):
    """Three trees' jobs of a dead worker; the transaction of one of them is open elsewhere."""
    sessions = [await memory.session(f"{key}/{number}") for number in range(3)]
    for session in sessions:
        await session.add_turns([user(f"turn {number} says words") for number in range(8)])
    tasks = [await session.compact_async() for session in sessions]
    server.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'", own_database)  # by a worker that is gone
    async with await connect(url) as connection:
        await sessions[0].compact_async(connection=connection)
        async with working(url, summarise, stalled_seconds=1.0) as worker:
            await asyncio.gather(*(task.wait(timeout_seconds=30) for task in tasks[1:]))
            meanwhile = await tasks[0].status()
            await until(lambda: worker.health.swept_at, "a sweep came to its end")
            await connection.rollback()
            await tasks[0].wait(timeout_seconds=30)

    assert meanwhile == "doing"
    assert [len(await session.path()) for session in sessions] == [1, 1, 1]


async def test_a_run_that_fails_beside_an_open_transaction_gives_its_slot_back(memory, url, key):
    first, second = [await memory.session(f"{key}/{number}") for number in range(2)]
    for session in (first, second):
        await session.add_turns([user(f"turn {number} says words") for number in range(8)])
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def fails_at_first(request):
        if request.turns[0].no == 1 and not asked.is_set():
            asked.set()
            await let_go.wait()
            raise pgmem.ModelUnavailable("down for a moment")
        return "what was said"

    await first.compact_async()
    async with await connect(url) as connection, working(url, fails_at_first, concurrency=1):
        await asked.wait()
        await first.compact_async(connection=connection)
        task = await second.compact_async()
        let_go.set()
        await task.wait(timeout_seconds=15)
        await connection.rollback()


async def test_a_committed_job_is_awaited_though_its_connection_is_in_another_transaction(session, url):
    async with await connect(url) as connection, working(url, summarise):
        task = await session.compact_async(connection=connection)
        await connection.commit()
        await connection.execute("select 1")

        done = await task.wait(timeout_seconds=30)

    assert done.node.summary == "what was said"


async def test_after_a_rollback_the_job_is_gone_though_its_connection_is_in_another_transaction(session, url):
    async with await connect(url) as connection:
        task = await session.compact_async(connection=connection)
        await connection.rollback()
        await connection.execute("select 1")

        with pytest.raises(pgmem.CompactionLost, match="rolled back"):
            await task.wait(timeout_seconds=10)


async def test_a_savepoint_that_is_rolled_back_takes_the_job_with_it_once_the_rest_is_committed(session, url):
    async with await connect(url) as connection:
        await connection.execute("select 1")
        async with connection.transaction():
            task = await session.compact_async(connection=connection)
            raise psycopg.Rollback
        await connection.commit()

        with pytest.raises(pgmem.CompactionLost, match="is not in the queue"):
            await task.wait(timeout_seconds=10)


async def test_a_connection_of_another_encoding_that_cannot_hold_the_names_is_a_typed_error(memory, url):
    named = await memory.session("s-日本")
    await named.add_turns([user(f"turn {number}") for number in range(8)])
    async with await connect(url, client_encoding="latin1") as connection:
        with pytest.raises(pgmem.InvalidArgument, match="client_encoding"):
            await named.compact_async(connection=connection)


async def test_many_trees_in_one_open_transaction_do_not_keep_a_sweep_from_others(memory, url, key, server, own_database):
    held = [await memory.session(f"{key}/held/{number}") for number in range(30)]
    lost = await memory.session(f"{key}/lost")
    for session in (*held, lost):
        await session.add_turns([user(f"turn {number} says words") for number in range(8)])
        await session.compact_async()
    server.execute("delete from pgmem_queue.procrastinate_jobs where id <= 30", own_database)  # the trees are forgotten
    async with await connect(url) as connection:
        for session in held:
            await session.compact_async(connection=connection)
        server.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'", own_database)  # by a worker that is gone
        began = time.monotonic()
        async with working(url, summarise, stalled_seconds=1.0, quiet_seconds=0.1) as worker:
            await until(lambda: worker.health.done == 1, "the lost job is done", within_seconds=15)
            await until(lambda: worker.health.swept_at, "a sweep came to its end", within_seconds=15)
        assert time.monotonic() - began < 25
        await connection.rollback()


async def test_a_transaction_whose_snapshot_is_old_joins_no_job_that_is_over(session, url):
    first = await session.compact_async()
    async with await connect(url) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("select count(*) from pgmem_queue.procrastinate_jobs")
        async with working(url, summarise):
            await first.wait(timeout_seconds=30)
        await session.add_turns([user(f"later turn {number} says several words.") for number in range(8)])

        task = await session.compact_async(connection=connection)
        await connection.commit()
        async with working(url, summarise):
            done = await task.wait(timeout_seconds=30)

    assert task.job_id != first.job_id
    assert done.node.last_no > 8


async def test_a_transaction_whose_snapshot_is_old_and_does_not_show_the_job_that_waits_fails(session, url):
    async with await connect(url) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("select count(*) from pgmem_queue.procrastinate_jobs")
        waits = await session.compact_async()

        with pytest.raises(pgmem.DatabaseError, match="nothing is queued: roll the transaction back") as caught:
            await session.compact_async(connection=connection)
        await connection.rollback()
        joined = await session.compact_async(connection=connection)
        await connection.commit()

    assert caught.value.retryable
    assert joined.job_id == waits.job_id


async def test_a_connection_that_gives_bytes_for_texts_can_be_used(session, url):
    async with await connect(url, client_encoding="sql_ascii") as connection:
        task = await session.compact_async(connection=connection)
        await connection.commit()

    async with working(url, summarise):
        done = await task.wait(timeout_seconds=30)

    assert done.node.summary == "what was said"


async def test_a_server_that_died_before_the_commit_leaves_no_job_and_who_awaits_is_told(session):
    never = 5_000_000_000  # a transaction that the server knows nothing of, as after a crash that took its number with it
    task = QueuedCompaction(session._place, 99, after=0, xact=never)

    with pytest.raises(pgmem.CompactionLost, match="is not in the queue"):
        await task.wait(timeout_seconds=10)


@pytest.mark.parametrize("was", ["todo", "failed", "doing"])
@pytest.mark.parametrize("touched", [False, True])
async def test_a_callers_job_that_was_cancelled_is_not_queued_by_a_sweep(session, url, server, own_database, touched, was):
    async with await connect(url) as connection:
        await connection.execute("select 1")  # so that it began before the policy was kept
        task = await session.compact_async(connection=connection)
        await connection.commit()
    if touched:
        await session.add_turn("user", "still here")
        await session.compact_async()  # joins the job that waits
    if was != "todo":
        server.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'", own_database)  # by a worker that is gone
    if was == "failed":
        server.execute("update pgmem_queue.procrastinate_jobs set status = 'failed'", own_database)
    assert await task.cancel()

    async with working(url, summarise, quiet_seconds=0.1) as worker:
        await sweeps(worker, 4)

    assert jobs(server, own_database) == [(1, "cancelled")]
