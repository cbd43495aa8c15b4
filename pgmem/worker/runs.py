"""How procrastinate's worker says that it lives and ends its runs of jobs: by statements that know whose run it is."""

# ruff: noqa: ARG002 - the signatures are procrastinate's
from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime
from typing import Any

from procrastinate import utils
from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

from pgmem.store import job_queue
from pgmem.store.database import Database
from pgmem.store.job_queue import Run
from pgmem.store.worker_connector import LOST

log = logging.getLogger("pgmem")

MOST_RUNS = 8
"""How often one job is run before it counts as failed; each time that a worker is stopped under it is one, too."""


class Runs(JobManager):
    """The job manager of one worker.

    Procrastinate's own ends a job by its number alone. A worker that was asleep while another one took its job over would so end
    the run of that one.

    Attributes:
        worker_id: the worker's number in the queue; None before it is registered.
        heard_at: when it last said that it lives, or was made, by the monotonic clock.
    """

    def __init__(self, database: Database, connector: BaseAsyncConnector) -> None:
        super().__init__(connector)
        self.worker_id: int | None = None
        self.heard_at = time.monotonic()
        self._database = database

    async def register_worker(self) -> int:
        """Makes the worker known."""
        self.worker_id = await super().register_worker()
        self.heard_at = time.monotonic()
        return self.worker_id

    async def update_heartbeat(self, worker_id: int) -> None:
        """Says that the worker lives; where that fails the next beat says it, and ``silence()`` when none does."""
        try:
            await super().update_heartbeat(worker_id)
        except LOST as error:
            log.warning("the worker could not say that it lives: %s", told_of(error))
        else:
            self.heard_at = time.monotonic()

    async def silence(self, seconds: float) -> None:
        """Waits until the worker could not say for so long that it lives: others take its jobs over then, and forget it."""
        while (left := self.heard_at + seconds - time.monotonic()) > 0:  # noqa: ASYNC110 - each beat moves the end
            await asyncio.sleep(left)

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """Ends this worker's run of the job for good."""
        await self._end_own(job, status=status.value)

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
        await self._end_own(job, again_seconds=max(seconds, 0.0))

    async def give_back(self, run: Run) -> None:
        """Ends a run that nobody works on any more; nothing when somebody else was faster."""
        await self._end(run)

    async def _end_own(self, job: Job, **how: Any) -> None:
        if await self._end(run_of(job), **how) is None:
            log.warning("job %d was taken over meanwhile: how this run of it ended does not count", job.id)

    async def _end(self, run: Run, *, status: str | None = None, again_seconds: float = 0.0) -> str | None:
        became = await job_queue.end_run(self._database, run, status=status, again_seconds=again_seconds, most_runs=MOST_RUNS)
        if became is not None and became != status:
            log.warning("job %d %s", run.job, _BECAME[became])
        return became


_BECAME = {
    "todo": "is run again",
    "aborted": "ends here: it was cancelled, or the next one of its tree waits",
    "failed": f"has failed for good, after {MOST_RUNS} runs",
}


def run_of(job: Job) -> Run:
    """The run that a job was fetched for."""
    assert job.id is not None  # noqa: S101 - it was read from the table
    return Run(job.id, job.attempts)


def told_of(error: BaseException | None) -> str:
    """What an error says, with its causes, on one line."""
    said: list[str] = []
    while error is not None:
        words = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if not any(words in before for before in said):
            said.append(words)
        error = error.__cause__
    return ": ".join(said)
