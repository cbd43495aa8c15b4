"""The queue as a client sees it: puts a job, in a transaction of its own or in the caller's, and looks at jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from pgmem.domain.names import shown
from pgmem.errors import DatabaseError, InvalidArgument, SchemaMismatch
from pgmem.store import faults, queue_schema
from pgmem.store.database import Database, Row
from pgmem.store.queries import Statement

QUEUE = "pgmem"
"""The name of procrastinate's queue that our jobs are in."""

TASK = "pgmem.compact"
"""The name of the task that our jobs run."""

PAGE = 500

ALIVE_SECONDS = 60.0
"""After what silence a worker does not count as one that will do what is left to it."""

PUT_ATTEMPTS = 5
"""How often a job is put that meets another one of its tree, which came or went at that moment."""


class TreeJob(NamedTuple):
    """What a job is told: which tree and by which settings, and no secret.

    Attributes:
        session_id: the session's number.
        namespace: the namespace.
        policy: the position of the settings in the tree.
        retry: whether a summary that fails is tried again.
    """

    session_id: int
    namespace: str
    policy: int
    retry: bool = True

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> TreeJob:
        """The job of what was queued; what a newer release said besides is left out.

        Raises:
            InvalidArgument: that is no job of ours.
        """
        kinds = {"session_id": int, "namespace": str, "policy": int, "retry": bool}
        found = {"retry": True} | {name: told[name] for name in kinds if name in told}
        if any(type(found.get(name)) is not kind for name, kind in kinds.items()):
            raise InvalidArgument(f"a job that names no tree: {shown(dict(told))}; cancel it, and queue by compact_async()")
        return cls(**found)

    @property
    def tree(self) -> str:
        """What no two jobs that wait, and no two that run, have in common."""
        return f"{self.session_id}/{self.namespace}"


class Run(NamedTuple):
    """One run of a job; a run that somebody else has ended is another one than the next.

    Attributes:
        job: the job's number.
        before: how many runs it had before.
    """

    job: int
    before: int


class Job(NamedTuple):
    """A job as it is listed.

    Attributes:
        id: its number.
        status: todo, doing, succeeded, failed, cancelled or aborted.
        attempts: how often it was run.
        scheduled_at: not before then, or None.
        tenant: whose session it is for.
        session: the session's key.
        namespace: the namespace.
        queued_at: when it was put.
        moved_at: when its status changed last.
    """

    id: int
    status: str
    attempts: int
    scheduled_at: datetime | None
    tenant: str | None
    session: str | None
    namespace: str | None
    queued_at: datetime | None
    moved_at: datetime | None


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


def check_connection(connection: Any) -> None:
    """Nothing, when it is None or a connection that a job can be put on.

    Raises:
        InvalidArgument: it is neither.
    """
    if connection is not None and not isinstance(connection, psycopg.AsyncConnection):
        raise InvalidArgument(f"connection is of type {type(connection).__name__}: give a psycopg.AsyncConnection")


async def put(database: Database, job: TreeJob, *, connection: Any = None) -> int:
    """Queues a compaction of the tree, unless one waits already; gives the number of the job that waits.

    Args:
        database: where the queue is.
        job: what to do.
        connection: the caller's own connection, whose transaction the job becomes part of; None for one of its own.
    """
    parameters = {
        "queue": QUEUE,
        "task": TASK,
        "tree": job.tree,
        "args": json.dumps(job._asdict()),
    }
    for _ in range(PUT_ATTEMPTS):
        found = await _run(database, parameters, connection)
        if found:
            return int(found[0]["id"])
    raise SchemaMismatch("the queue takes no job and has none waiting: look at its tables with `pgmem jobs list`")


async def status(database: Database, job: int) -> str | None:
    """The job's status; None when there is no such job any more."""
    found = await database.run(database.queries.read_job, {"job": job}, repeatable=True)
    return str(found[0]["status"]) if found else None


async def listed(database: Database, *, status: str | None, most: int) -> list[Job]:
    """The newest jobs, of one status or of all."""
    parameters = {"queue": QUEUE, "status": status, "most": most}
    return [Job(**row) for row in await database.run(database.queries.list_jobs, parameters, repeatable=True)]


async def retry(database: Database, job: int) -> int | None:
    """Queues a failed job again, or one whose worker died.

    Returns:
        The job of the tree that waits now: this one, or one that was put since. None when it neither failed nor was left.
    """
    found = await _alone(database, database.queries.retry_job, {"job": job, "seconds": ALIVE_SECONDS})
    return int(found[0]["id"]) if found else None


async def cancel(database: Database, job: int) -> bool:
    """Cancels a job that waits, or asks its worker to stop it; False when it does neither wait nor run."""
    found = await database.run(database.queries.cancel_job, {"job": job})
    return found[0]["id"] is not None


async def successor(database: Database, job: int) -> int | None:
    """The newest job of the same tree that was put after this one: what it gave way to."""
    found = await database.run(database.queries.find_successor, {"job": job}, repeatable=True)
    return int(found[0]["id"]) if found else None


async def unended(database: Database, worker: int) -> set[Run]:
    """The runs that a worker has begun and not ended."""
    found = await database.run(database.queries.list_unended, {"worker": worker}, repeatable=True)
    return {Run(row["id"], row["runs"]) for row in found}


async def end_run(
    database: Database, run: Run, *, status: str | None = None, again_seconds: float = 0.0, most_runs: int
) -> str | None:
    """Ends a run of a job and gives the status that the job has then; None when somebody else has ended that run.

    Args:
        database: where the queue is.
        run: which one.
        status: succeeded, failed or aborted; None for a job that is to be run again. That one gives way to a job of the same
            tree that waits already, and is aborted then, as it is when it was cancelled meanwhile.
        again_seconds: how long until it is run again.
        most_runs: after how many runs it has failed.
    """
    parameters = {"job": run.job, "runs": run.before, "status": status, "again_seconds": again_seconds, "most_runs": most_runs}
    found = await _alone(database, database.queries.end_run, parameters)
    return str(found[0]["status"]) if found else None


async def _alone(database: Database, statement: Statement, parameters: Mapping[str, Any]) -> list[Row]:
    """The rows of a statement that lets a job wait, run again where another one of its tree came to wait at that moment."""
    for _ in range(PUT_ATTEMPTS - 1):
        try:
            return await database.run(statement, parameters)
        except DatabaseError as error:
            if not faults.violates(error, faults.ONE_WAITS):
                raise
    return await database.run(statement, parameters)


async def _run(database: Database, parameters: dict[str, Any], connection: Any) -> list[Row]:
    if connection is None:
        return await database.run(database.queries.put_job, parameters)
    statement = database.queries.put_job
    with faults.translated():
        cursor = psycopg.AsyncRawCursor(connection, row_factory=psycopg.rows.dict_row)
        await cursor.execute(statement.text, [parameters[name] for name in statement.names])
        return await cursor.fetchall()


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
                yield TreeJob(row["session_id"], row["namespace"], row["policy"], row["retry"])
        if len(page) < PAGE:
            return
        after = (page[-1]["session_id"], page[-1]["namespace"])
