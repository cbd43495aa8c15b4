"""The queue and its workers: what is queued is done once, by whoever lives, with the worker's own models."""

from __future__ import annotations

import asyncio
import re

import psycopg
import pytest

import pgmem
from pgmem.testing import ScriptedModel, failing, passing, summary
from tests.flow.support import flow_of, say, step
from tests.flow.support import talk as chat
from tests.support.waiting import until
from tests.support.workers import Hangs, grow, passes, summarise, working


async def is_compressed(session):
    return any(node.status == "compressed" for node in await session.path())


async def test_a_queued_compaction_is_done_by_a_worker_and_awaited_here(memory, url, key):
    session = await memory.session(key)
    await grow(session)

    task = await session.compact_async()
    before = await task.status()
    async with working(url, summarise, passes) as worker:
        done = await task
        health = worker.health

    assert before == "todo"
    assert (done.node.summary, done.node.status, done.verdict.outcome, done.attempts) == (
        "the memory of 1, 2, 3, 4, 5, 6",
        "compressed",
        "pass",
        1,
    )
    assert (health.working, health.done, health.failed) == (True, 1, 0)
    assert await task.status() == "succeeded"
    assert await session.verify() is None


async def test_the_workers_model_writes_and_judges_over_http_and_tries_again(memory, url, key):
    async with ScriptedModel([summary("bad"), failing("drops it"), summary("good"), passing()]) as endpoint:
        model = pgmem.OpenAIModel("m", base_url=endpoint.base_url)
        session = await memory.session(key)
        await grow(session)
        task = await session.compact_async()
        async with model, working(url, model, model):
            done = await task

    assert (done.node.summary, done.verdict.outcome, done.attempts) == ("good", "pass", 2)


async def test_calls_while_one_waits_are_one_job(memory, key):
    session = await memory.session(key)
    await grow(session)

    tasks = [await session.compact_async() for _ in range(5)]
    others = await asyncio.gather(*(session.compact_async() for _ in range(20)))

    assert len({task.job_id for task in (*tasks, *others)}) == 1


async def test_the_settings_are_a_fact_that_is_added_when_they_change(memory, key, server, own_database):
    session = await memory.session(key)
    await grow(session)

    for _ in range(3):
        await session.compact_async()
    await session.compact_async(threshold=7)
    await session.compact_async(threshold=7)

    with psycopg.connect(server.on(own_database)) as connection:
        found = connection.execute("select no, policy ->> 'threshold' from pgmem.policies order by no").fetchall()
    assert found == [(9, "6"), (10, "7")]
    assert await session.verify() is None
    assert (await session.context()).no == 10


async def test_the_job_is_part_of_the_callers_transaction(memory, url, key):
    session = await memory.session(key)
    await grow(session)

    async with await psycopg.AsyncConnection.connect(url) as connection:
        rolled_back = await session.compact_async(connection=connection)
        await connection.rollback()
        committed = await session.compact_async(connection=connection)
        unseen = await committed.status()
        await connection.commit()

    assert await rolled_back.status() is None
    assert (unseen, await committed.status()) == (None, "todo")


@pytest.mark.parametrize("connection", [7, "url", object()])
async def test_another_connection_is_refused(memory, key, connection):
    session = await memory.session(key)

    with pytest.raises(pgmem.InvalidArgument, match=r"psycopg\.AsyncConnection"):
        await session.compact_async(connection=connection)


async def test_a_connection_without_the_queue_is_refused(app_url, key):
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)

        with pytest.raises(pgmem.InvalidArgument, match="background='queue'"):
            await session.compact_async(connection=object())


async def test_below_the_threshold_nothing_is_queued(memory, key, server, own_database):
    session = await memory.session(key)
    await grow(session, 5)

    task = await session.compact_async()
    done = await task

    assert (task.job_id, await task.status(), await task.cancel()) == (None, None, False)
    assert (done.node, done.verdict, done.attempts) == (None, None, 0)
    with psycopg.connect(server.on(own_database)) as connection:
        assert connection.execute("select count(*) from pgmem_queue.procrastinate_jobs").fetchone() == (0,)


async def test_queueing_costs_two_round_trips_and_nothing_due_costs_one(memory, key):
    session = await memory.session(key)
    await grow(session, 5)
    await session.compact_async()
    before = memory.round_trips
    await session.compact_async()
    nothing_due = memory.round_trips - before
    await grow(session, 3)
    before = memory.round_trips
    await session.compact_async()

    assert (nothing_due, memory.round_trips - before) == (1, 2)


async def test_turns_that_were_left_behind_make_nothing_due(memory, key):
    session = await memory.session(key)
    await grow(session, 8)
    await session.revise(after_turn=2)

    assert (await session.compact_async()).job_id is None


async def test_a_job_that_is_not_committed_yet_is_waited_for(memory, url, key):
    session = await memory.session(key)
    await grow(session)

    async with await psycopg.AsyncConnection.connect(url) as connection, working(url, summarise, passes):
        task = await session.compact_async(connection=connection)
        waiting = asyncio.create_task(task.wait(timeout_seconds=30))
        await asyncio.sleep(0.3)
        waits = not waiting.done()
        await connection.commit()
        done = await waiting

    assert waits
    assert done.node.status == "compressed"


