"""A worker's own life: run once, heard of or not, ended before its Memory is closed."""

from __future__ import annotations

import asyncio
import logging
import re
import time

import psycopg
import pytest

import pgmem
from tests.support.waiting import until
from tests.support.wire import Unplugged, Wire, serving
from tests.support.workers import QUICK, Hangs, grow, passes, summarise, working


async def test_a_worker_is_run_once(url):
    async with working(url, summarise) as worker:
        await until(lambda: worker.health.working, "the worker works")
        with pytest.raises(pgmem.InvalidArgument, match="make another one"):
            await worker.run()
        assert worker.health.working
    with pytest.raises(pgmem.InvalidArgument, match="make another one"):
        await worker.run()


async def test_a_memory_that_is_left_ends_its_workers_first(memory, url, key, caplog):
    begun = asyncio.Event()

    async def slow(request):
        begun.set()
        await asyncio.sleep(0.5)
        return "what was said"

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with pgmem.open(url, summary_model=slow, judge_model=passes) as own:
        worker = pgmem.Worker(own, **QUICK)
        running = asyncio.create_task(worker.run())
        await begun.wait()

    await asyncio.wait_for(running, 5)
    assert await task.status() == "succeeded"
    assert (await task).node.status == "compressed"
    assert (worker.health.working, worker.health.running, worker.health.done) == (False, 0, 1)
    assert "pgmem.open() is left while 1 of its workers run" in caplog.text


async def test_what_is_late_when_the_memory_is_left_goes_back_to_the_queue(memory, url, key):
    hangs = Hangs()

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with pgmem.open(url, summary_model=hangs) as own:
        running = asyncio.create_task(pgmem.Worker(own, **QUICK | {"stop_seconds": 0.2}).run())
        await hangs.begun.wait()

    await asyncio.wait_for(running, 5)
    assert await task.status() == "todo"


async def test_a_strategy_that_will_not_end_is_left_behind_in_time(memory, url, key, monkeypatch, caplog):
    monkeypatch.setattr("pgmem.worker.worker.GRACE_SECONDS", 0.3)
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def stubborn(request):
        begun.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    session = await memory.session(key)
    await grow(session)
    await session.compact_async()
    began = time.monotonic()
    async with working(url, stubborn, stop_seconds=0.2):
        await begun.wait()
    let_go.set()

    assert time.monotonic() - began < 20
    assert "are left behind" in caplog.text


async def test_a_worker_that_stops_says_that_it_lives_until_its_last_job_has_ended(memory, url, key):
    begun, calls = asyncio.Event(), []

    async def slow(request):
        calls.append("the one that stops")
        begun.set()
        await asyncio.sleep(2.5)
        return "what was said"

    async def other(request):
        calls.append("another one")
        return "what was said"

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, slow, passes, beat_seconds=0.1, stop_seconds=20.0) as stopping:
        await begun.wait()
        async with working(url, other, passes, stalled_seconds=1.0):
            stopping.stop()
            done = await task.wait(timeout_seconds=30)

    assert (calls, done.node.status) == (["the one that stops"], "compressed")


async def test_a_worker_has_as_many_connections_as_the_pages_say(memory, url, key, server, own_database):
    sessions = [await memory.session(f"{key}/{number}") for number in range(30)]
    for session in sessions:
        await grow(session)
        await session.compact_async()
    most = 0
    with psycopg.connect(server.on(own_database), autocommit=True) as connection:
        async with working(url, summarise, passes, concurrency=10, sweep_seconds=0.05, beat_seconds=0.05) as worker:
            while worker.health.done < len(sessions):
                counted = "select count(*) from pg_stat_activity where datname = current_database() and application_name = %s"
                most = max(most, connection.execute(counted, ("pgmem worker",)).fetchone()[0])
                await asyncio.sleep(0.01)

    assert 2 <= most <= 5


