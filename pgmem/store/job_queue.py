"""The queue as a client sees it: puts a job, in a transaction of its own or in the caller's, and looks at jobs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pgmem.domain.names import shown
from pgmem.errors import DatabaseError, InvalidArgument, SchemaMismatch
from pgmem.store import faults, queue_schema
from pgmem.store.database import Database, Row
from pgmem.store.queries import Statement

TASK = "pgmem.compact"
"""The name of the task that our jobs run."""

MOST_RUNS = 8
"""How often one job is run before it counts as failed; each time that a worker dies or is stopped under it is one, too, but no stop
is the last."""

ALIVE_SECONDS = 60.0
"""After what silence a worker does not count as one that will do what is left to it."""

LITTLE_PATIENCE = "20ms"
"""How long what a sweep or a leaving Memory does waits for an open transaction that put a job of the same tree: many trees may
be in one such transaction, and others' must not wait for them."""

PUT_ATTEMPTS = 5
"""How often a job is put that meets another one of its tree, which came or went at that moment."""


class TreeJob(NamedTuple):
    """What a job is told: which tree and by which settings, and no secret.

    Attributes:
        session_id: the session's number.
        namespace: the namespace.
        policy: the position of the settings in the tree.
        retry: whether a summary that fails is tried again.
        last_no: the position of the newest fact that the job is queued for.
    """

    session_id: int
    namespace: str
    policy: int
    retry: bool = True
    last_no: int = 0

    @classmethod
    def of(cls, told: object) -> TreeJob:
        """The job of what was queued; what a newer release said besides is left out.

        Raises:
            InvalidArgument: that is no job of ours.
        """
        kinds = {"session_id": int, "namespace": str, "policy": int, "retry": bool, "last_no": int}
        found = cls._field_defaults | {name: told[name] for name in kinds if name in told} if isinstance(told, Mapping) else {}
        if any(type(found.get(name)) is not kind or (kind is int and not 0 <= found[name] < 2**63) for name, kind in kinds.items()):
            raise InvalidArgument(f"a job that names no tree: {shown(told)}; cancel it, and queue by compact_async()")
        return cls(**found)

    @property
    def tree(self) -> str:
        """What no two jobs that wait, and no two that run, have in common."""
        return f"{self.session_id}/{self.namespace}"


class Job(NamedTuple):
    """A job as it is listed.

    Attributes:
        id: its number.
        status: todo, doing, succeeded, failed, cancelled, or aborted: it gave way to the next one of its tree.
        attempts: how often it was run.
        tenant: whose session it is for.
        session: the session's key.
        namespace: the namespace.
        queued_at: when it was put.
        moved_at: when its status changed last.
        next_run_at: not before then, or None.
        heard_at: when the worker that runs it last gave a sign of life, or None.
        error: of what kind the error was that ended its last run, or None.
    """

    id: int
    status: str
    attempts: int
    tenant: str | None
    session: str | None
    namespace: str | None
    queued_at: datetime | None
    moved_at: datetime | None
    next_run_at: datetime | None
    heard_at: datetime | None
    error: str | None


class JobSums(NamedTuple):
    """How the queue is.

    Attributes:
        waiting: jobs that wait.
        waiting_since: when the oldest of them was put, or None.
        running: jobs that run.
        failed: jobs that have failed.
        workers: workers that gave a sign of life in the last minute.
    """

    waiting: int
    waiting_since: datetime | None
    running: int
    failed: int
    workers: int


async def check(database: Database) -> None:
    """Nothing, when the queue is there, of this release, and this role may use it.

    Raises:
        SchemaMismatch: it is not; the message says what to do.
    """
    name = queue_schema.name_of(database.settings.schema)
    found = await database.run(database.queries.check_queue, {"schema": name}, repeatable=True)
    if not found:
        raise SchemaMismatch(f"there is no queue in schema {name!r}: run `pgmem db upgrade` as a role that may make that schema")
    if found[0]["made_by"] != queue_schema.release():
        raise SchemaMismatch(
            f"the queue in schema {name!r} is of {found[0]['made_by']}, and {queue_schema.release()} is installed: install that one"
        )
    if not found[0]["usable"]:
        raise SchemaMismatch(f"this role may not use the queue in schema {name!r}: `grant pgmem_app` to it")


