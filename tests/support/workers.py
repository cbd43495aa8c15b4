"""Workers for tests: quick ones, and what is said to and by them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

import pgmem
from tests.support.talk import assistant, user
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]

QUICK = {"sweep_seconds": 0.2, "quiet_seconds": 3600.0, "beat_seconds": 0.1, "stalled_seconds": 2.0, "stop_seconds": 5.0}
"""A worker that looks after others soon, and never for what nobody queued."""


@asynccontextmanager
async def working(url: str, summarise: Any, judge: Any = None, **options: Any) -> AsyncIterator[pgmem.Worker]:
    """A quick worker that works while the body runs."""
    async with pgmem.open(url, summary_model=summarise, judge_model=judge) as memory:
        worker = pgmem.Worker(memory, **QUICK | options)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            async with asyncio.timeout(60):
                await running


async def sweeps(worker: pgmem.Worker, times: int) -> None:
    """Waits for so many sweeps of the worker."""
    for _ in range(times):
        before = worker.health.swept_at
        await until(lambda before=before: worker.health.swept_at != before, "the worker has swept")


async def grow(session: pgmem.Namespace, count: int = 8) -> None:
    """Adds so many turns, of user and assistant in turn."""
    await session.add_turns([(user, assistant)[number % 2](f"turn {number} says several words.") for number in range(count)])


async def summarise(request: pgmem.SummaryRequest) -> str:
    """A summary that says of which turns it is."""
    return "the memory of " + ", ".join(str(turn.no) for turn in request.turns)


async def passes(request: pgmem.JudgeRequest) -> pgmem.Judgement:
    """A judge that nothing displeases."""
    return pgmem.Judgement(outcome=pgmem.Outcome.PASS, judge="test")


async def facts(session: pgmem.Namespace) -> tuple[list[str], list[tuple[int, str]], list[pgmem.Node]]:
    """All summaries ever made, all verdicts as node and judge, and the nodes."""
    nodes = [node async for node in session.nodes()]
    verdicts = [verdict async for verdict in session.verdicts()]
    return [node.summary for node in nodes], [(verdict.node, verdict.judge) for verdict in verdicts], nodes


def started(program: str, *arguments: str) -> subprocess.Popen:
    """A Python program in a process of its own, whose standard output is heard."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", program, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE)


def jobs(server: Any, database: str) -> list[tuple[int, str]]:
    """The queue's jobs and their statuses, in order."""
    with psycopg.connect(server.on(database)) as connection:
        return connection.execute("select id, status::text from pgmem_queue.procrastinate_jobs order by id").fetchall()


class Hangs:
    """A strategy that never answers; ``begun`` is set once it is asked."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, request: pgmem.SummaryRequest) -> str:
        self.begun.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")