class SilentWire(Wire):
    """A wire on which, from some moment on, nothing comes through any more and nothing is refused."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.open = asyncio.Event()
        self.open.set()

    async def _back(self, reader, to, server):
        while part := await reader.read(65536):
            await self.open.wait()
            to.write(part)
            await to.drain()


async def test_a_worker_that_nobody_hears_is_not_well_and_is_again_once_it_is_heard(url):
    async with serving(SilentWire(url)) as wire, working(wire.url, summarise, beat_seconds=0.1, stalled_seconds=1.0) as worker:
        await until(lambda: worker.health.working, "the worker works")
        wire.open.clear()
        await until(lambda: not worker.health.working, "it is known that nobody hears it", within_seconds=5)
        wire.open.set()
        await until(lambda: worker.health.working, "it is heard again")


async def test_a_worker_that_cannot_say_that_it_lives_says_why_and_starts_again(url, server, own_database, caplog):
    caplog.set_level(logging.WARNING, "pgmem")
    async with working(url, summarise, beat_seconds=0.1, stalled_seconds=1.0) as worker:
        await until(lambda: worker.health.working, "the worker works")
        with psycopg.connect(server.on(own_database), autocommit=True) as connection:
            connection.execute("alter table pgmem_queue.procrastinate_workers rename to elsewhere")
            await until(lambda: "nobody heard of the worker for 1 s" in caplog.text, "the worker gives up")
            connection.execute("alter table pgmem_queue.elsewhere rename to procrastinate_workers")
        await until(lambda: worker.health.working, "the worker works again")

    assert re.search('the worker could not say that it lives: .*relation "pgmem_queue.procrastinate_workers" does not', caplog.text)


async def test_a_job_that_names_no_tree_fails_and_says_so(memory, url, key, server, own_database, caplog):
    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    server.execute('update pgmem_queue.procrastinate_jobs set args = \'{"session_id": "x"}\'', own_database)
    async with working(url, summarise) as worker:
        await until(lambda: worker.health.failed, "the job has failed")
        await until(lambda: worker.health.running == 0, "it is over")

    assert await task.status() == "failed"
    assert "job 1: a job that names no tree" in caplog.text


async def test_a_worker_whose_row_is_gone_is_not_well_and_registers_anew(url, server, own_database):
    async with working(url, summarise, beat_seconds=0.1, stalled_seconds=1.0) as worker:
        await until(lambda: worker.health.working, "the worker works")
        server.execute("delete from pgmem_queue.procrastinate_workers", own_database)
        await until(lambda: not worker.health.working, "it knows that it is not known", within_seconds=5)
        await until(lambda: worker.health.working, "it is known again", within_seconds=15)


async def test_an_idle_worker_ends_soon_though_the_database_does_not_answer(url):
    async with serving(SilentWire(url)) as wire:
        async with pgmem.open(wire.url, summary_model=summarise) as own:
            worker = pgmem.Worker(own, **QUICK | {"stop_seconds": 30.0})
            running = asyncio.create_task(worker.run())
            await until(lambda: worker.health.working, "the worker works")
            wire.open.clear()
            began = time.monotonic()
            worker.stop()
            await asyncio.wait_for(running, 60)
        passed = time.monotonic() - began
        wire.open.set()

    assert passed < 30
    assert [task.get_name() for task in asyncio.all_tasks() if "pgmem worker" in task.get_name()] == []


async def test_leaving_that_is_cancelled_ends_its_workers_at_once_and_their_jobs_wait_again(memory, url, key):
    hangs = Hangs()

    async def work():
        async with pgmem.open(url, summary_model=hangs) as own:
            made.append(asyncio.create_task(pgmem.Worker(own, **QUICK | {"stop_seconds": 60.0}).run()))
            await asyncio.Event().wait()

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    made: list[asyncio.Task[None]] = []
    leaving = asyncio.create_task(work())
    await hangs.begun.wait()
    leaving.cancel()
    await asyncio.sleep(0.2)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(leaving, 15)

    assert made[0].done()
    assert await task.status() == "todo"


async def test_a_run_that_is_cancelled_twice_gives_its_job_back(memory, url, key):
    hangs = Hangs()

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with pgmem.open(url, summary_model=hangs) as own:
        running = asyncio.create_task(pgmem.Worker(own, **QUICK | {"stop_seconds": 60.0}).run())
        await hangs.begun.wait()
        running.cancel()
        await asyncio.sleep(0.2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 15)

    assert await task.status() == "todo"
    assert [left.get_name() for left in asyncio.all_tasks() if left is not asyncio.current_task()] == []


@pytest.mark.parametrize("stubborn_seconds", [0.0, 4.0])
async def test_a_job_that_outlasts_a_lost_connection_is_put_back_and_the_worker_goes_on(
    memory, url, key, server, own_database, monkeypatch, stubborn_seconds
):
    monkeypatch.setattr("pgmem.worker.worker.GRACE_SECONDS", 1.0)
    asked = []

    async def hangs_at_first(request):
        asked.append(time.monotonic())
        while len(asked) == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if time.monotonic() > asked[0] + stubborn_seconds:
                    raise
                await asyncio.sleep(0.1)
        return "what was said"

    session = await memory.session(key)
    await grow(session)
    task = await session.compact_async()
    async with working(url, hangs_at_first, passes, beat_seconds=0.1, stalled_seconds=1.0, stop_seconds=0.2) as worker:
        await until(lambda: asked, "the job is under way")
        server.execute("delete from pgmem_queue.procrastinate_workers", own_database)
        done = await task.wait(timeout_seconds=30)
        await until(lambda: worker.health.working, "the worker goes on")

    assert done.node.status == "compressed"
    assert len(asked) == 2


async def test_a_worker_that_is_stopped_before_it_is_connected_ends(url):
    async with serving(Unplugged(url)) as silent, pgmem.open(silent.url, summary_model=summarise) as memory:
        worker = pgmem.Worker(memory, **QUICK)
        silent.unplug()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0.3)
        began = time.monotonic()
        worker.stop()
        await running

    assert time.monotonic() - began < 20  # and not the 30 that a statement may take


async def test_a_worker_that_is_stopped_while_it_connects_again_ends(url, caplog):
    async with serving(Wire(url)) as wire, pgmem.open(wire.url, summary_model=summarise) as memory:
        worker = pgmem.Worker(memory, **QUICK)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.health.working, "the worker works")
        wire.refuse = True
        wire.cut()
        await until(lambda: "the worker starts again in" in caplog.text, "it has noticed")
        await asyncio.sleep(2.5)  # and connects again
        began = time.monotonic()
        worker.stop()
        await running

    assert time.monotonic() - began < 15  # and not the 30 that it may take to connect
