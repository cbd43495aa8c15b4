"""Workers that are killed, put to sleep and woken at random: each queued compaction ends once, and nothing else is lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import procrastinate
import pytest

import pgmem
from pgmem.domain.chain import digest
from pgmem.operations import grow, policies
from pgmem.store import job_runs, worker_connector
from pgmem.store.job_queue import MOST_RUNS, TASK
from pgmem.worker.runs import Runs
from tests.chaos.support import LONG, POLICY, QUIET_SECONDS, job_statuses, open_jobs, talk
from tests.concurrency.support import rows
from tests.support.waiting import until
from tests.support.workers import working

TREES = int(os.environ.get("PGMEM_CHAOS_TREES", "10000")) if LONG else 200
SAMPLE = 200
"""Trees whose hash chain is checked."""

WORKERS = 4
CHAOS_SECONDS = 1500.0 if LONG else 150.0
"""How long the workers may take while they are killed."""

PEACE_SECONDS = (1.0, 5.0) if LONG else (0.2, 1.0)
"""How long nobody is hurt, from and to."""

GRACE_SECONDS = 30.0
"""How long past the heartbeat a job may take to end once nobody is killed any more."""

ROOT = Path(__file__).parents[2]

STALLED_SECONDS = 5.0 if LONG else 1.5

OPTIONS = {
    "concurrency": 4 if LONG else 2,
    "beat_seconds": STALLED_SECONDS / 5,
    "stalled_seconds": STALLED_SECONDS,
    "sweep_seconds": STALLED_SECONDS / 4,
    "quiet_seconds": 2 * STALLED_SECONDS,
    "stop_seconds": 5.0,
}

PROGRAM = """
import asyncio, json, random, sys
import pgmem
from pgmem.store import job_runs
from pgmem.worker import worker

url, options, pause = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
job_runs.MOST_RUNS = 1000  # a job may be unlucky as often as this test likes
worker.FIRST_AGAIN_SECONDS = 0.01

async def summarise(request):
    print("asked", flush=True)
    await asyncio.sleep(random.uniform(0, pause))
    return f"turns {request.turns[0].no} to {request.turns[-1].no}"

async def judge(request):
    await asyncio.sleep(random.uniform(0, pause))
    return pgmem.Judgement(outcome=pgmem.Outcome.PASS, judge="chaos")

async def main():
    async with pgmem.open(url, summary_model=summarise, judge_model=judge) as memory:
        await pgmem.Worker(memory, **options).run()

