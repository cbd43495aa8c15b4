"""What happened inside pgmem, told to ``memory.on_event()``: small values, no text of the conversation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pgmem.domain.model import Outcome


class SkipReason(StrEnum):
    """Why a compaction wrote nothing."""

    BELOW_THRESHOLD = "below_threshold"
    NOTHING_ACTIVE = "nothing_active"
    NO_SAFE_CUT = "no_safe_cut"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to one tree.

    Attributes:
        session: the session's key.
        namespace: the namespace.
    """

    session: str
    namespace: str


@dataclass(frozen=True, slots=True)
class CompactionStarted(Event):
    """A Compress has read the tree and has turns to cover.

    Attributes:
        turns: how many.
        tokens: their size.
    """

    turns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionSkipped(Event):
    """A Compress wrote nothing.

    Attributes:
        reason: why.
        active: how many turns are active.
    """

    reason: SkipReason
    active: int


@dataclass(frozen=True, slots=True)
class CompactionCommitted(Event):
    """A node is on the path.

    Attributes:
        no: the node.
        first_no: the first turn that it covers.
        last_no: the last turn that it covers.
        tokens: size of its summary.
        source_tokens: size of the turns that it covers.
    """

    no: int
    first_no: int
    last_no: int
    tokens: int
    source_tokens: int


@dataclass(frozen=True, slots=True)
class CompactionConflicted(Event):
    """The tree moved on between the read and the commit; nothing was written, and it is planned again if it may be."""


@dataclass(frozen=True, slots=True)
class Erased(Event):
    """All turns so far were left behind.

    Attributes:
        no: the branch that began.
        kept: the node that is still shown, or None.
    """

    no: int
    kept: int | None


@dataclass(frozen=True, slots=True)
class CompactionFailed(Event):
    """A strategy gave no summary; nothing was written.

    Attributes:
        error: the kind of the error.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Judged(Event):
    """A verdict is stored.

    Attributes:
        node: the node.
        no: the verdict.
        outcome: pass or fail.
        reopened: the branch that took the node off the path, None when it moved nothing.
    """

    node: int
    no: int
    outcome: Outcome
    reopened: int | None


@dataclass(frozen=True, slots=True)
class JudgementFailed(Event):
    """A judge gave no verdict; the node stays as it was.

    Attributes:
        node: the node.
        error: the kind of the error.
    """

    node: int
    error: str


@dataclass(frozen=True, slots=True)
class AttemptsExhausted(Event):
    """As many summaries of the same turns failed as may: tool_clear makes the next node.

    Attributes:
        first_no: the first of the turns.
        attempts: how many failed.
    """

    first_no: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Revised(Event):
    """The head moved back.

    Attributes:
        no: the branch that began.
        base: the node that it starts from, or None.
        left_from: the first position past the point.
        left_to: the last position left behind, None when no turn was.
    """

    no: int
    base: int | None
    left_from: int
    left_to: int | None
