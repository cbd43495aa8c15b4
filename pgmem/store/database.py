"""The pool and the one way to run a statement: a deadline, a bounded retry of what was rolled back, errors of ours."""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import dict_row
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import AsyncConnectionPool

from pgmem.errors import DatabaseTimeout, SchemaMismatch, UnsafeDatabase
from pgmem.settings import Settings
from pgmem.store import faults, queries

log = logging.getLogger("pgmem")

Row = dict[str, Any]
Connection = psycopg.AsyncConnection[Row]

ATTEMPTS = 5
"""How often a statement runs that Postgres rolled back by itself (deadlock, serialization failure)."""

CONNECT_SECONDS = 10


class Database:
    """One pool on one schema; every statement is one round trip on a connection that goes back at once.

    Attributes:
        queries: the statements for this schema.
        settings: what it was opened with.
        round_trips: statements run so far.
    """

    def __init__(self, pool: AsyncConnectionPool[Connection], settings: Settings) -> None:
        self.queries = queries.load(settings.schema)
        self.settings = settings
        self.round_trips = 0
        self._pool = pool

    async def run(self, statement: LiteralString, parameters: Mapping[str, Any], *, repeatable: bool = False) -> list[Row]:
        """The rows of one statement, run in a transaction of its own.

        Args:
            statement: one of ``queries``.
            parameters: its named values.
            repeatable: whether running it twice does no harm, so that a lost connection is tried once more.

        Raises:
            DatabaseError: see ``errors``; after a deadline or a lost connection a write may or may not be stored.
        """
        try:
            with faults.translated():
                async with asyncio.timeout(self.settings.timeout_seconds):
                    return await self._attempt(statement, parameters, repeatable)
        except TimeoutError as fault:
            raise DatabaseTimeout(
                f"no answer within {self.settings.timeout_seconds:g} s (PGMEM_TIMEOUT_SECONDS): a write may or may not be stored, "
                "repeat it with its idempotency key",
                retryable=True,
            ) from fault

    async def _attempt(self, statement: LiteralString, parameters: Mapping[str, Any], repeatable: bool) -> list[Row]:
        attempt = 1
        while True:
            try:
                return await self._once(statement, parameters)
            except psycopg.Error as fault:
                rolled_back = fault.sqlstate in faults.ROLLED_BACK
                lost = repeatable and attempt == 1 and faults.is_lost(fault)
                if attempt >= ATTEMPTS or not (rolled_back or lost):
                    raise
                log.info("running a statement once more after %s", fault.sqlstate or "a lost connection")
            await asyncio.sleep(0.01 * attempt)
            attempt += 1

    async def _once(self, statement: LiteralString, parameters: Mapping[str, Any]) -> list[Row]:
        async with self._connection() as connection:
            self.round_trips += 1
            cursor = await connection.execute(statement, parameters, prepare=self.settings.prepared_statements)
            return await cursor.fetchall()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A connection from the pool that the server has not closed while it was idle."""
        while True:
            async with self._pool.connection() as connection:
                if _is_quiet(connection):
                    yield connection
                    return
                await connection.close()


@asynccontextmanager
async def connect(url: str, settings: Settings) -> AsyncIterator[Database]:
    """Opens a pool on ``url`` and closes it at the end.

    Raises:
        DatabaseUnavailable: the server cannot be reached.
    """
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
        url,
        kwargs={
            "autocommit": True,
            "row_factory": dict_row,
            "context": _adapters(),
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "pgmem",
        },
        min_size=1,
        max_size=settings.pool_size,
        timeout=settings.timeout_seconds,
        configure=_prepare_session if settings.prepared_statements else None,
        open=False,
        name="pgmem",
    )
    await _reach(url)
    try:
        with faults.translated():
            await pool.open(wait=True, timeout=CONNECT_SECONDS)
        yield Database(pool, settings)
    finally:
        await pool.close()


async def schema_version(database: Database) -> str | None:
    """The version of the schema; None when it is not there or the role cannot see it."""
    try:
        rows = await database.run(database.queries.read_version, {}, repeatable=True)
    except (SchemaMismatch, UnsafeDatabase):
        return None
    return str(rows[0]["version_num"]) if rows else None


async def check_server(database: Database) -> Row:
    """What the server and the role are, once they are found fit for use.

    Raises:
        UnsafeDatabase: they would not keep what is promised; the message says what and how to go on.
    """
    (row,) = await database.run(database.queries.check_server, {"schema": database.settings.schema}, repeatable=True)
    if row["version"] < 150000:
        raise UnsafeDatabase(f"the server is PostgreSQL {row['version'] // 10000}: pgmem needs 15 or newer")
    if row["encoding"] != "UTF8":
        raise UnsafeDatabase(f"the database's encoding is {row['encoding']}: make one with `create database ... encoding 'UTF8'`")
    if row["standby"]:
        raise UnsafeDatabase("the server is a read-only standby: connect to the primary")
    doubts = _doubts(row)
    if doubts and not database.settings.allow_unsafe:
        raise UnsafeDatabase("; ".join(doubts) + ": mend it, or set PGMEM_ALLOW_UNSAFE=1 to go on all the same")
    for doubt in doubts:
        log.warning("going on all the same (PGMEM_ALLOW_UNSAFE): %s", doubt)
    return row


def _doubts(row: Row) -> list[str]:
    doubts = []
    if row["fsync"] == "off":
        doubts.append("fsync is off, a crash can lose or destroy what was stored")
    if row["synchronous_commit"] == "off":
        doubts.append("synchronous_commit is off, a crash can lose turns that were acknowledged")
    if row["isolation"] != "read committed":
        doubts.append(
            f"default_transaction_isolation is {row['isolation']}, appends would fail under load "
            f"(`alter role {row['role']} set default_transaction_isolation = 'read committed'`)"
        )
    if row["superuser"] or row["bypass_rls"] or (row["owner"] and row["installed"]):
        doubts.append(f"the role {row['role']} is a superuser or owns the tables, use one that is granted pgmem_app")
    return doubts


async def _prepare_session(connection: Connection) -> None:
    # A generic plan is a fraction of planning anew (see docs/decisions); read committed is what the statements are written for.
    await connection.execute(
        "select set_config('plan_cache_mode', 'force_generic_plan', false),"
        " set_config('default_transaction_isolation', 'read committed', false)"
    )


def _adapters() -> AdaptersMap:
    """Numbers go out as bigint, whatever their size: a statement of other types would be prepared and planned anew."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8Dumper)
    return adapters


async def _reach(url: str) -> None:
    """One plain connection first: the pool would hide why none can be made."""
    with faults.translated():
        connection = await psycopg.AsyncConnection.connect(url, connect_timeout=CONNECT_SECONDS)
        await connection.close()


def _is_quiet(connection: Connection) -> bool:
    """Whether nothing waits on an idle connection's socket: what a server says unasked is mostly a farewell."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poller.poll(0)
