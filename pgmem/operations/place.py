"""Which tree an operation works on, and the small statements that every operation needs of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgmem.domain.events import Event
from pgmem.domain.model import EMPTY_TREE, Snapshot
from pgmem.domain.tokens import TokenCounter
from pgmem.errors import InvalidArgument, ModelError, NodeNotFound, SummaryRefused
from pgmem.store import rows
from pgmem.store.database import Database, Row
from pgmem.store.queries import Statement

MOST_NODES = 64
"""How far a read walks back on the active path."""

MOST_TURNS = 2**31 - 1

MOST_HINTS = 3
"""How many notes of attempts that were left behind a context shows."""

COMMIT_ATTEMPTS = 5
"""How often an operation plans again after the tree moved on under it."""


MOST_NOTE = 4_000
"""Characters of a note at most: a hint is shown in every context."""

MOST_SAID = 1_000
"""Characters of a foreign error's words that ours repeats."""


@dataclass(frozen=True, slots=True)
class Place:
    """One tree: a namespace of a session.

    Attributes:
        database: where it is kept.
        session_id: the session's number.
        session: the session's key, for messages and events.
        made_at: when the session was made.
        namespace: the namespace.
        count: tokens of a text.
        emit: takes the events of what happens to it.
    """

    database: Database
    session_id: int
    session: str
    made_at: datetime
    namespace: str
    count: TokenCounter
    emit: Callable[[Event], None]

    @property
    def key(self) -> dict[str, Any]:
        """The parameters that name the tree in every statement."""
        return {"session_id": self.session_id, "namespace": self.namespace}

    def __str__(self) -> str:
        return f"session {self.session!r:.200}, namespace {self.namespace!r}"


async def read_snapshot(place: Place, *, as_of: int | None = None) -> Snapshot:
    """What the tree shows, now or at a fact, in one round trip; an empty one when there is no tree yet.

    Raises:
        InvalidArgument: ``as_of`` is past the newest fact.
    """
    parameters = place.key | {"as_of": as_of, "most_nodes": MOST_NODES, "most_turns": MOST_TURNS, "most_hints": MOST_HINTS}
    found = await place.database.run(place.database.queries.read_snapshot, parameters, repeatable=True)
    if found:
        return rows.snapshot_of(found)
    if as_of:
        raise InvalidArgument(f"{place} has no fact {as_of}: as_of is a position from 0 to the newest fact's")
    return Snapshot(tree=EMPTY_TREE, nodes=(), more_nodes=False, kept=(), active=())


async def read_tree(place: Place) -> Row | None:
    """The tree row as it is now, with its count of pinned turns; None when there is no tree yet."""
    found = await place.database.run(place.database.queries.read_tree, place.key, repeatable=True)
    return found[0] if found else None


async def make_tree(place: Place) -> None:
    """Makes the tree row unless it is there."""
    await place.database.run(place.database.queries.make_tree, place.key, repeatable=True)


async def read_node(place: Place, node: int) -> Row:
    """A node with its status and the tree's branch and version.

    Raises:
        NodeNotFound: the tree has no such node.
    """
    found = await place.database.run(place.database.queries.read_node, place.key | {"node": node}, repeatable=True)
    if not found:
        raise NodeNotFound(f"{place} has no node {node}: `path()` and `nodes()` list what there is")
    return found[0]


async def find_node(place: Place, statement: Statement, **parameters: Any) -> int | None:
    """The node that ``statement`` finds, if it finds one."""
    found = await place.database.run(statement, place.key | parameters, repeatable=True)
    return found[0]["no"] if found else None


def advice(fault: Exception, again: str) -> str:
    """What to do after a model or a function of the user's gave nothing."""
    if isinstance(fault, SummaryRefused):
        return "and asking again changes nothing: another model may write it, and tool_clear needs none"
    if isinstance(fault, ModelError) and not fault.retryable:
        return "and asking again changes nothing: look at what the server says, at the model's name, the key and the URL"
    return again


def why(fault: Exception, deadline: asyncio.Timeout, deadline_seconds: float) -> str:
    """What came of asking a model or a function of the user's, in words."""
    if isinstance(fault, TimeoutError) and deadline.expired():
        return f"no answer within {deadline_seconds:g} s, PGMEM_MODEL_TIMEOUT_SECONDS"
    try:
        said = str(fault)
    except Exception:  # a foreign __str__ may raise anything
        said = ""
    said = said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}…"
    return f"{type(fault).__name__}: {said}" if said else type(fault).__name__
