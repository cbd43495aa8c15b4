"""How procrastinate's worker reaches the queue; apart, since only a worker needs that library."""

from __future__ import annotations

import procrastinate
import psycopg
from psycopg import sql

from pgmem.store import queue_schema
from pgmem.store.database import Database

MOST_CONNECTIONS = 4
"""For what a worker asks of the queue: the next job, what is to be stopped, its beats, its sweeps; one more LISTENs."""

LOST = (procrastinate.exceptions.ConnectorException, psycopg.Error, OSError)
"""What comes up when the database is away."""


def connector(database: Database) -> procrastinate.PsycopgConnector:
    """What procrastinate's worker talks to the queue with: connections of its own, which look into the queue's schema.

    They are sessions: LISTEN and the schema are set on them, so no pooler of transactions may be between.
    """
    name = queue_schema.name_of(database.settings.schema)

    async def look_into_queue(connection: psycopg.AsyncConnection[object]) -> None:
        # each statement its own transaction: a worker that falls asleep between two would hold rows that others wait for
        await connection.set_autocommit(True)
        # not as an option of the connection, which a pooler refuses
        await connection.execute(sql.SQL("set search_path to {}, pg_catalog").format(sql.Identifier(name)))

    return procrastinate.PsycopgConnector(
        conninfo=database.place,
        configure=look_into_queue,
        kwargs={"application_name": "pgmem worker"},
        min_size=1,
        max_size=MOST_CONNECTIONS,
        timeout=database.settings.timeout_seconds,
    )
