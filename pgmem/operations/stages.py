"""Stages: what a flow over a session was left in, read when it starts and added when an exchange ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgmem.errors import DatabaseError, StaleFlow
from pgmem.store import faults
from pgmem.store.database import Database


@dataclass(frozen=True, slots=True)
class Stage:
    """What a flow was left in.

    Attributes:
        no: the row's position in its flow; 0 before there is one.
        step: the step's name.
        state: the state's JSON text.
    """

    no: int
    step: str
    state: str


@dataclass(frozen=True, slots=True)
class FlowPlace:
    """One flow over a session.

    Attributes:
        database: where it is kept.
        session_id: the session's number.
        session: the session's key, for messages.
        flow: the flow's name.
    """

    database: Database
    session_id: int
    session: str
    flow: str

    def __str__(self) -> str:
        return f"flow {self.flow!r} of session {self.session!r:.200}"


async def read(place: FlowPlace) -> Stage | None:
    """What the flow was left in; None when it never started."""
    parameters = {"session_id": place.session_id, "flow": place.flow}
    found = await place.database.run(place.database.queries.read_stage, parameters, repeatable=True)
    return Stage(**found[0]) if found else None


async def save(
    place: FlowPlace, left: Stage, *, entered: Sequence[str], changed: bool, thresholds: Mapping[str, int]
) -> tuple[str, ...]:
    """Adds what the flow is left in, in one round trip, unless a namespace is to be compacted first.

    Args:
        place: the flow.
        left: the row to add; its ``no`` follows the one that was read.
        entered: the steps that were entered since that one.
        changed: whether there is anything to add.
        thresholds: the active turns at which each namespace is compacted.

    Returns:
        The namespaces that reached theirs: then nothing was added. Nothing at all is sent when there is nothing to ask.

    Raises:
        StaleFlow: somebody else saved the flow since it was read; nothing was written.
    """
    if not changed and not thresholds:
        return ()
    parameters = {
        "session_id": place.session_id,
        "flow": place.flow,
        "no": left.no,
        "step": left.step,
        "entered": list(entered),
        "state": left.state,
        "changed": changed,
        "namespaces": list(thresholds),
        "thresholds": list(thresholds.values()),
    }
    try:
        found = await place.database.run(place.database.queries.save_stage, parameters)
    except DatabaseError as fault:
        if not faults.violates(fault, faults.STAGE_KEY):
            raise
        raise StaleFlow(
            f"{place} was saved by somebody else since it was started: its messages are stored, its step and state are not; "
            "start() a new one and go on from there"
        ) from fault
    return tuple(row["namespace"] for row in found)


def to_json(state: Any) -> str:
    """A checked state as the text that is stored and compared."""
    return json.dumps(state, ensure_ascii=False, allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """The state of a stored text, a new one each time."""
    return dict(json.loads(text))
