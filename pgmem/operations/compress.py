"""Compress: active turns become one node, by tool_clear, by a summary that the caller gives, or by a model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from pgmem.domain.asks import Summariser, Summary, SummaryRequest
from pgmem.domain.chain import digest
from pgmem.domain.events import (
    CompactionCommitted,
    CompactionConflicted,
    CompactionFailed,
    CompactionSkipped,
    CompactionStarted,
    SkipReason,
)
from pgmem.domain.model import Node, NodeStatus, Snapshot, Strategy, Turn
from pgmem.domain.plans import NewNode, cleared_node, cover, given_node, summary_request, written_node
from pgmem.errors import InvalidArgument, StaleTree, SummaryFailed
from pgmem.llm.strategies import awaited, checked
from pgmem.operations.place import COMMIT_ATTEMPTS, Place, advice, find_node, read_snapshot, why
from pgmem.store import rows

Write = Callable[[Snapshot, tuple[Turn, ...]], Awaitable[NewNode]]

ASK_ATTEMPTS = 3
"""How often a model is asked anew after the tree moved on under its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a strategy is asked.

    Attributes:
        summariser: the strategy.
        goal: what the session is for, or None.
        max_summary_tokens: the most that its text may have.
        deadline_seconds: how long it may take.
    """

    summariser: Summariser
    goal: str | None
    max_summary_tokens: int
    deadline_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Which active turns a Compress may cover.

    Attributes:
        threshold: how many must be active before it covers any.
        keep_recent: the newest that stay active.
        through: the last position; None for any.
        version: the tree's version that its author saw; None for any.
    """

    threshold: int = 1
    keep_recent: int = 0
    through: int | None = None
    version: int | None = None


class Unjudged(Exception):
    """A model's summary on the path was judged by nobody, and another one was to be built on it.

    Attributes:
        node: its position.
    """

    def __init__(self, node: int) -> None:
        super().__init__(node)
        self.node = node


async def by_tool_clear(
    place: Place, extent: Extent, *, kind: str, label: str | None, max_summary_tokens: int, judge_first: bool = False
) -> Node | None:
    """Makes a node without a model; None when there is nothing to cover, which an event explains.

    Raises:
        StaleTree: the tree moved on under every one of a few plans.
        Unjudged: with ``judge_first``, what a model wrote of this kind is to be judged first.
    """

    async def write(snapshot: Snapshot, covered: tuple[Turn, ...]) -> NewNode:
        # off the event loop: clearing megabytes of tool results takes a while
        return await asyncio.to_thread(
            cleared_node, snapshot, covered, kind=kind, label=label, max_summary_tokens=max_summary_tokens, count=place.count
        )

    return await _compress(place, extent, write, attempts=COMMIT_ATTEMPTS, judge_first=kind if judge_first else None)


async def by_given_summary(
    place: Place, extent: Extent, *, summary: str, kind: str, label: str | None, cumulative: bool
) -> Node | None:
    """Makes a node of the caller's text, byte for byte; never planned again, since its author saw one state of the tree.

    Raises:
        StaleTree: the tree moved on.
    """

    async def write(snapshot: Snapshot, covered: tuple[Turn, ...]) -> NewNode:
        return given_node(snapshot, covered, summary=summary, kind=kind, label=label, cumulative=cumulative, count=place.count)

    return await _compress(place, extent, write, attempts=1)


async def by_model(
    place: Place, extent: Extent, asking: Asking, *, kind: str, label: str | None, judge_first: bool = False
) -> Node | None:
    """Makes a node of what a strategy answers; no connection is held while it is asked.

    Raises:
        SummaryFailed: the strategy raised, took too long, or answered with what cannot be a summary.
        StaleTree: the tree moved on under every one of a few answers.
        Unjudged: with ``judge_first``, what a model wrote of this kind is to be judged first.
    """

    async def write(snapshot: Snapshot, covered: tuple[Turn, ...]) -> NewNode:
        failures = await failed_before(place, snapshot, covered)
        request = summary_request(
            snapshot,
            covered,
            goal=asking.goal,
            failures=failures,
            max_summary_tokens=asking.max_summary_tokens,
            count=place.count,
        )
        summary = await _asked(place, asking, request)
        return written_node(snapshot, covered, summary, kind=kind, label=label, count=place.count)

    return await _compress(place, extent, write, attempts=ASK_ATTEMPTS, judge_first=kind if judge_first else None)


