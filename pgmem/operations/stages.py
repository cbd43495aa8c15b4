"""Stages: what a flow over a session was left in, read when it starts and added when an exchange ends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from pgmem.domain.model import Stage
from pgmem.errors import DatabaseError, StaleFlow
from pgmem.store import faults
from pgmem.store.database import Database

PAGE = 500


@dataclass(frozen=True, slots=True)
class Left:
    """What a flow was left in.

    Attributes:
        no: the row's position in its flow; 0 before there is one.
        step: the step's name.
        state: the state's JSON text.
        entered: the steps that were entered since the row before.
        age_seconds: how long ago the row was stored.
    """

    no: int
    step: str
    state: str
    entered: tuple[str, ...] = ()
    age_seconds: float = 0.0

    @property
    def is_claim(self) -> bool:
        """Whether somebody began the flow here and has not entered its first step yet."""
        return self.no == 1 and not self.entered


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


async def read(place: FlowPlace) -> Left | None:
    """What the flow was left in; None when it never started."""
    parameters = {"session_id": place.session_id, "flow": place.flow}
    found = await place.database.run(place.database.queries.read_stage, parameters, repeatable=True)
    return Left(**found[0] | {"entered": tuple(found[0]["entered"])}) if found else None


async def claim(place: FlowPlace, step: str) -> bool:
    """Begins a flow that nobody began: adds its first row, before the first step is entered; False when somebody was faster."""
    try:
        await _save(place, Left(1, step, "{}"), changed=True, thresholds={}, repeatable=False)
    except DatabaseError as fault:
        if faults.violates(fault, faults.STAGE_KEY):
            return False
        raise
    return True


async def save(place: FlowPlace, left: Left, *, changed: bool, thresholds: Mapping[str, int]) -> tuple[str, ...]:
    """Adds what the flow is left in, and says what is to be compacted, in one round trip.

    Args:
        place: the flow.
        left: the row to add; its ``no`` follows the one that was read.
        changed: whether there is anything to add.
        thresholds: the active turns at which each namespace is compacted.

    Returns:
        The namespaces that reached theirs. Nothing at all is sent when there is nothing to add and nothing to ask.

    Raises:
        StaleFlow: somebody else saved the flow since it was read; nothing was written.
    """
    if not changed and not thresholds:
        return ()
    try:
        return await _save(place, left, changed=changed, thresholds=thresholds, repeatable=True)
    except DatabaseError as fault:
        if not faults.violates(fault, faults.STAGE_KEY):
            raise
        stored = await read(place)
        if stored is not None and (stored.no, stored.step, stored.state, stored.entered) == _key(left):
            return ()  # the connection broke after the commit, and this was the second try
        raise StaleFlow(
            f"{place} was saved by somebody else since the exchange began: its messages are stored, its step and state are not; "
            "the next exchange goes on from there"
        ) from fault


async def _save(place: FlowPlace, left: Left, *, changed: bool, thresholds: Mapping[str, int], repeatable: bool) -> tuple[str, ...]:
    parameters = {
        "session_id": place.session_id,
        "flow": place.flow,
        "no": left.no,
        "step": left.step,
        "entered": list(left.entered),
        "state": left.state,
        "changed": changed,
        "namespaces": list(thresholds),
        "thresholds": list(thresholds.values()),
    }
    found = await place.database.run(place.database.queries.save_stage, parameters, repeatable=repeatable)
    return tuple(row["namespace"] for row in found)


def _key(left: Left) -> tuple[int, str, str, tuple[str, ...]]:
    return left.no, left.step, left.state, left.entered


async def listed(database: Database, session_id: int) -> AsyncIterator[Stage]:
    """All that the flows over a session were left in, by flow and in order; each page is a statement of its own."""
    after = ("", 0)
    while True:
        parameters = {"session_id": session_id, "after_flow": after[0], "after": after[1], "most": PAGE}
        page = await database.run(database.queries.list_stages, parameters, repeatable=True)
        for row in page:
            yield Stage(**row | {"entered": tuple(row["entered"]), "state": from_json(row["state"])})
        if len(page) < PAGE:
            return
        after = (page[-1]["flow"], page[-1]["no"])


def to_json(state: Any) -> str:
    """A checked state as the text that is stored and compared."""
    return json.dumps(state, ensure_ascii=False, allow_nan=False)


def from_json(text: str) -> dict[str, Any]:
    """The state of a stored text, a new one each time."""
    return dict(json.loads(text))