async def test_the_settings_of_who_queued_it_hold_for_the_worker_too(url, key):
    seen = []

    async def watched(request):
        seen.append(request.max_summary_tokens)
        return "short"

    policy = pgmem.Policy(threshold=6, keep_recent=2, max_summary_tokens=100)
    async with pgmem.open(url, policy=policy, background="queue") as memory:
        session = await memory.session(key)
        await grow(session)
        task = await session.compact_async()
        async with working(url, watched, passes):
            await task

    assert 0 < seen[0] < 100


async def test_keep_raw_holds_for_the_worker_too(memory, url, key):
    async def fails(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="no")

    session = await memory.session(key)
    await grow(session)

    task = await session.compact_async(on_fail="keep_raw")
    async with working(url, summarise, fails):
        done = await task

    assert (done.node, done.verdict.outcome, done.attempts) == (None, "fail", 1)
    assert await session.path() == []


@pytest.mark.parametrize(
    "taken",
    ["insert on pgmem_queue.procrastinate_jobs", "delete on pgmem_queue.procrastinate_events", "usage on schema pgmem_queue"],
)
async def test_a_role_that_may_not_use_all_of_the_queue_is_told_at_once(url, server, own_database, taken):
    server.execute(f"revoke {taken} from pgmem_app", own_database)

    with pytest.raises(pgmem.SetupError, match="grant pgmem_app"):
        async with pgmem.open(url, background="queue"):
            pass


async def test_without_a_queue_opening_for_it_says_what_to_run(url, server, own_database):
    server.execute("drop schema pgmem_queue cascade", own_database)

    with pytest.raises(pgmem.SchemaMismatch, match="pgmem db upgrade"):
        async with pgmem.open(url, background="queue"):
            pass
    async with pgmem.open(url):
        pass


async def test_a_queue_of_another_release_is_refused(url, server, own_database):
    server.execute("comment on schema pgmem_queue is 'procrastinate 2.0'", own_database)

    with pytest.raises(pgmem.SchemaMismatch, match=r"procrastinate 2\.0"):
        async with pgmem.open(url, background="queue"):
            pass


async def test_a_worker_without_a_model_does_it_by_tool_clear(memory, url, key):
    session = await memory.session(key)
    await grow(session)

    task = await session.compact_async()
    async with working(url, None):
        done = await task

    assert (done.node.strategy, done.verdict, done.attempts) == ("tool_clear", None, 0)


async def test_stopping_waits_for_what_is_under_way(memory, url, key):
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def slow(request):
        asked.set()
        await let_go.wait()
        return "slowly made"

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, slow, passes) as worker:
        await asked.wait()
        worker.stop()
        stopping = worker.health
        let_go.set()
    done = await task

    assert (stopping.working, stopping.running) == (False, 1)
    assert done.node.summary == "slowly made"


async def test_what_is_not_done_when_the_worker_must_stop_goes_back_to_the_queue(memory, url, key):
    hangs = Hangs()

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, hangs, stop_seconds=0.2):
        await hangs.begun.wait()
    status = await task.status()
    async with working(url, summarise, passes):
        done = await task

    assert status == "todo"
    assert done.node.status == "compressed"


async def test_no_secret_is_in_a_job(memory, server, own_database, key):
    session = await memory.session(key)
    await grow(session)
    await session.compact_async()

    with psycopg.connect(server.on(own_database)) as connection:
        ((args,),) = connection.execute("select args from pgmem_queue.procrastinate_jobs").fetchall()
    assert sorted(args) == ["last_no", "namespace", "policy", "retry", "session_id"]
    assert args["namespace"] == "main"


@pytest.mark.parametrize("background", ["thread", "", None, True])
async def test_another_way_of_background_work_is_refused(app_url, background):
    with pytest.raises(pgmem.InvalidArgument, match="use 'process' or 'queue'"):
        async with pgmem.open(app_url, background=background):
            pass


async def test_what_a_closing_memory_leaves_goes_to_a_worker_that_lives(url, key, monkeypatch, caplog):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "1")

    async def hangs(request):
        await asyncio.Event().wait()

    async with working(url, summarise, passes):
        async with pgmem.open(url, policy=pgmem.Policy(threshold=6, keep_recent=2), summary_model=hangs) as memory:
            session = await memory.session(key)
            await grow(session)
            await session.compact_async()
        async with pgmem.open(url) as memory:
            session = await memory.session(key)
            await until(lambda: is_compressed(session), "a worker has done it")

    assert "1 did not end within 1 s: pgmem compaction of session" in caplog.text
    assert "1 are left for a worker: pgmem compaction of session" in caplog.text


