"""What Postgres and the driver say, turned into pgmem's errors: the only place that knows SQLSTATEs and constraint names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import sqlalchemy.exc
from psycopg import conninfo

from pgmem.errors import (
    DatabaseError,
    DatabaseFull,
    DatabaseTimeout,
    DatabaseUnavailable,
    InvalidArgument,
    InvalidSettings,
    SchemaMismatch,
    UnsafeDatabase,
)

IDEMPOTENCY_KEY = "turns_idempotency_key_unique"
STAGE_KEY = "stages_pkey"
ONE_WAITS = "procrastinate_jobs_queueing_lock_idx_v1"

ROLLED_BACK = ("40001", "40P01")
"""Serialization failure and deadlock: nothing was written, the statement may run again."""

_FULL = ("53",)
_TIMEOUTS = ("57014", "55P03", "25P03", "25P04", "57P05")
_GONE = ("08", "57P01", "57P02", "57P03")
_MISSING = ("3F000", "42P01", "42703", "42883")
_REFUSED = ("42501",)
_MIXED_UP = ("26000", "42P05")

_PASSWORD = re.compile(
    r"(?P<url>://[^\s:/@]*:)\S*@"
    r"|(?P<named>password\s*=\s*)(?:'(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])+)",
    re.IGNORECASE | re.DOTALL,
)

_UNREADABLE = (
    "the connection string cannot be read and is not repeated here, since it may hold a password: write it as "
    "postgresql://user:password@host:5432/database, with special characters percent-encoded"
)

OUTCOME_UNKNOWN = (
    "a write may or may not be stored, repeat add_turn with its idempotency key, and look at context() before anything else again"
)


def connection_string(url: object, **defaults: str | int) -> str:
    """``url`` with the parameters that it does not set itself.

    Raises:
        InvalidArgument: it is no text.
        InvalidSettings: it cannot be read; neither the error nor its context repeats it.
    """
    if not isinstance(url, str):
        raise InvalidArgument(f"url is of type {type(url).__name__}: give a libpq URL")
    if not url.strip():
        raise InvalidSettings("the URL is empty: give postgresql://user@host/database, or leave it out")
    given: dict[str, Any] | None = None
    with suppress(psycopg.Error, ValueError):
        given = conninfo.conninfo_to_dict(url)
    if given is None:
        raise InvalidSettings(_UNREADABLE)
    return conninfo.make_conninfo(**defaults | given | {"client_encoding": "UTF8"})


def check_encoding(connection: psycopg.BaseConnection[Any]) -> None:
    """Nothing, when the database can hold any text.

    Raises:
        UnsafeDatabase: it is not of the encoding UTF8; the driver would give bytes for texts, or refuse some.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise UnsafeDatabase(f"the database's encoding is {encoding}: make one with `create database ... encoding 'UTF8'`")


@contextmanager
def connecting() -> Iterator[None]:
    """Raises what comes up while a connection is made, and before anything is sent, as an error of ours."""
    try:
        yield
    except psycopg.Error as fault:
        if fault.sqlstate in _MIXED_UP:
            raise error_of(fault) from fault
        raise _unreachable(fault, fault.sqlstate) from fault
    except TimeoutError:
        raise
    except (OSError, ValueError, OverflowError) as fault:
        raise _unreachable(fault, None) from fault


@contextmanager
def translated(*, if_refused: str | None = None) -> Iterator[None]:
    """Raises what the driver raises inside as an error of ours, once, with its cause.

    Args:
        if_refused: what to do when the role may not, in place of the usual advice.
    """
    try:
        yield
    except psycopg.Error as fault:
        if isinstance(fault, psycopg.ProgrammingError) and fault.sqlstate is None:
            raise InvalidSettings(_UNREADABLE) from None
        raise error_of(fault, if_refused=if_refused) from fault
    except UnicodeError:
        raise InvalidSettings(_UNREADABLE) from None
    except sqlalchemy.exc.DBAPIError as fault:
        if isinstance(fault.orig, psycopg.Error):
            raise error_of(fault.orig, if_refused=if_refused) from fault
        raise


def error_of(
    fault: psycopg.Error, *, if_refused: str | None = None, after: str | None = None
) -> DatabaseError | SchemaMismatch | UnsafeDatabase:
    """The error of ours that says what ``fault`` says.

    Args:
        fault: what the driver raised.
        if_refused: what to do when the role may not, in place of the usual advice.
        after: what to do about a transaction of the caller's, in place of running one statement again.
    """
    state = fault.sqlstate or ""
    again = after or "try again"
    said = words_of(fault)
    if state in ROLLED_BACK:
        return DatabaseError(f"Postgres gave up a conflict, nothing was written: {said}; {again}", sqlstate=state, retryable=True)
    if state.startswith(_FULL):
        return DatabaseFull(
            f"the server is out of room: {said}; nothing was written, try again when it has some",
            sqlstate=state,
            retryable=True,
        )
    if state.startswith(_TIMEOUTS):
        return DatabaseTimeout(
            f"the server ended the statement: {said}; nothing was written, {again}", sqlstate=state, retryable=True
        )
    if state.startswith(_MISSING):
        return SchemaMismatch(f"the schema is not what this release expects: {said}; run `pgmem db check`")
    if state.startswith(_REFUSED):
        advice = if_refused or "use one that is granted pgmem_app (`grant pgmem_app to ...`); pgmem_reader reads the views by SQL"
        return UnsafeDatabase(f"the role may not do this: {said}; {advice}")
    if state in _MIXED_UP:
        return UnsafeDatabase(f"a pooler mixes up prepared statements: {said}; set PGMEM_PREPARED_STATEMENTS=0")
    if is_lost(fault):
        return DatabaseUnavailable(
            f"the connection failed: {said}; {after or OUTCOME_UNKNOWN}",
            sqlstate=state or None,
            retryable=True,
        )
    return DatabaseError(f"Postgres refused: {said}" + (f"; {after}" if after else ""), sqlstate=state or None)


def violates(fault: DatabaseError, constraint: str) -> bool:
    """Whether ``fault`` is the violation of that constraint."""
    return isinstance(fault.__cause__, psycopg.Error) and fault.__cause__.diag.constraint_name == constraint


def is_unknown_transaction(fault: DatabaseError) -> bool:
    """Whether a transaction was asked for that the server does not know."""
    return fault.sqlstate == "22023"


def without_password(text: str) -> str:
    """``text`` with passwords of URLs and key-value connection strings masked.

    Example:
        >>> without_password("postgresql://me:secret@host/db")
        'postgresql://me:***@host/db'
    """
    return _PASSWORD.sub(lambda found: f"{found['url']}***@" if found["url"] else f"{found['named']}***", text)


def is_lost(fault: psycopg.Error) -> bool:
    """Whether the connection broke, so that nobody knows how far the statement came."""
    state = fault.sqlstate or ""
    return state.startswith(_GONE) or (not state and isinstance(fault, psycopg.OperationalError | psycopg.InterfaceError))


def _unreachable(fault: Exception, sqlstate: str | None) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"no connection can be made: {words_of(fault)}; nothing was sent: look at the URL and at the server, then try again",
        sqlstate=sqlstate,
        retryable=True,
    )


def words_of(fault: BaseException) -> str:
    """The fault's own words, on one line, without passwords."""
    first = fault.diag.message_primary if isinstance(fault, psycopg.Error) else None
    return without_password(" ".join((first or str(fault)).split()) or type(fault).__name__)
