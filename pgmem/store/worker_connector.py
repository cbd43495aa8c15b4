"""How procrastinate's worker reaches the queue; apart, since only a worker needs that library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, LiteralString

import procrastinate
import psycopg
from procrastinate.exceptions import ConnectorException
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.types.datetime import TimestamptzLoader

from pgmem.store import queue_schema
from pgmem.store.database import Database, until

MOST_CONNECTIONS = 4
"""For what procrastinate asks of the queue: the next job, what is to be stopped, which workers there are; one more LISTENs."""

LOST = (ConnectorException, psycopg.Error, OSError)
"""What comes up when the database is away."""


class NoAnswer(ConnectorException):
    """The queue did not answer in time."""


class Connector(procrastinate.PsycopgConnector):
    """What procrastinate's worker talks to the queue with: connections of its own, which look into the queue's schema.

    They are sessions: LISTEN and the schema are set on them, so no pooler of transactions may be between. A statement that gets no
    answer ends with its deadline, and its connection with it: nothing else would tell the worker that it fell silent.
    """

    def __init__(self, database: Database) -> None:
        name = queue_schema.name_of(database.settings.schema)

        async def look_into_queue(connection: psycopg.AsyncConnection[object]) -> None:
            # each statement its own transaction: a worker that falls asleep between two would hold rows that others wait for
            await connection.set_autocommit(True)
            # not as an option of the connection, which a pooler refuses
            await connection.execute(sql.SQL("set search_path to {}, pg_catalog").format(sql.Identifier(name)))
            connection.adapters.register_loader("timestamptz", _AnyTime)

        self._seconds = database.settings.timeout_seconds
        super().__init__(
            conninfo=database.place,
            configure=look_into_queue,
            kwargs={"application_name": "pgmem worker"},
            min_size=1,
            max_size=MOST_CONNECTIONS,
            timeout=self._seconds,
        )

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        """Runs a statement, within the deadline."""
        async with self._deadline():
            await super().execute_query_async(query, **arguments)

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        """The row of a statement, within the deadline."""
        async with self._deadline():
            row: dict[str, Any] = await super().execute_query_one_async(query, **arguments)
            return row

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        """The rows of a statement, within the deadline."""
        async with self._deadline():
            rows: list[dict[str, Any]] = await super().execute_query_all_async(query, **arguments)
            return rows

    async def renew(self) -> None:
        """Gives up the connections that there are: where one fell silent the others may have, too."""
        await self.pool.drain()

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        try:
            async with until(asyncio.get_running_loop().time() + self._seconds):
                yield
        except TimeoutError as fault:
            raise NoAnswer(f"the queue gave no answer within {self._seconds:g} s (PGMEM_TIMEOUT_SECONDS)") from fault


class _AnyTime(TimestamptzLoader):
    """Reads every time that Postgres holds; one that Python cannot hold is the last that it can."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return datetime.max.replace(tzinfo=UTC)
