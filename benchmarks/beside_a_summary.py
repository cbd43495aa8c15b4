"""What an agent feels of a summary that is written meanwhile: add_turn and context beside a slow model, and without it.

    python benchmarks/beside_a_summary.py [--url URL] [--turns 1000] [--seconds 30] [--runs 5] [--queue]

A run is a session of 40 turns that talks on: so many times add_turn and then context, evenly over a little more than the time that
the model takes. With it, compact_async() is called at the beginning: the snapshot is read, the model asked over HTTP, the node
committed and judged while the agent talks. Without it, the same and no compact_async(). Runs with and without take turns; which
one begins changes each time. A pair of add_turn and context is one measured value.

It prints p50 and p99 of both and their ratio, for each run and as the median over all. What it does not say: the agent shares its
event loop with the scripted endpoint and, without --queue, with the compaction; a machine that does other work blurs the p99.
Without --url it starts a server of its own, on a RAM disk where there is one, and ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pgmem
from pgmem.store import embedded, migrate
from pgmem.testing import Answer, ScriptedModel, ScriptedRequest, passing, summary

BEFORE = 40
SPARE_SECONDS = 2.0
RAM = Path("/dev/shm")


@contextmanager
def database(url: str | None) -> Iterator[str]:
    """The given server, or one that lives as long as this."""
    if url is not None:
        yield url
        return
    home = Path(tempfile.mkdtemp(prefix="pgmem-bench-", dir=RAM if RAM.is_dir() else None))
    server = embedded.start(home, keep_running=False)
    try:
        migrate.upgrade(server.url())
        migrate.allow_login(server.url(), roles=("pgmem_app",), password=server.password)
        yield server.url(user="pgmem_app")
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


@asynccontextmanager
async def memory_of(url: str, model: Any, *, queue: bool) -> AsyncIterator[pgmem.Memory]:
    """A Memory whose compactions that model makes, in this process or by a worker with connections of its own."""
    policy = pgmem.Policy(threshold=20, keep_recent=5)
    if not queue:
        async with pgmem.open(url, policy=policy, summary_model=model, judge_model=model) as memory:
            yield memory
        return
    async with (
        pgmem.open(url, summary_model=model, judge_model=model) as workers,
        pgmem.open(url, policy=policy, background="queue") as memory,
    ):
        worker = pgmem.Worker(workers)
        running = asyncio.create_task(worker.run())
        yield memory
        worker.stop()
        await running


async def run(memory: pgmem.Memory, *, turns: int, seconds: float, compacts: bool) -> list[float]:
    """Milliseconds of each add_turn with its context."""
    session = await memory.session(f"run-{uuid.uuid4()}")
    await session.add_turns(
        [{"role": ("user", "assistant")[number % 2], "content": f"turn {number} " * 20} for number in range(BEFORE)]
    )
    task = await session.compact_async() if compacts else None
    began, took = time.perf_counter(), []
    for number in range(turns):
        await asyncio.sleep(max(0.0, began + number * (seconds + SPARE_SECONDS) / turns - time.perf_counter()))
        start = time.perf_counter()
        await session.add_turn("user", f"meanwhile {number}")
        await session.context()
        took.append((time.perf_counter() - start) * 1000)
    if task is not None:
        done = await task
        assert done.node is not None, "the summary stands"
    return took


def percentiles(took: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return cuts[49], cuts[98]


async def measure(url: str, *, turns: int, seconds: float, runs: int, queue: bool) -> list[dict[str, float]]:
    def answer(request: ScriptedRequest) -> Answer:
        return summary("What was said before.").after(seconds) if request.asks_for == "summary" else passing()

    found = []
    async with ScriptedModel(rule=answer) as endpoint:
        model = pgmem.OpenAIModel("scripted", base_url=endpoint.base_url, timeout_seconds=seconds + 60)
        async with model, memory_of(url, model, queue=queue) as memory:
            await run(memory, turns=turns, seconds=0, compacts=False)  # connections, plans and caches are there from here on
            for number in range(runs):
                took = {}
                for compacts in (True, False) if number % 2 else (False, True):
                    took[compacts] = percentiles(await run(memory, turns=turns, seconds=seconds, compacts=compacts))
                (p50, p99), (p50_alone, p99_alone) = took[True], took[False]
                found.append(
                    {
                        "p50_ms": p50,
                        "p50_alone_ms": p50_alone,
                        "p50_ratio": p50 / p50_alone,
                        "p99_ms": p99,
                        "p99_alone_ms": p99_alone,
                        "p99_ratio": p99 / p99_alone,
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a database that is migrated, for a login that is granted pgmem_app")
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the summary takes")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--queue", action="store_true", help="a worker compacts, with connections of its own")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with database(given.url) as url:
        found = asyncio.run(measure(url, turns=given.turns, seconds=given.seconds, runs=given.runs, queue=given.queue))
    middle = {name: statistics.median(row[name] for row in found) for name in found[0]}
    if given.json:
        print(json.dumps({"runs": found, "median": middle}))
        return
    command = f"python benchmarks/beside_a_summary.py --turns {given.turns} --seconds {given.seconds:g} --runs {given.runs}"
    print(command + " --queue" * given.queue)
    print(f"{'run':>6} {'p50 ms':>8} {'alone':>8} {'ratio':>6} {'p99 ms':>8} {'alone':>8} {'ratio':>6}")
    for name, row in (*((str(number), row) for number, row in enumerate(found, 1)), ("median", middle)):
        cells = [f"{value:>{6 if 'ratio' in column else 8}.2f}" for column, value in row.items()]
        print(f"{name:>6} " + " ".join(cells))


if __name__ == "__main__":
    main()
