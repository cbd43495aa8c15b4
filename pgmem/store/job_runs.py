"""The queue as a worker sees it: says that it lives, ends its runs of jobs, finds what others left, forgets what is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from pgmem.store.database import Database
from pgmem.store.job_queue import MOST_RUNS, TreeJob, alone

PAGE = 500

PATIENCE = "1s"
"""How long the end of a run waits for a transaction that put a job of the same tree and is still open."""

AWAITED_SECONDS = 60.0
"""How long a failure stays at least, so that who awaits the job hears of it."""


class Run(NamedTuple):
    """One run of a job; a run that somebody else has ended is another one than the next.

    Attributes:
        job: the job's number.
        before: the job's count of runs before it.
    """

    job: int
    before: int


async def beat(database: Database, worker: int) -> bool:
    """Says that a worker lives; False when it is not known any more."""
    return bool(await database.run(database.queries.beat, {"worker": worker}, repeatable=True))


async def unended(database: Database, worker: int) -> set[Run]:
    """The runs that a worker has begun and not ended."""
    found = await database.run(database.queries.list_unended, {"worker": worker}, repeatable=True)
    return {Run(row["id"], row["runs"]) for row in found}


async def stalled(database: Database, *, seconds: float) -> list[Run]:
    """The runs of workers that gave no sign of life for so long."""
    found = await database.run(database.queries.list_stalled, {"queue": database.queue, "seconds": seconds}, repeatable=True)
    return [Run(row["id"], row["runs"]) for row in found]


async def end_run(
    database: Database,
    run: Run,
    *,
    status: str | None = None,
    again_seconds: float = 0.0,
    error: str | None = None,
    stopped: bool = False,
    patience: str = PATIENCE,
) -> str | None:
    """Ends a run of a job and gives the status that the job has then; None when somebody else has ended that run.

    Args:
        database: where the queue is.
        run: which one.
        status: succeeded or failed; None for a job that is to be run again. One of whose tree the next job waits already is
            aborted then: that one has its runs and its pause. What was to stop and has not succeeded is cancelled.
        again_seconds: how long until it is run again.
        error: of what kind the error was that ended it.
        stopped: whether its worker was told to stop, which is never its last run.
        patience: how long to wait for an open transaction that put a job of the same tree.

    Raises:
        DatabaseTimeout: a transaction that put a job of the same tree stayed open.
    """
    parameters = {"job": run.job, "runs": run.before, "status": status, "again_seconds": again_seconds, "error": error}
    parameters |= {"most_runs": MOST_RUNS, "stopped": stopped, "patience": patience}
    found = await alone(database, database.queries.end_run, parameters)
    return str(found[0]["status"]) if found else None


async def orphans(database: Database, *, kind: str, quiet_seconds: float) -> AsyncIterator[TreeJob]:
    """What nobody queued although it is due: trees that were last touched so long ago; each page is a statement of its own.

    Args:
        database: where the queue is.
        kind: the kind of a compaction's nodes.
        quiet_seconds: how long ago.
    """
    after: tuple[int, str] = (0, "")
    while True:
        parameters = {"after_session": after[0], "after_namespace": after[1], "kind": kind, "quiet_seconds": quiet_seconds}
        page = await database.run(database.queries.find_orphans, parameters | {"most": PAGE}, repeatable=True)
        for row in page:
            if row["due"]:
                yield TreeJob(row["session_id"], row["namespace"], row["policy"], row["retry"], row["last_no"])
        if len(page) < PAGE:
            return
        after = (page[-1]["session_id"], page[-1]["namespace"])


async def forget(database: Database, *, hours: int) -> None:
    """Forgets jobs that are over for so long; one that failed or was cancelled only once a later job of its tree is there."""
    parameters = {"queue": database.queue, "hours": hours, "seconds": AWAITED_SECONDS}
    await database.run(database.queries.forget_jobs, parameters, repeatable=True)
