"""The one way to run a statement: a deadline, a bounded retry of what was rolled back, errors of ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import dict_row
from psycopg.types.numeric import Int8Dumper

from pgmem.errors import DatabaseTimeout, DatabaseUnavailable, InvalidArgument, SchemaMismatch, UnsafeDatabase
from pgmem.settings import Settings
from pgmem.store import faults, queries, queue_schema
from pgmem.store.notices import Notices
from pgmem.store.pool import Connection, Pool
from pgmem.store.queries import Statement

log = logging.getLogger("pgmem")

Row = dict[str, Any]

ATTEMPTS = 5
"""How often a statement runs that Postgres rolled back by itself (deadlock, serialization failure)."""

CONNECT_SECONDS = 10

GRACE_SECONDS = 1.0
"""How long past a deadline the server is asked to give up before its connection is closed."""

_shared_deadline: ContextVar[float | None] = ContextVar("pgmem_shared_deadline", default=None)


class Database:
    """One pool on one schema; every statement is one round trip on a connection that goes back at once.

    Attributes:
        queries: the statements for this schema.
        settings: what it was opened with.
        place: the connection string; it may hold a password.
        notices: of jobs that end.
        queue: the name of the queue that its jobs are in.
        round_trips: statements run so far.
    """

    def __init__(self, pool: Pool, settings: Settings, place: str) -> None:
        self.queries = queries.load(settings.schema)
        self.settings = settings
        self.place = place
        self.notices = Notices(place, queue_schema.channel_of(settings.schema))
        self.queue = queue_schema.queue_of(settings.schema)
        self.round_trips = 0
        self._pool = pool

    @contextmanager
    def one_deadline(self) -> Iterator[None]:
        """All statements that are run inside have one deadline together."""
        token = _shared_deadline.set(self._deadline())
        try:
            yield
        finally:
            _shared_deadline.reset(token)

    async def run(self, statement: Statement, parameters: Mapping[str, Any], *, repeatable: bool = False) -> list[Row]:
        """The rows of one statement, run in a transaction of its own.

        Args:
            statement: one of ``queries``.
            parameters: its named values.
            repeatable: whether running it twice does no harm, so that a lost connection is tried once more.

        Raises:
            DatabaseError: see ``errors``; after a deadline or a lost connection a write may or may not be stored.
        """
        deadline = self._deadline()
        attempt = 1
        lost: psycopg.Error | None = None
        while True:
            try:
                return await self._once(statement, parameters, deadline)
            except psycopg.Error as fault:
                if repeatable and lost is None and faults.is_lost(fault):
                    lost = fault
                elif attempt >= ATTEMPTS or fault.sqlstate not in faults.ROLLED_BACK:
                    raise faults.error_of(fault) from fault
                log.info("running a statement once more after %s", fault.sqlstate or "a lost connection")
            except (DatabaseUnavailable, DatabaseTimeout) as fault:
                if lost is None:
                    raise
                # nothing was sent this time, but the first time it was
                raise faults.error_of(lost) from fault
            except UnicodeError as fault:
                raise InvalidArgument(f"a text cannot be sent to Postgres: {fault}; nothing was written") from fault
            await asyncio.sleep(0.01 * attempt)
            attempt += 1

    async def _once(self, statement: Statement, parameters: Mapping[str, Any], deadline: float) -> list[Row]:
        async with self._pool.connection(deadline) as connection:
            self.round_trips += 1
            try:
                async with until(deadline):
                    values = [parameters[name] for name in statement.names]
                    cursor = await connection.execute(statement.text, values, prepare=self.settings.prepared_statements)
                    return await cursor.fetchall()
            except TimeoutError as fault:
                raise DatabaseTimeout(
                    f"no answer within {self.settings.timeout_seconds:g} s (PGMEM_TIMEOUT_SECONDS): {faults.OUTCOME_UNKNOWN}",
                    retryable=True,
                ) from fault

    def _deadline(self) -> float:
        shared = _shared_deadline.get()
        return asyncio.get_running_loop().time() + self.settings.timeout_seconds if shared is None else shared


@asynccontextmanager
async def until(deadline: float) -> AsyncIterator[None]:
    """Ends the statement inside at the deadline, by the event loop's clock.

    Raises:
        TimeoutError: it was not over.
    """
    # the first deadline makes psycopg cancel the statement, the second ends its wait for a server that is stuck
    async with asyncio.timeout_at(deadline + GRACE_SECONDS), asyncio.timeout_at(deadline):
        yield


@asynccontextmanager
async def connect(url: str, settings: Settings) -> AsyncIterator[Database]:
    """Opens a pool on ``url`` and closes it at the end.

    Raises:
        InvalidSettings: the URL cannot be read.
        DatabaseUnavailable: the server cannot be reached.
    """
    place = faults.connection_string(url, connect_timeout=CONNECT_SECONDS, application_name="pgmem")
    pool = Pool(partial(_new_connection, place, settings), settings.pool_size)
    try:
        async with pool.connection(asyncio.get_running_loop().time() + settings.timeout_seconds):
            pass
        yield Database(pool, settings, place)
    finally:
        pool.close()


async def schema_version(database: Database) -> str | None:
    """The version of the schema; None when it is not there.

    Raises:
        UnsafeDatabase: it is there, and the role may not see it.
    """
    try:
        rows = await database.run(database.queries.read_version, {}, repeatable=True)
    except SchemaMismatch:
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
    if row["standby"]:
        raise UnsafeDatabase("the server is a read-only standby: connect to the primary")
    if row["installed"] and not row["may_write"]:
        raise UnsafeDatabase(
            f"the role {row['role']} may not write to the tables: use a login that is granted pgmem_app; auditors read by SQL"
        )
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


async def _new_connection(place: str, settings: Settings) -> Connection:
    """A connection that is ready for the statements.

    Raises:
        DatabaseUnavailable: there is none to be had.
        UnsafeDatabase: the database's encoding is not UTF8, or a pooler between would mix up prepared statements.
    """
    with faults.connecting():
        connection = await psycopg.AsyncConnection.connect(
            place, autocommit=True, row_factory=dict_row, cursor_factory=psycopg.AsyncRawCursor, context=_ADAPTERS
        )
        try:
            faults.check_encoding(connection)
            if settings.prepared_statements:
                await _prepare_session(connection, allow_unsafe=settings.allow_unsafe)
        except BaseException:
            await connection.close()
            raise
    return connection


async def _prepare_session(connection: Connection, *, allow_unsafe: bool) -> None:
    # A generic plan is a fraction of planning anew (see docs/decisions); read committed is what the statements are written for.
    cursor = await connection.execute(
        "select set_config('plan_cache_mode', 'force_generic_plan', false),"
        " set_config('default_transaction_isolation', 'read committed', false),"
        " pg_backend_pid() as pid, exists (select from pg_prepared_statements where name like '\\_pg3\\_%') as as_named",
        prepare=True,
    )
    row = await cursor.fetchone()
    # A pooler gives a pid of its own. One that keeps track of prepared statements gives names of its own too; through one
    # that does not, another client's statement of the same name would run in the place of ours.
    pooled = row is not None and row["pid"] != connection.info.backend_pid
    if row is not None and pooled and row["as_named"] and not allow_unsafe:
        raise UnsafeDatabase(
            "a pooler is between here and Postgres and does not keep prepared statements apart: set PGMEM_PREPARED_STATEMENTS=0, "
            "or use PgBouncer 1.21 or newer with max_prepared_statements; where it pools whole sessions, PGMEM_ALLOW_UNSAFE=1"
        )


def _adapters() -> AdaptersMap:
    """Numbers go out as bigint, whatever their size: a statement of other types would be prepared and planned anew."""
    adapters = AdaptersMap(psycopg.adapters)
    adapters.register_dumper(int, Int8Dumper)
    return adapters


_ADAPTERS = _adapters()