async def test_what_cannot_be_left_to_a_worker_keeps_nothing_else_from_it(url, key, monkeypatch, caplog):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "1")

    asked = []

    async def hangs(request):
        asked.append(1)
        await asyncio.Event().wait()

    options = {"policy": pgmem.Policy(threshold=6, keep_recent=2)}
    async with (
        working(url, summarise, passes),
        pgmem.open(url, background="queue", **options) as elsewhere,
        await psycopg.AsyncConnection.connect(url) as connection,
    ):
        async with pgmem.open(url, summary_model=hangs, **options) as memory:
            sessions = [await memory.session(f"{key}/{number}") for number in range(3)]
            for session in sessions:
                await grow(session)
                await session.compact_async()
            await until(lambda: len(asked) == 3, "all are under way")
            await (await elsewhere.session(f"{key}/0")).compact_async(connection=connection)  # and it stays open
            await (await elsewhere.session(f"{key}/1")).erase()
        left = await elsewhere.session(f"{key}/2")
        await until(lambda: is_compressed(left), "a worker has done it")
        await connection.rollback()

    assert re.search(r"the pgmem compaction of session '\S+/0', namespace 'main' cannot be left to a worker", caplog.text)
    assert re.search(r"1 are left for a worker: pgmem compaction of session '\S+/2'", caplog.text)
    assert re.search(r"2 are left for the next compact\(\).*/0.*/1", caplog.text)


async def test_trees_whose_long_names_look_alike_are_each_left_to_a_worker(url, key, monkeypatch):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "1")
    keys = [f"{key}{'x' * 200}{number}" for number in range(3)]

    async def hangs(request):
        await asyncio.Event().wait()

    async with working(url, summarise, passes) as worker:
        async with pgmem.open(url, policy=pgmem.Policy(threshold=6, keep_recent=2), summary_model=hangs) as memory:
            for name in keys:
                session = await memory.session(name)
                await grow(session)
                await session.compact_async()
        await until(lambda: worker.health.done == 3, "a worker has done all")


async def test_without_a_worker_nothing_is_queued_by_a_closing_memory(url, key, monkeypatch, caplog, server, own_database):
    monkeypatch.setenv("PGMEM_TIMEOUT_SECONDS", "0.5")

    async def hangs(request):
        await asyncio.Event().wait()

    async with pgmem.open(url, policy=pgmem.Policy(threshold=6, keep_recent=2), summary_model=hangs) as memory:
        session = await memory.session(key)
        await grow(session)
        await session.compact_async()

    assert "are left for the next compact()" in caplog.text
    with psycopg.connect(server.on(own_database)) as connection:
        assert connection.execute("select count(*) from pgmem_queue.procrastinate_jobs").fetchone() == (0,)


async def test_a_worker_waits_until_the_database_is_there_again(memory, url, key, monkeypatch):
    from pgmem.store import worker_connector

    reachable, tries = asyncio.Event(), []
    connector = worker_connector.Connector

    def away(database):
        tries.append(1)
        if not reachable.is_set():
            raise worker_connector.LOST[1]("the server is away")
        return connector(database)

    monkeypatch.setattr(worker_connector, "Connector", away)
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, summarise, passes) as worker:
        await until(lambda: tries, "the worker has tried")
        idle = worker.health
        reachable.set()
        done = await task.wait(timeout_seconds=60)

    assert (idle.working, done.node.status) == (False, "compressed")


async def test_a_flow_in_the_background_is_summarised_by_a_worker(memory, url, key):
    flow = await flow_of(step("Explore"), enable=("Explore",), min_messages=8, background=True)(await memory.session(key)).start()
    await chat(flow, 4)

    async with working(url, summarise, passes) as worker:
        await until(lambda: worker.health.done, "the job is done")

    assert (await say(flow, "next"))[1]["content"].startswith("Conversation memory for this step:")


@pytest.mark.parametrize("options", [{"beat_seconds": 30.0, "stalled_seconds": 30.0}, {"concurrency": 0}, {"sweep_seconds": 0}])
async def test_options_of_a_worker_that_cannot_be_are_refused(memory, options):
    with pytest.raises(pgmem.InvalidArgument, match=next(iter(options))):
        pgmem.Worker(memory, **options)


async def test_a_queue_works_beside_a_schema_of_the_longest_name(server):
    from pgmem.store import migrate

    schema, database = "s" * 57, server.make_database()
    migrate.upgrade(server.on(database), schema=schema)
    url = server.on(database, "pgmem_app")
    policy = pgmem.Policy(threshold=6, keep_recent=2)

    async with pgmem.open(url, schema=schema, policy=policy, background="queue") as memory:
        session = await memory.session("k")
        await grow(session)
        task = await session.compact_async()
        async with pgmem.open(url, schema=schema, summary_model=summarise, judge_model=passes) as own:
            worker = pgmem.Worker(own, sweep_seconds=0.2)
            running = asyncio.create_task(worker.run())
            done = await task.wait(timeout_seconds=30)
            worker.stop()
            await running

    assert done.node.status == "compressed"


async def test_roles_that_were_left_out_before_may_use_the_queue_later(server):
    from pgmem.store import migrate

    database = server.make_database()
    migrate.upgrade(server.on(database), roles=False)
    migrate.upgrade(server.on(database))

    async with pgmem.open(server.on(database, "pgmem_app"), background="queue") as memory:
        assert memory.tenant == "default"
