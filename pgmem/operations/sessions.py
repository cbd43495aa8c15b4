"""Sessions: got or made by key, and listed in pages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgmem.domain.asks import Usage
from pgmem.errors import DatabaseError, InvalidArgument, SessionNotFound
from pgmem.store.database import Database, Row

PAGE = 500

RACES = 5
"""How often get-or-make looks again after another caller made the session in between."""

LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session as it is stored.

    Attributes:
        session_id: its number.
        key: the caller's name for it.
        goal: what it is for, or None.
        metadata: the caller's own JSON, or None.
        created_at: when it was made.
        branch: the branch of its main tree; None where that was not read.
    """

    session_id: int
    key: str
    goal: str | None
    metadata: Any
    created_at: datetime
    branch: int | None


async def get_or_make(database: Database, *, tenant: str, key: str, goal: str | None, metadata: Any, create: bool) -> SessionRow:
    """The session of that key; made with ``goal`` and ``metadata`` if it is not there.

    Raises:
        SessionNotFound: it is not there, and ``create`` is false.
    """
    with database.one_deadline():
        return await _got_or_made(database, tenant=tenant, key=key, goal=goal, metadata=metadata, create=create)


async def _got_or_made(database: Database, *, tenant: str, key: str, goal: str | None, metadata: Any, create: bool) -> SessionRow:
    name = {"tenant": tenant, "key": key}
    for _ in range(RACES):
        found = await database.run(database.queries.read_session, name, repeatable=True)
        if found:
            return _session_of(found[0])
        if not create:
            raise SessionNotFound(
                f"tenant {tenant!r:.100} has no session {key!r:.200}: make it with create=True, or see `pgmem sessions`"
            )
        stored = None if metadata is None else json.dumps(metadata, ensure_ascii=False, allow_nan=False)
        made = await database.run(database.queries.make_session, name | {"goal": goal, "metadata": stored}, repeatable=True)
        if made:
            return _session_of(made[0])
    raise DatabaseError(f"session {key!r:.200} is taken and cannot be read: look at the default isolation level", retryable=True)


async def by_number(database: Database, session_id: int) -> SessionRow:
    """The session of that number, of whatever tenant.

    Raises:
        InvalidArgument: there is none.
    """
    found = await database.run(database.queries.read_session_by_id, {"session_id": session_id}, repeatable=True)
    if not found:
        raise InvalidArgument(f"there is no session of the number {session_id}")
    return _session_of(found[0] | {"branch": None})


async def listed(database: Database, *, tenant: str, prefix: str) -> AsyncIterator[SessionRow]:
    """A tenant's sessions whose key begins with ``prefix``, in the order of their keys; each page is a statement of its own."""
    after = ""
    while True:
        parameters = {
            "tenant": tenant,
            "prefix": prefix,
            "end": _past(prefix),
            "after": after,
            "most": PAGE,
        }
        page = await database.run(database.queries.list_sessions, parameters, repeatable=True)
        for row in page:
            yield _session_of(row | {"branch": None})
        if len(page) < PAGE:
            return
        after = page[-1]["key"]


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one model's provider counted.

    Attributes:
        model: its name, or None when the strategy named none.
        calls: nodes and verdicts that it made.
        usage: tokens read and written.
    """

    model: str | None
    calls: int
    usage: Usage


async def usage(database: Database, session_id: int) -> list[ModelUsage]:
    """What was counted for a session's nodes and verdicts, in all its namespaces, in the order of the models' names."""
    found = await database.run(database.queries.sum_usage, {"session_id": session_id}, repeatable=True)
    return [
        ModelUsage(row["model"], row["calls"], Usage(input_tokens=row["input_tokens"], output_tokens=row["output_tokens"]))
        for row in found
    ]


async def namespaces(database: Database, session_id: int) -> list[str]:
    """The names of a session's trees, in order."""
    found = await database.run(database.queries.list_namespaces, {"session_id": session_id}, repeatable=True)
    return [row["namespace"] for row in found]


def _session_of(row: Row) -> SessionRow:
    return SessionRow(**row | {"metadata": None if row["metadata"] is None else json.loads(row["metadata"])})


def _past(prefix: str) -> str | None:
    """The first text after all that begin with ``prefix``, by code points; None when there is none."""
    stem = prefix.rstrip(LAST_CHARACTER)
    if not stem:
        return None
    after = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if after == 0xD800 else after)
