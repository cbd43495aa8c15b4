"""A job put on the caller's own connection, whose transaction it becomes part of."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from pgmem.errors import DatabaseTimeout, InvalidArgument
from pgmem.store import faults
from pgmem.store.database import Database, Row, until
from pgmem.store.job_queue import TreeJob, first_put, put_parameters

CallerConnection = psycopg.AsyncConnection[Any]

DO_AGAIN = "nothing is queued: roll the transaction back, and do all of it again"


def check_connection(connection: Any) -> None:
    """Nothing, when it is None or a connection that a job can be put on.

    Raises:
        InvalidArgument: it is neither.
    """
    if connection is None:
        return
    if not isinstance(connection, psycopg.AsyncConnection):
        raise InvalidArgument(f"connection is of type {type(connection).__name__}: give a psycopg.AsyncConnection")
    if connection.closed:
        raise InvalidArgument("the connection is closed: nothing was queued, give one that is open")
    status = connection.info.transaction_status
    if status is TransactionStatus.INERROR:
        raise InvalidArgument(f"the connection's transaction has failed; {DO_AGAIN}")
    if status is TransactionStatus.ACTIVE and connection.pgconn.pipeline_status == PipelineStatus.OFF:
        raise InvalidArgument("the connection is in the middle of a statement, nothing was queued: end its COPY or stream first")


async def put(connection: CallerConnection, database: Database, job: TreeJob, *, key: str, made_at: datetime) -> tuple[int, int]:
    """Queues a compaction of the tree, unless one waits already; gives the number of the job that waits, and the transaction's.

    Args:
        connection: the caller's.
        database: where the tree is.
        job: what to do.
        key: the session's.
        made_at: when the session was made.

    Raises:
        InvalidArgument: the connection does not lead to that session.
        DatabaseError: see ``errors``; the transaction cannot go on.
    """
    statement = database.queries.put_job
    parameters = put_parameters(database, job) | {"key": key, "made_at": made_at}
    seconds = database.settings.timeout_seconds

    async def run() -> list[Row]:
        cursor = psycopg.AsyncRawCursor(connection, row_factory=psycopg.rows.dict_row)
        await cursor.execute(statement.text, [parameters[name] for name in statement.names])
        return await cursor.fetchall()

    try:
        async with until(asyncio.get_running_loop().time() + seconds):
            row = await first_put(run)
            return int(row["id"]), int(row["xact"])
    except psycopg.Error as fault:
        raise faults.error_of(fault, after=DO_AGAIN) from fault
    except UnicodeError as fault:
        raise InvalidArgument(f"the connection's client_encoding cannot hold the session's names: use UTF8 ({fault})") from fault
    except TimeoutError as fault:
        raise DatabaseTimeout(
            f"no answer within {seconds:g} s (PGMEM_TIMEOUT_SECONDS), is a transaction elsewhere open that put a job of the same "
            f"tree? {DO_AGAIN}",
            retryable=True,
        ) from fault