async def has_worker(database: Database) -> bool:
    """Whether the queue is there and somebody works on it."""
    try:
        await check(database)
    except SchemaMismatch:
        return False
    return bool(await database.run(database.queries.find_worker, {"seconds": ALIVE_SECONDS}, repeatable=True))


async def put(database: Database, job: TreeJob, *, patience: str | None = None) -> int:
    """Queues a compaction of the tree, unless one waits already; gives the number of the job that waits.

    Args:
        database: where the queue is.
        job: what to do.
        patience: how long to wait for an open transaction that put a job of the same tree; None for as long as a statement may.
    """
    parameters = put_parameters(database, job) | {"patience": patience}
    return int((await first_put(lambda: database.run(database.queries.put_job, parameters)))["id"])


def put_parameters(database: Database, job: TreeJob) -> dict[str, Any]:
    """What a job is put with, where nothing else is asked of the connection."""
    return {
        "queue": database.queue,
        "task": TASK,
        "tree": job.tree,
        "args": json.dumps(job._asdict()),
        "session_id": job.session_id,
        "key": None,
        "made_at": None,
        "patience": None,
    }


async def first_put(run: Callable[[], Awaitable[list[Row]]]) -> Row:
    """The row with the number of the job that waits, asked for again while others of its tree come and go.

    Raises:
        InvalidArgument: the session is not where the statement is run.
    """
    for _ in range(PUT_ATTEMPTS):
        (row,) = await run()
        if not row["is_here"]:
            raise InvalidArgument(
                "the connection sees no such session: it leads to another database, or its transaction began before the session "
                "was there"
            )
        if row["id"] is not None:
            return row
    raise DatabaseError(f"{PUT_ATTEMPTS} other jobs of the tree came and went while one was to be put: try again", retryable=True)


async def status(database: Database, job: int) -> str | None:
    """The job's status; None when there is no such job, or its transaction is not committed."""
    return (await looked_at(database, job, xact=None))[0]


async def looked_at(database: Database, job: int, *, xact: int | None) -> tuple[str | None, str | None]:
    """The job's status, and how the transaction that it was put in ended: in progress, committed, aborted, or None."""
    try:
        (row,) = await database.run(database.queries.read_job, {"job": job, "xact": xact}, repeatable=True)
    except DatabaseError as error:
        if not faults.is_unknown_transaction(error):
            raise
        return await status(database, job), None  # the server has ended since, and what was not committed with it
    return row["status"], row["xact"]


async def listed(database: Database, *, status: str | None, most: int) -> list[Job]:
    """The newest jobs, of one status or of all."""
    parameters = {"queue": database.queue, "status": status, "most": most}
    return [Job(**row) for row in await database.run(database.queries.list_jobs, parameters, repeatable=True)]


async def summed(database: Database) -> JobSums:
    """How the queue is."""
    parameters = {"queue": database.queue, "seconds": ALIVE_SECONDS}
    (row,) = await database.run(database.queries.sum_jobs, parameters, repeatable=True)
    return JobSums(**row)


async def retry(database: Database, job: int) -> int | None:
    """Queues a job again that failed, for as many runs as a new one, or whose worker died, and has one run now that is to wait.

    Returns:
        The job of the tree that waits now: this one, or one that was put since. None when it is none of these.
    """
    found = await alone(database, database.queries.retry_job, {"job": job, "seconds": ALIVE_SECONDS, "most_runs": MOST_RUNS})
    return int(found[0]["id"]) if found else None


async def cancel(database: Database, job: int) -> str | None:
    """Takes a job that waits or has failed out of the queue, or asks its worker to stop it.

    Returns:
        The status that it had; None when it is over.
    """
    found = await database.run(database.queries.cancel_job, {"job": job})
    return str(found[0]["status"]) if found else None


async def successor(database: Database, job: int) -> int | None:
    """The job that this one gave way to, if it did."""
    found = await database.run(database.queries.find_successor, {"job": job}, repeatable=True)
    return int(found[0]["id"]) if found else None


async def alone(database: Database, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
    """The rows of a statement that lets a job wait, run again where another one of its tree came to wait at that moment."""
    for _ in range(PUT_ATTEMPTS - 1):
        try:
            return await database.run(statement, parameters)
        except DatabaseError as error:
            if not faults.violates(error, faults.ONE_WAITS):
                raise
    return await database.run(statement, parameters)
