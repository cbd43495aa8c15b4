"""Compact by a model: Compress with Maintain behind it, tried again until a summary stands or tool_clear makes one."""

from __future__ import annotations

from dataclasses import dataclass

from pgmem.domain.asks import Judge
from pgmem.domain.events import AttemptsExhausted, SkipReason
from pgmem.domain.model import ON_PATH, Node, Verdict
from pgmem.domain.plans import cover
from pgmem.errors import JudgeFailed, SummaryFailed
from pgmem.operations import compress
from pgmem.operations.compress import Asking, Extent, Unjudged
from pgmem.operations.maintain import maintain
from pgmem.operations.place import Place, find_node, read_node, read_snapshot
from pgmem.store import rows

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Who judges, and how.

    Attributes:
        judge: asked of every summary that a model wrote.
        goal: what the session is for, or None.
        deadline_seconds: how long it may take.
        resume: whether nodes that an earlier compaction left without a verdict are judged also where nothing is due; none is ever
            built upon.
    """

    judge: Judge
    goal: str | None
    deadline_seconds: float
    resume: bool = False


async def by_model_judged(
    place: Place, extent: Extent, asking: Asking, judging: Judging, *, max_attempts: int, retry: bool
) -> CompactionResult:
    """Compresses, judges, and tries again with what the judge said; after ``max_attempts`` failures tool_clear ends it.

    Args:
        place: the tree.
        extent: which active turns.
        asking: how the strategy is asked.
        judging: who judges.
        max_attempts: how many nodes of the same turns may fail.
        retry: whether a failed one is tried again here, and tool_clear ends it; otherwise the turns stay raw.

    Raises:
        SummaryFailed: the strategy gave no summary.
        JudgeFailed: the judge gave no verdict; the node is pending.
        StaleTree: the tree moved on too often.
    """
    attempts = 0
    stands, verdict = await _resumed(place, judging)
    while retry or not _failed(stands, verdict):
        try:
            if await _exhausted(place, extent, max_attempts):
                node = await fall_back(place, extent, asking.max_summary_tokens, judge_first=True) if retry else None
                return CompactionResult(node, verdict, attempts)
            node = await compress.by_model(place, extent, asking, kind=KIND, label=None, judge_first=True)
        except Unjudged as found:
            stands, verdict = await _judged(place, found.node, judging)
            continue
        except SummaryFailed:
            if retry and _failed(stands, verdict):
                # what failed before is raw again, and nobody writes another summary: the context stays bounded
                await fall_back(place, extent, asking.max_summary_tokens)
            raise
        if node is None:
            break
        attempts += 1
        stands, verdict = await _judged(place, node.no, judging)
        if stands is not None or verdict.reopened is None:
            break
    return CompactionResult(stands, verdict, attempts)


def _failed(stands: Node | None, verdict: Verdict | None) -> bool:
    return stands is None and verdict is not None


async def by_tool_clear_judged(place: Place, extent: Extent, judging: Judging, *, max_summary_tokens: int) -> CompactionResult:
    """Makes a node by tool_clear, which nobody judges; what a model wrote before it is judged first, if the judge is there.

    Raises:
        JudgeFailed: the judge gave no verdict, and there is nothing to cover.
        StaleTree: the tree moved on too often.
    """
    stands: Node | None = None
    verdict: Verdict | None = None
    try:
        stands, verdict = await _resumed(place, judging)
        while True:
            try:
                node = await fall_back(place, extent, max_summary_tokens, judge_first=True)
                break
            except Unjudged as found:
                stands, verdict = await _judged(place, found.node, judging)
    except JudgeFailed:  # what asks no model must not depend on one
        node = await fall_back(place, extent, max_summary_tokens)
        if node is None:
            raise
    return CompactionResult(node or stands, verdict, 0)


async def _resumed(place: Place, judging: Judging) -> tuple[Node | None, Verdict | None]:
    """The newest of the nodes that earlier compactions left without a verdict, if it stands, and the verdict that it has now."""
    found: tuple[Node | None, Verdict | None] = (None, None)
    while judging.resume and (no := await find_node(place, place.database.queries.find_unfinished, kind=KIND)) is not None:
        found = await _judged(place, no, judging)
    return found


async def _judged(place: Place, no: int, judging: Judging) -> tuple[Node | None, Verdict]:
    """The node, if it stands after its first verdict, and that verdict, whoever stored it."""
    maintained = await maintain(
        place, no, judge=judging.judge, goal=judging.goal, deadline_seconds=judging.deadline_seconds, unless_judged=True
    )
    assert maintained is not None  # noqa: S101 - a node that is named gets a verdict or an error
    node = rows.judged_node_of(await read_node(place, no))
    return node if node.status in ON_PATH else None, maintained.verdict


async def fall_back(place: Place, extent: Extent, max_summary_tokens: int, *, judge_first: bool = False) -> Node | None:
    """The node that tool_clear makes where no model's summary stood."""
    return await compress.by_tool_clear(
        place, extent, kind=KIND, label=None, max_summary_tokens=max_summary_tokens, judge_first=judge_first
    )


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