asyncio.run(main())
"""


@dataclass(eq=False)
class Hand:
    """One process that runs a worker."""

    process: subprocess.Popen[bytes]
    said: IO[bytes]
    slept_at: float | None = None

    @property
    def works(self) -> bool:
        """Whether it has begun a job, and is awake."""
        return self.slept_at is None and os.fstat(self.said.fileno()).st_size > 0

    def signal(self, number: signal.Signals) -> None:
        assert self.process.poll() is None, "a worker ended by itself"
        self.process.send_signal(number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.said.close()


@dataclass
class Crew:
    """The processes, and what was done to them."""

    url: str
    folder: Path
    pause_seconds: float
    hands: list[Hand] = field(default_factory=list)
    killed: int = 0
    slept: int = 0
    woken_late: int = 0

    @property
    def told(self) -> str:
        return f"{self.killed} killed, {self.slept} stopped, {self.woken_late} of them woken past the heartbeat"

    def hire(self) -> None:
        said = (self.folder / f"{self.killed}-{self.slept}-{time.monotonic_ns()}").open("wb")
        arguments = (sys.executable, "-c", PROGRAM, self.url, json.dumps(OPTIONS), f"{self.pause_seconds}")
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.DEVNULL)
        self.hands.append(Hand(process, said))

    def disturb(self) -> None:
        """Wakes who slept past the heartbeat, else kills one that works, or puts it to sleep."""
        asleep = [hand for hand in self.hands if hand.slept_at is not None]
        for hand in asleep:
            if time.monotonic() > hand.slept_at + 1.5 * STALLED_SECONDS:
                hand.signal(signal.SIGCONT)
                hand.slept_at = None
                self.woken_late += 1
                return
        at_work = [hand for hand in self.hands if hand.works]
        if not at_work:
            return
        hand = random.choice(at_work)
        if not asleep and random.random() < 0.5:
            hand.signal(signal.SIGSTOP)
            hand.slept_at = time.monotonic()
            self.slept += 1
        else:
            hand.signal(signal.SIGKILL)
            hand.end()
            self.hands.remove(hand)
            self.killed += 1
        if sum(hand.slept_at is None for hand in self.hands) < WORKERS:
            self.hire()

    def wake_all(self) -> None:
        for hand in self.hands:
            if hand.slept_at is not None:
                hand.signal(signal.SIGCONT)
                hand.slept_at = None


@asynccontextmanager
async def crew(url: str, *, pause_seconds: float) -> AsyncIterator[Crew]:
    with tempfile.TemporaryDirectory(prefix="pgmem-crew-") as folder:
        made = Crew(url, Path(folder), pause_seconds)
        try:
            for _ in range(WORKERS):
                made.hire()
            yield made
        finally:
            for hand in made.hands:
                with contextlib.suppress(ProcessLookupError):
                    hand.end()


async def fill(owner, memory: pgmem.Memory, count: int) -> None:
    """So many sessions of a few turns with a policy, and a job for each; by the rules of the chain, some thousand a second."""
    place = (await memory.session("template"))._place
    dumped = json.dumps(dataclasses.asdict(dataclasses.replace(POLICY, strategy=pgmem.Strategy.LLM)))
    await owner.execute(
        "insert into pgmem.sessions (tenant, key) select 'default', 'tree ' || n from generate_series(1, %s) n", (count,)
    )
    await owner.execute(
        "insert into pgmem.trees (session_id, namespace, chain)"
        " select session_id, 'main', sha256(int8send(session_id) || convert_to('main', 'UTF8'))"
        "   from pgmem.sessions where key like 'tree %'"
    )
    moved = (
        "with moved as (update pgmem.trees as t set last_no = t.last_no + 1, chain = sha256(t.chain || %s"
        " || int8send(t.last_no + 1) || int8send(t.branch) || timestamptz_send(statement_timestamp())) from pgmem.sessions s"
        " where s.session_id = t.session_id and s.key like 'tree %%' returning t.session_id, t.last_no as no, t.chain)"
    )
    for message in talk():
        turn = grow.new_turn(place, message)
        await owner.execute(
            moved + " insert into pgmem.turns (session_id, namespace, no, branch, role, content, extra, raw, pinned, tokens, chain,"
            " created_at) select session_id, 'main', no, 0, %s, %s, %s, %s, false, %s, chain, statement_timestamp() from moved",
            (turn.digest, turn.stored.role, turn.stored.content, turn.stored.extra, turn.stored.raw, turn.tokens),
        )
    await owner.execute(
        moved + " insert into pgmem.policies (session_id, namespace, no, policy, chain, created_at)"
        " select session_id, 'main', no, %s::json, chain, statement_timestamp() from moved",
        (digest("policy", dumped), dumped),
    )
    await owner.execute(
        "insert into pgmem_queue.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)"
        " select %s, %s, session_id || '/main', session_id || '/main', json_build_object('session_id', session_id,"
        " 'namespace', 'main', 'policy', 9, 'retry', true, 'last_no', 9)"
        " from pgmem.sessions where key like 'tree %%' order by session_id",
        ("pgmem", TASK),
    )
    await owner.execute("analyze")
    assert (await policies.read((await memory.session("tree 1"))._place, 9)) is not None


async def untouched(owner) -> int:
    (row,) = await rows(owner, "select count(*) as n from pgmem_queue.procrastinate_jobs where status = 'todo' and attempts = 0")
    return row["n"]


async def unfinished(owner) -> list[dict[str, Any]]:
    """The trees that have not exactly one node and one verdict."""
    return await rows(
        owner,
        "select s.key, n.nodes, v.verdicts from pgmem.sessions s"
        " cross join lateral (select count(*) as nodes from pgmem.nodes n where n.session_id = s.session_id) n"
        " cross join lateral (select count(*) as verdicts from pgmem.verdicts v where v.session_id = s.session_id) v"
        " where s.key like 'tree %%' and (n.nodes, v.verdicts) <> (1, 1)",
    )


async def is_done(owner) -> bool:
    return await open_jobs(owner) == 0 and not await unfinished(owner)


@pytest.mark.timeout(1800 if LONG else 300)
async def test_workers_that_are_killed_and_stopped_at_random_lose_nothing_and_do_nothing_twice(memory, url, owner):
    began = time.monotonic()
    await fill(owner, memory, TREES)
    filled = time.monotonic()
    async with crew(url, pause_seconds=0.05 if LONG else 0.3) as workers:

        async def none_is_untouched() -> bool:
            workers.disturb()
            await asyncio.sleep(random.uniform(*PEACE_SECONDS))
            return not await untouched(owner)

        await until(none_is_untouched, "every job was begun", within_seconds=CHAOS_SECONDS)
        calm = time.monotonic()
        workers.wake_all()
        try:
            await until(lambda: is_done(owner), "all is done", within_seconds=STALLED_SECONDS + GRACE_SECONDS)
        except AssertionError as fault:
            raise AssertionError(f"{fault}: jobs {dict(await job_statuses(owner))}, trees {await unfinished(owner)}") from None
    ended = time.monotonic()
    statuses = await job_statuses(owner)
    (again,) = await rows(owner, "select count(*) as n from pgmem_queue.procrastinate_jobs where attempts > 1")
    print(f"{TREES} compactions, {WORKERS} workers: {workers.told}, {again['n']} jobs run again, jobs {dict(statuses)}")
    print(f"filled in {filled - began:.1f} s, {calm - filled:.1f} s of chaos, {ended - calm:.1f} s to end")

    assert workers.killed > 0
    assert workers.woken_late > 0
    assert again["n"] > 0
    assert set(statuses) <= {"succeeded", "aborted"}
    await assert_whole(owner, memory)


async def assert_whole(owner, memory: pgmem.Memory) -> None:
    """Fails unless each tree has its turns, a policy, one node on its path and one verdict, and a sample its whole chain."""
    shape = await rows(
        owner,
        "select t.last_no, t.head, t.boundary, count(u.no) as turns, count(distinct u.content) as contents from pgmem.trees t"
        " join pgmem.sessions s using (session_id) join pgmem.turns u using (session_id, namespace)"
        " where s.key like 'tree %%' group by t.session_id, t.namespace",
    )
    assert len(shape) == TREES
    expected = {"last_no": 11, "head": 10, "boundary": 6, "turns": 8, "contents": 8}
    assert [row for row in shape if row != expected] == []
    for number in random.sample(range(1, TREES + 1), SAMPLE):
        session = await memory.session(f"tree {number}", create=False)
        assert await session.verify() is None
        assert [(node.status, node.summary) for node in await session.path()] == [("compressed", "turns 1 to 6")]


async def summarise(request):
    return "made by the one that is awake"


async def test_a_worker_that_falls_asleep_between_two_statements_holds_no_row(memory, url, owner, key):
    session = await memory.session(key)
    await session.add_turns(talk())
    task = await session.compact_async()
    connector = worker_connector.Connector(memory._database)
    await connector.open_async()
    async with connector.pool.connection() as asleep:
        (worker_id,) = await (await asleep.execute("select worker_id from procrastinate_register_worker_v1()")).fetchone()
        taken = await asleep.execute("select id from procrastinate_fetch_job_v2(array['pgmem'], %s)", (worker_id,))
        assert await taken.fetchall() == [(task.job_id,)]
        await asleep.execute("select procrastinate_update_heartbeat_v1(%s)", (worker_id,))

        # from here on nothing is heard of it, and its connection stays
        async with working(url, summarise, stalled_seconds=1.0, quiet_seconds=QUIET_SECONDS):
            done = await task.wait(timeout_seconds=30)
    await connector.close_async()

    assert done.node.summary == "made by the one that is awake"
    assert await job_statuses(owner) == {"succeeded": 1}


async def test_a_job_that_two_sweeps_found_at_once_is_taken_from_the_dead_worker_and_not_from_the_next(memory, owner, key):
    session = await memory.session(key)
    await session.add_turns(talk())
    task = await session.compact_async()
    app = procrastinate.App(connector=worker_connector.Connector(memory._database))
    async with app.open_async():
        dead, lives = [await app.job_manager.register_worker() for _ in range(2)]
        await app.job_manager.fetch_job(queues=["pgmem"], worker_id=dead)
        # both sweeps have read it, and only one has got further, when a third worker begins it again
        (found,) = await job_runs.stalled(memory._database, seconds=-1)
        await Runs(memory._database, app.connector, asyncio.Event()).give_back(found)
        await app.job_manager.fetch_job(queues=["pgmem"], worker_id=lives)

        await Runs(memory._database, app.connector, asyncio.Event()).give_back(found)

    (job,) = await rows(owner, "select status::text, attempts, worker_id from pgmem_queue.procrastinate_jobs")
    assert job == {"status": "doing", "attempts": 1, "worker_id": lives}
    assert await task.status() == "doing"


@pytest.mark.parametrize(("before", "ended"), [(MOST_RUNS - 2, "todo"), (MOST_RUNS - 1, "failed")])
async def test_a_job_whose_workers_die_again_and_again_fails_in_the_end(memory, owner, key, before, ended):
    session = await memory.session(key)
    await session.add_turns(talk())
    task = await session.compact_async()
    app = procrastinate.App(connector=worker_connector.Connector(memory._database))
    async with app.open_async():
        await owner.execute("update pgmem_queue.procrastinate_jobs set attempts = %s", (before,))
        await app.job_manager.fetch_job(queues=["pgmem"], worker_id=await app.job_manager.register_worker())
        (found,) = await job_runs.stalled(memory._database, seconds=-1)

        await Runs(memory._database, app.connector, asyncio.Event()).give_back(found)

    assert await task.status() == ended