async def failed_before(place: Place, snapshot: Snapshot, covered: tuple[Turn, ...]) -> tuple[str, ...]:
    """What judges said of the failed nodes that hung from this head and started at this turn, oldest first."""
    parameters = place.key | {"first_no": covered[0].no, "parent": snapshot.tree.head}
    found = await place.database.run(place.database.queries.list_failed, parameters, repeatable=True)
    return tuple(rows.failure_of(row) for row in found)


async def _asked(place: Place, asking: Asking, request: SummaryRequest) -> Summary:
    try:
        async with asyncio.timeout(asking.deadline_seconds) as deadline:
            return checked(await awaited(asking.summariser(request), "the strategy"), request)
    except (Exception, asyncio.CancelledError) as fault:
        place.emit(CompactionFailed(place.session, place.namespace, type(fault).__name__))
        if isinstance(fault, asyncio.CancelledError):
            raise
        reason = why(fault, deadline, asking.deadline_seconds)
        raise SummaryFailed(f"no summary for {place} ({reason}): nothing was written, {advice(fault, 'compress again')}") from fault


async def _compress(place: Place, extent: Extent, write: Write, *, attempts: int, judge_first: str | None = None) -> Node | None:
    for _ in range(attempts):
        snapshot = await read_snapshot(place)
        covered = _covered(place, snapshot, extent)
        if isinstance(covered, SkipReason):
            place.emit(CompactionSkipped(place.session, place.namespace, covered, len(snapshot.active)))
            return None
        await _refuse_unjudged(place, snapshot, judge_first)
        size = sum(turn.tokens for turn in covered)
        place.emit(CompactionStarted(place.session, place.namespace, len(covered), size))
        node = await commit(place, snapshot, await write(snapshot, covered))
        if node is not None:
            return node
        place.emit(CompactionConflicted(place.session, place.namespace))
    raise StaleTree(
        f"{place} moved on while it was summarised, {attempts} times: nothing was written; read the context again and retry"
    )


async def _refuse_unjudged(place: Place, snapshot: Snapshot, kind: str | None) -> None:
    if not any(node.kind == kind and node.strategy is Strategy.LLM for node in snapshot.nodes):
        return
    no = await find_node(place, place.database.queries.find_unfinished, kind=kind)
    if no is not None:
        raise Unjudged(no)


def _covered(place: Place, snapshot: Snapshot, extent: Extent) -> tuple[Turn, ...] | SkipReason:
    if extent.version is not None and extent.version != snapshot.tree.version:
        raise StaleTree(
            f"{place} moved on since the context that this summary was written from: nothing was written; call context() again"
        )
    if extent.through is not None and extent.through > snapshot.tree.last_no:
        raise InvalidArgument(
            f"through is {extent.through} and the newest fact is {snapshot.tree.last_no}: name a turn that is there"
        )
    if snapshot.active and len(snapshot.active) < extent.threshold:
        return SkipReason.BELOW_THRESHOLD
    return cover(snapshot, keep_recent=extent.keep_recent, through=extent.through)


async def commit(place: Place, snapshot: Snapshot, new: NewNode) -> Node | None:
    """Adds the node if branch and version are as in ``snapshot``; None, and nothing written, if they are not."""
    parameters = place.key | {
        "branch": snapshot.tree.branch,
        "version": snapshot.tree.version,
        "parent": new.parent,
        "covers_from": new.first_no,
        "covers_to": new.last_no,
        "kind": new.kind,
        "label": new.label,
        "strategy": new.strategy.value,
        "summary": new.summary,
        "cumulative": new.cumulative,
        "tokens": new.tokens,
        "source_tokens": new.source_tokens,
        "model": new.model,
        "prompt_version": new.prompt_version,
        "usage": new.usage,
        "digest": digest(*new.fields()),
    }
    found = await place.database.run(place.database.queries.commit_node, parameters)
    if not found:
        return None
    node = _committed(new, **found[0])
    place.emit(
        CompactionCommitted(place.session, place.namespace, node.no, node.first_no, node.last_no, node.tokens, node.source_tokens)
    )
    return node


def _committed(new: NewNode, *, no: int, branch: int, created_at: datetime) -> Node:
    return Node(
        no=no,
        branch=branch,
        parent=new.parent,
        first_no=new.first_no,
        last_no=new.last_no,
        kind=new.kind,
        label=new.label,
        strategy=new.strategy,
        summary=new.summary,
        cumulative=new.cumulative,
        tokens=new.tokens,
        source_tokens=new.source_tokens,
        model=new.model,
        prompt_version=new.prompt_version,
        created_at=created_at,
        status=NodeStatus.PENDING,
    )
