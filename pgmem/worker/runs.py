"""How procrastinate's worker says that it lives and ends its runs of jobs: by statements that know whose run it is."""

# ruff: noqa: ARG002 - the signatures are procrastinate's
from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from procrastinate import utils
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

from pgmem.errors import PgmemError
from pgmem.store import faults, job_runs
from pgmem.store.database import Database
from pgmem.store.job_queue import LITTLE_PATIENCE, MOST_RUNS, TASK
from pgmem.store.job_runs import Run
from pgmem.store.worker_connector import Connector, NoAnswer

log = logging.getLogger("pgmem")


class Runs(JobManager):
    """The job manager of one worker.

    Procrastinate's own ends a job by its number alone. A worker that was asleep while another one took its job over would so end
    the run of that one.

    Args:
        database: where the queue is.
        connector: procrastinate's connections to it.
        stopping: set once the worker is told to stop.

    Attributes:
        worker_id: the worker's number in the queue; None before it is registered.
        heard_at: when it last said that it lives, or was made, by the monotonic clock.
        errors: of what kind the error is that ends a run.
        ending: runs whose end is being stored.
    """

    def __init__(self, database: Database, connector: Connector, stopping: asyncio.Event) -> None:
        super().__init__(connector)
        self._connector = connector
        self._stopping = stopping
        self.worker_id: int | None = None
        self.heard_at = time.monotonic()
        self.errors: dict[Run, str] = {}
        self.ending: set[Run] = set()
        self._database = database
        self._not_stored: dict[Run, dict[str, Any]] = {}

    async def register_worker(self) -> int:
        """Makes the worker known."""
        self.worker_id = await super().register_worker()
        self.heard_at = time.monotonic()
        return self.worker_id

    async def beat(self, seconds: float) -> None:
        """Says again and again that the worker lives, also while it stops; where that fails the next beat says it."""
        while True:
            await asyncio.sleep(seconds)
            if self.worker_id is None:
                continue
            try:
                if await job_runs.beat(self._database, self.worker_id):
                    self.heard_at = time.monotonic()
                else:
                    log.warning("the worker is not known in the queue any more, since it was silent for long")
            except PgmemError as error:
                log.warning("the worker could not say that it lives: %s", told_of(error))

    async def silence(self, seconds: float) -> None:
        """Waits until the worker could not say for so long that it lives: others take its jobs over then, and forget it."""
        while (left := self.heard_at + seconds - time.monotonic()) > 0:  # noqa: ASYNC110 - each beat moves the end
            await asyncio.sleep(left)

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """The next job, begun; whatever it is told is one argument, so that what is none of ours fails by being run."""
        try:
            job = await super().fetch_job(queues, worker_id)
        except NoAnswer as error:  # whether the worker is lost its beats say
            log.warning("no job can be taken now: %s", told_of(error))
            await self._connector.renew()
            return None
        if job is None:
            return None
        told = job.task_kwargs if job.task_name == TASK else {"task": job.task_name}
        return job.evolve(task_name=TASK, task_kwargs={"told": told})

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """Ends this worker's run of the job for good."""
        await self._end_own(run_of(job), status=status.value)

    async def retry_job(
        self,
        job: Job,
        retry_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """Ends this worker's run of the job, which is run again if it may be."""
        seconds = (retry_at - utils.utcnow()).total_seconds() if retry_at else 0.0
        run = run_of(job)
        await self._end_own(run, again_seconds=max(seconds, 0.0), stopped=self._stopping.is_set() and run not in self.errors)

    async def give_back(self, run: Run) -> None:
        """Ends a run that nobody works on any more, as it was to end if that is known; nothing when somebody else was faster.

        Raises:
            DatabaseError: it cannot be done now.
        """
        await self._end(run, patience=LITTLE_PATIENCE, **self._not_stored.get(run, {}))
        self._not_stored.pop(run, None)

    async def _end_own(self, run: Run, **how: Any) -> None:
        how["error"] = self.errors.pop(run, None)
        self.ending.add(run)
        try:
            if await self._end(run, **how) is None:
                log.warning("job %d was taken over meanwhile: how this run of it ended does not count", run.job)
        except PgmemError as error:
            self._not_stored[run] = how
            log.warning("the end of job %d cannot be stored now, a sweep does it: %s", run.job, told_of(error))
        finally:
            self.ending.discard(run)

    async def _end(self, run: Run, *, again_seconds: float = 0.0, **how: Any) -> str | None:
        became = await job_runs.end_run(self._database, run, again_seconds=again_seconds, **how)
        if became == "todo":
            number = min(run.before % MOST_RUNS + 2, MOST_RUNS)
            log.info("job %d is run again in %.0f s, its run %d of %d", run.job, again_seconds, number, MOST_RUNS)
        elif became == "aborted":
            log.info("job %d gives way to the next one of its tree, which is run in %.0f s", run.job, again_seconds)
        elif became == "cancelled":
            log.info("job %d is cancelled", run.job)
        elif became == "failed":
            log.error("job %d has failed: `pgmem jobs retry %d` queues it again", run.job, run.job)
        return became


def run_of(job: Job) -> Run:
    """The run that a job was fetched for."""
    assert job.id is not None  # noqa: S101 - it was read from the table
    return Run(job.id, job.attempts)


def kinds_of(error: BaseException | None) -> str:
    """The types of an error and its causes, which hold nothing of a conversation."""
    kinds: list[str] = []
    while error is not None:
        kinds.append(type(error).__name__)
        error = error.__cause__
    return ": ".join(kinds)


def told_of(error: BaseException | None) -> str:
    """What an error says, with its causes, on one line."""
    said: list[str] = []
    while error is not None:
        words = faults.words_of(error).rstrip(".")
        if not any(words in before for before in said):
            said.append(words)
        error = error.__cause__
    return ": ".join(said)
