"""What Postgres and the driver say, turned into pgmem's errors: the only place that knows SQLSTATEs and constraint names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool
import sqlalchemy.exc

from pgmem.errors import (
    DatabaseError,
    DatabaseFull,
    DatabaseTimeout,
    DatabaseUnavailable,
    SchemaMismatch,
    UnsafeDatabase,
)

IDEMPOTENCY_KEY = "turns_idempotency_key_unique"

ROLLED_BACK = ("40001", "40P01")
"""Serialization failure and deadlock: nothing was written, the statement may run again."""

_FULL = ("53",)
_TIMEOUTS = ("57014", "55P03", "25P03", "25P04", "57P05")
_GONE = ("08", "57P01", "57P02", "57P03")
_MISSING = ("3F000", "42P01", "42703", "42883")
_REFUSED = ("42501",)

_PASSWORD = re.compile(r"(://[^\s:/@]*:)[^\s@]*@|(password\s*=\s*)('[^']*'|\S+)", re.IGNORECASE)


@contextmanager
def translated() -> Iterator[None]:
    """Raises what the driver raises inside as an error of ours, once, with its cause."""
    try:
        yield
    except psycopg_pool.PoolTimeout as fault:
        raise DatabaseTimeout(
            "no connection became free before the deadline: raise PGMEM_POOL_SIZE, or look for what holds them",
            retryable=True,
        ) from fault
    except psycopg_pool.PoolClosed as fault:
        raise DatabaseUnavailable("this Memory is closed: use it inside its `async with pgmem.open()`") from fault
    except psycopg.Error as fault:
        raise error_of(fault) from fault
    except sqlalchemy.exc.DBAPIError as fault:
        if isinstance(fault.orig, psycopg.Error):
            raise error_of(fault.orig) from fault
        raise


def error_of(fault: psycopg.Error) -> DatabaseError | SchemaMismatch | UnsafeDatabase:
    """The error of ours that says what ``fault`` says."""
    state = fault.sqlstate or ""
    said = without_password(str(fault).strip() or type(fault).__name__)
    if state in ROLLED_BACK:
        return DatabaseError(f"Postgres gave up a conflict, nothing was written: {said}; try again", sqlstate=state, retryable=True)
    if state.startswith(_FULL):
        return DatabaseFull(
            f"the server is out of room: {said}; nothing was written, try again when it has some",
            sqlstate=state,
            retryable=True,
        )
    if state.startswith(_TIMEOUTS):
        return DatabaseTimeout(
            f"the server ended the statement: {said}; nothing was written, try again", sqlstate=state, retryable=True
        )
    if state.startswith(_MISSING):
        return SchemaMismatch(f"the schema is not what this release expects: {said}; run `pgmem db check`")
    if state.startswith(_REFUSED):
        return UnsafeDatabase(f"the role may not do this: {said}; grant it pgmem_app, or run `pgmem db upgrade` as the owner")
    if is_lost(fault):
        return DatabaseUnavailable(
            f"the connection failed: {said}; a write may or may not be stored: repeat it with its idempotency key",
            sqlstate=state or None,
            retryable=True,
        )
    return DatabaseError(f"Postgres refused: {said}", sqlstate=state or None)


def violates(fault: DatabaseError, constraint: str) -> bool:
    """Whether ``fault`` is the violation of that constraint."""
    return isinstance(fault.__cause__, psycopg.Error) and fault.__cause__.diag.constraint_name == constraint


def without_password(text: str) -> str:
    """``text`` with passwords of URLs and key-value connection strings masked.

    Example:
        >>> without_password("postgresql://me:secret@host/db")
        'postgresql://me:***@host/db'
    """
    return _PASSWORD.sub(lambda found: f"{found[1]}***@" if found[1] else f"{found[2]}***", text)


def is_lost(fault: psycopg.Error) -> bool:
    """Whether the connection broke, so that nobody knows how far the statement came."""
    state = fault.sqlstate or ""
    return state.startswith(_GONE) or (not state and isinstance(fault, psycopg.OperationalError | psycopg.InterfaceError))
