"""What a worker looks after now and then: jobs of the dead, ends that were not stored, trees that nobody queued, old rows."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Set
from functools import partial

from pgmem.operations.compact import KIND
from pgmem.store import job_queue, job_runs
from pgmem.store.database import Database
from pgmem.store.job_queue import TreeJob
from pgmem.store.job_runs import Run
from pgmem.worker.runs import Runs, told_of

log = logging.getLogger("pgmem")

KEPT_HOURS = 24
"""How long a job that is over stays in the list."""


class Sweeps:
    """The sweeps of one worker; what of one cannot be done now is left for the next, and stops nothing else.

    Args:
        database: where the queue is.
        quiet_seconds: how long a tree must have been left alone before it counts as forgotten.
        stalled_seconds: after what silence a worker counts as dead.
    """

    def __init__(self, database: Database, *, quiet_seconds: float, stalled_seconds: float) -> None:
        self._database = database
        self._quiet_seconds = quiet_seconds
        self._stalled_seconds = stalled_seconds
        self._unheard: Set[Run] = frozenset()
        self._looked_at = -math.inf

    async def sweep(self, runs: Runs, under_way: Set[Run]) -> bool:
        """Does all of it once; whether all could be looked at.

        Args:
            runs: the worker's.
            under_way: the runs that it works on.
        """
        parts = (
            partial(self._take_over, runs),
            partial(self._give_back, runs, under_way),
            self._queue_forgotten,
            partial(self._forget, runs),
        )
        return all([await _tried("a part of a sweep", part) for part in parts])

    async def _take_over(self, runs: Runs) -> None:
        """Gives back the jobs of workers that died."""
        for run in await job_runs.stalled(self._database, seconds=self._stalled_seconds):
            log.warning("job %d was left by a worker that gives no sign of life", run.job)
            await _tried(f"job {run.job}", partial(runs.give_back, run))

    async def _give_back(self, runs: Runs, under_way: Set[Run]) -> None:
        """Gives back jobs that this worker runs no more and that are not ended: the statement that ends them has failed."""
        if runs.worker_id is None:
            return
        here = await job_runs.unended(self._database, runs.worker_id) - under_way
        for run in here & self._unheard:  # seen twice: its end is not just on its way
            log.warning("the end of job %d could not be stored", run.job)
            await _tried(f"job {run.job}", partial(runs.give_back, run))
        self._unheard = here

    async def _queue_forgotten(self) -> None:
        """Queues trees that are due and that nobody queued."""
        if time.monotonic() - self._looked_at < self._quiet_seconds:  # it reads every tree with settings
            return
        self._looked_at = time.monotonic()
        async for job in job_runs.orphans(self._database, kind=KIND, quiet_seconds=self._quiet_seconds):
            await _tried(f"the tree {job.tree}", partial(self._queue, job))

    async def _queue(self, job: TreeJob) -> None:
        number = await job_queue.put(self._database, job, patience=job_queue.LITTLE_PATIENCE)
        log.info("job %d is put: its tree is due, and nobody had queued it", number)

    async def _forget(self, runs: Runs) -> None:
        """Forgets workers that died and jobs that ended."""
        await runs.prune_stalled_workers(self._stalled_seconds)
        await job_runs.forget(self._database, hours=KEPT_HOURS)


async def _tried(what: str, work: Callable[[], Awaitable[object]]) -> bool:
    """Whether it could be done; else the log says why."""
    try:
        await work()
    except Exception as error:  # whatever it was: who does not sweep leaves others' work undone
        log.warning("%s is left for the next sweep: %s", what, told_of(error))
        return False
    return True
