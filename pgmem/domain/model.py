"""The values of the glossary: turns, nodes, branches, verdicts and the tree row that points at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

Message = Mapping[str, Any]
"""One OpenAI chat message, as the provider's API takes it."""


class Role(StrEnum):
    """Who speaks in a turn."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Strategy(StrEnum):
    """How a node got its text."""

    LLM = "llm"
    TOOL_CLEAR = "tool_clear"
    GIVEN = "given"


class Cause(StrEnum):
    """Why the head moved back."""

    REVISE = "revise"
    REOPEN = "reopen"
    ERASE = "erase"


class Outcome(StrEnum):
    """What a judge says of a summary."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"


class TurnStatus(StrEnum):
    """Where a turn is now; derived, never stored."""

    ACTIVE = "active"
    COMPRESSED = "compressed"
    ABANDONED = "abandoned"
    ERASED = "erased"


class NodeStatus(StrEnum):
    """What a node is worth now; derived, never stored."""

    PENDING = "pending"
    COMPRESSED = "compressed"
    FAILED = "failed"
    ABANDONED = "abandoned"


ON_PATH = (NodeStatus.PENDING, NodeStatus.COMPRESSED)
"""The statuses of nodes that the context shows, or that a newer one on the path stands for."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One stored message.

    Attributes:
        no: position in its tree, from 1.
        branch: the branch that it was added on; 0 is the first.
        message: the OpenAI chat message, equal value for value to what was added.
        pinned: shown verbatim in every context until its line is left.
        tokens: size by the counter that was set when it was added.
        idempotency_key: the caller's name for it, or None.
        created_at: the database's time of the statement that stored it.
        status: filled by ``Session.turns()``; None elsewhere.
        node: the node on the active path that stands for it, filled by ``Session.turns()``; None when there is none.
    """

    no: int
    branch: int
    message: Message
    pinned: bool
    tokens: int
    idempotency_key: str | None
    created_at: datetime
    status: TurnStatus | None = None
    node: int | None = None

    @property
    def role(self) -> Role:
        """Who spoke."""
        return Role(self.message["role"])

    @property
    def content(self) -> Any:
        """The message's content: text, a list of parts, or None."""
        return self.message.get("content")


@dataclass(frozen=True, slots=True)
class Node:
    """A summary that stands for the turns between two positions.

    Attributes:
        no: position in its tree.
        branch: the branch that it was made on.
        parent: the node before it on its branch; None at the root.
        first_no: the first turn that it covers.
        last_no: the last turn that it covers; the boundary when this node is the head.
        kind: the caller's word for what it is about, ``topic`` by default.
        label: a short title, or None.
        strategy: how its text was made.
        summary: the text.
        cumulative: whether it stands for all memory before it too.
        tokens: size of the summary.
        source_tokens: size of the turns that it covers.
        model: the model that wrote it, or None.
        prompt_version: the prompt that asked for it, or None.
        created_at: the database's time of the commit.
        status: filled by ``Session.path()``; None elsewhere.
    """

    no: int
    branch: int
    parent: int | None
    first_no: int
    last_no: int
    kind: str
    label: str | None
    strategy: Strategy
    summary: str
    cumulative: bool
    tokens: int
    source_tokens: int
    model: str | None
    prompt_version: str | None
    created_at: datetime
    status: NodeStatus | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of work that began when the head moved back; its ``no`` is its name.

    Attributes:
        no: position in its tree, and the branch's name.
        cause: why the head moved back.
        base: the node that it starts from; None at the root.
        left_from: the first position past the point that it went back to.
        left_to: the last position left behind; None when no turn was.
        note: what the next attempt should know, or None.
        actor: who asked for it, or None.
        created_at: the database's time of the commit.
    """

    no: int
    cause: Cause
    base: int | None
    left_from: int
    left_to: int | None
    note: str | None
    actor: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said of a node.

    Attributes:
        no: position in its tree.
        node: the node that was judged.
        outcome: ``pass`` or ``fail``.
        reason: why, in the judge's words.
        missing: what the summary lacks or has wrong.
        judge: who judged.
        model: the model that judged, or None.
        prompt_version: the prompt that asked for it, or None.
        created_at: the database's time of the commit.
        reopened: the branch that took the node off the path, None when it moved nothing.
    """

    no: int
    node: int
    outcome: Outcome
    reason: str | None
    missing: tuple[str, ...]
    judge: str
    model: str | None
    prompt_version: str | None
    created_at: datetime
    reopened: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """What an exchange left a flow in.

    Attributes:
        flow: the flow's name.
        no: position in its flow, from 1; the newest one is where the flow is now.
        step: the name of the step.
        entered: the names of the steps that were entered since the one before, in order.
        state: the flow's state.
        created_at: the database's time of the statement that stored it.
    """

    flow: str
    no: int
    step: str
    entered: tuple[str, ...]
    state: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Hint:
    """What an attempt that was left behind teaches the next one.

    Attributes:
        branch: the branch that began when it was left.
        left_from: the first position that was left.
        left_to: the last position that was left; None when only nodes were, and no turn.
        note: what to know.
    """

    branch: int
    left_from: int
    left_to: int | None
    note: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The moving part of a tree: what points at the newest facts.

    Attributes:
        branch: the active branch.
        open_branch: the newest branch that left turns behind.
        head: the node that the next Compress hangs from; None at the root.
        boundary: turns up to here are behind a summary or left behind.
        last_no: the newest fact's position; 0 in an empty tree.
        version: moves whenever the head or the branch does; never by Grow.
    """

    branch: int
    open_branch: int
    head: int | None
    boundary: int
    last_no: int
    version: int


EMPTY_TREE = Tree(branch=0, open_branch=0, head=None, boundary=0, last_no=0, version=0)
"""A tree that has no fact yet."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent read of what a tree shows.

    Attributes:
        tree: the tree row, or what it was at the position asked for.
        nodes: the path from the newest cumulative node to the head, root first; at most 64.
        more_nodes: whether the path goes on before ``nodes`` and nothing in it stands for that.
        kept: pinned turns and the newest user turn that are not left behind and not active, oldest first.
        active: the active turns, oldest first.
        hints: notes of attempts that were left behind, oldest first; at most 3.
    """

    tree: Tree
    nodes: tuple[Node, ...]
    more_nodes: bool
    kept: tuple[Turn, ...]
    active: tuple[Turn, ...]
    hints: tuple[Hint, ...] = ()
