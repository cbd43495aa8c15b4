"""Compact by a model: Compress with Maintain behind it, tried again until a summary stands or tool_clear makes one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pgmem.domain.asks import Judge
from pgmem.domain.events import AttemptsExhausted, SkipReason
from pgmem.domain.model import Node, NodeStatus, Outcome, Verdict
from pgmem.domain.plans import cover
from pgmem.errors import SummaryFailed
from pgmem.operations import compress
from pgmem.operations.compress import Asking, Extent
from pgmem.operations.maintain import maintain
from pgmem.operations.place import Place, read_node, read_snapshot

KIND = "compaction"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction came to.

    Attributes:
        node: the node that stands; None when there was nothing to cover, when the last one failed and was not replaced, or when
            somebody took it off the path meanwhile.
        verdict: the last verdict; None when none was asked for. When tool_clear made ``node`` in the end, it is of the summary
            that failed before.
        attempts: how many summaries a model was asked for.
    """

    node: Node | None
    verdict: Verdict | None
    attempts: int


async def by_model_judged(
    place: Place, extent: Extent, asking: Asking, judge: Judge, *, max_attempts: int, retry: bool
) -> CompactionResult:
    """Compresses, judges, and tries again with what the judge said; after ``max_attempts`` failures tool_clear ends it.

    Args:
        place: the tree.
        extent: which active turns.
        asking: how the strategy is asked.
        judge: asked of every summary.
        max_attempts: how many nodes of the same turns may fail.
        retry: whether a failed one is tried again here, and tool_clear ends it; otherwise the turns stay raw.

    Raises:
        SummaryFailed: the strategy gave no summary.
        JudgeFailed: the judge gave no verdict; the node is pending.
        StaleTree: the tree moved on too often.
    """
    attempts, verdict = 0, None
    while True:
        if await _exhausted(place, extent, max_attempts):
            if not retry:
                return CompactionResult(None, verdict, attempts)
            return CompactionResult(await fall_back(place, extent, asking.max_summary_tokens), verdict, attempts)
        try:
            node = await compress.by_model(place, extent, asking, kind=KIND, label=None)
        except SummaryFailed:
            if verdict is not None:
                # what failed before is raw again, and nobody writes another summary: the context stays bounded
                await fall_back(place, extent, asking.max_summary_tokens)
            raise
        if node is None:
            return CompactionResult(None, verdict, attempts)
        attempts += 1
        verdict = await maintain(place, node.no, judge=judge, goal=asking.goal, deadline_seconds=asking.deadline_seconds)
        if verdict is None or verdict.outcome is Outcome.PASS:
            return CompactionResult(await _standing(place, node), verdict, attempts)
        if verdict.reopened is None or not retry:
            return CompactionResult(None, verdict, attempts)


async def fall_back(place: Place, extent: Extent, max_summary_tokens: int) -> Node | None:
    """The node that tool_clear makes where no model's summary stood."""
    return await compress.by_tool_clear(place, extent, kind=KIND, label=None, max_summary_tokens=max_summary_tokens)


async def _standing(place: Place, node: Node) -> Node | None:
    """The node as it stands after its verdict; None when somebody took it off the path while it was judged."""
    status = NodeStatus((await read_node(place, node.no))["status"])
    return replace(node, status=status) if status in (NodeStatus.PENDING, NodeStatus.COMPRESSED) else None


async def _exhausted(place: Place, extent: Extent, max_attempts: int) -> bool:
    snapshot = await read_snapshot(place)
    covered = cover(snapshot, keep_recent=extent.keep_recent, through=extent.through)
    if len(snapshot.active) < extent.threshold or isinstance(covered, SkipReason):
        return False
    failed = len(await compress.failed_before(place, snapshot, covered))
    if failed < max_attempts:
        return False
    place.emit(AttemptsExhausted(place.session, place.namespace, covered[0].no, failed))
    return True
