"""What a Compress would write, worked out from a snapshot alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pgmem.domain.asks import Summary, SummaryRequest
from pgmem.domain.calls import safe_cut
from pgmem.domain.chain import Field
from pgmem.domain.context import OMITTED, memory_text, memory_tokens
from pgmem.domain.events import SkipReason
from pgmem.domain.message import storable, unstorable_at
from pgmem.domain.model import Snapshot, Strategy, Turn
from pgmem.domain.tokens import TokenCounter
from pgmem.domain.tool_clear import Remembered, clear
from pgmem.errors import EmptySummary, InvalidArgument, SummaryTooLong

LEAST_CLEARED_TOKENS = 64
"""What tool_clear makes is no larger than what it replaces, but for sources smaller than this."""

SILENT = "(turns %d to %d hold no text)"
"""The summary of turns that say nothing at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """A node that is not committed yet; see ``model.Node`` for its fields."""

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
    model: str | None = None
    prompt_version: str | None = None
    usage: str | None = None

    def fields(self) -> tuple[Field, ...]:
        """What its digest is made of, in the order that ``chain`` documents."""
        covered = (self.parent, self.first_no, self.last_no, self.kind, self.label, self.strategy.value, self.summary)
        return (
            "node",
            *covered,
            self.cumulative,
            self.tokens,
            self.source_tokens,
            self.model,
            self.prompt_version,
            self.usage,
        )


def cover(snapshot: Snapshot, *, keep_recent: int, through: int | None) -> tuple[Turn, ...] | SkipReason:
    """The active turns that a Compress may cover, oldest first, or why it may cover none.

    Args:
        snapshot: what the tree shows.
        keep_recent: the newest turns that stay active.
        through: the last position that may be covered; None for any.
    """
    active = snapshot.active
    limit = len(active) - keep_recent
    if through is not None:
        limit = min(limit, sum(turn.no <= through for turn in active))
    if limit <= 0:
        return SkipReason.NOTHING_ACTIVE
    cut = safe_cut([turn.message for turn in active], limit)
    return active[:cut] if cut else SkipReason.NO_SAFE_CUT


def cleared_node(
    snapshot: Snapshot,
    covered: tuple[Turn, ...],
    *,
    kind: str,
    label: str | None,
    max_summary_tokens: int,
    count: TokenCounter,
) -> NewNode:
    """The node that tool_clear makes: the memory that the context shows, merged with the covered turns."""

    def shown(text: str) -> int:
        return memory_tokens(storable(text), count)

    omitted = [Remembered(OMITTED % snapshot.nodes[0].first_no, own=False)] if snapshot.more_nodes else []
    summaries = (Remembered(node.summary, own=node.strategy == Strategy.TOOL_CLEAR) for node in snapshot.nodes)
    sources = memory_tokens(memory_text(snapshot), count) + sum(turn.tokens for turn in covered)
    most = min(max_summary_tokens, max(sources, LEAST_CLEARED_TOKENS))
    cleared = storable(clear([*omitted, *summaries], covered, max_tokens=most, count=shown))
    silent = SILENT % (covered[0].no, covered[-1].no)
    summary = check_summary(cleared if cleared.strip() else silent, max_summary_tokens=max_summary_tokens, count=count)
    return _node(
        snapshot,
        covered,
        kind=kind,
        label=label,
        strategy=Strategy.TOOL_CLEAR,
        summary=summary,
        cumulative=True,
        count=count,
    )


def given_node(
    snapshot: Snapshot,
    covered: tuple[Turn, ...],
    *,
    summary: str,
    kind: str,
    label: str | None,
    cumulative: bool,
    count: TokenCounter,
) -> NewNode:
    """The node of a summary that the caller wrote, kept byte for byte."""
    return _node(
        snapshot,
        covered,
        kind=kind,
        label=label,
        strategy=Strategy.GIVEN,
        summary=summary,
        cumulative=cumulative,
        count=count,
    )


def summary_request(
    snapshot: Snapshot,
    covered: tuple[Turn, ...],
    *,
    goal: str | None,
    failures: tuple[str, ...],
    max_summary_tokens: int,
    count: TokenCounter,
) -> SummaryRequest:
    """What a strategy is asked: the memory that the context shows, the turns to cover, and what earlier attempts teach."""
    return SummaryRequest(
        turns=covered,
        memory=memory_text(snapshot),
        goal=goal,
        hints=tuple(hint.note for hint in reversed(snapshot.hints)),
        failures=failures,
        max_summary_tokens=max_summary_tokens - memory_tokens("", count),
        count=count,
    )


def written_node(
    snapshot: Snapshot, covered: tuple[Turn, ...], summary: Summary, *, kind: str, label: str | None, count: TokenCounter
) -> NewNode:
    """The node of what a strategy answered: an updated memory, so cumulative."""
    made = _node(
        snapshot, covered, kind=kind, label=label, strategy=Strategy.LLM, summary=summary.text, cumulative=True, count=count
    )
    usage = summary.usage.to_json() if summary.usage else None
    return replace(made, model=summary.model, prompt_version=summary.prompt_version, usage=usage)


def check_summary(summary: object, *, max_summary_tokens: int, count: TokenCounter) -> str:
    """``summary``, if it can stand for turns.

    Raises:
        InvalidArgument: it is no text, or one that Postgres cannot hold.
        EmptySummary: it says nothing.
        SummaryTooLong: it is over ``max_summary_tokens``.
    """
    text = check_text("summary", summary)
    if not text.strip():
        raise EmptySummary("the summary is empty: a node needs a text that stands for its turns")
    tokens = memory_tokens(text, count)
    if tokens > max_summary_tokens:
        raise SummaryTooLong(
            f"the summary needs {tokens} tokens and max_summary_tokens is {max_summary_tokens}: shorten it, or raise the policy's"
        )
    return text


def check_text(name: str, value: object, *, most: int | None = None) -> str:
    """``value``, if it is a text of 1 to ``most`` characters that Postgres can hold.

    Raises:
        InvalidArgument: it is not; it names the value and the rule.
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is of type {type(value).__name__}: it must be a text")
    at = unstorable_at(value)
    if at is not None:
        raise InvalidArgument(f"{name} holds a NUL or a lone surrogate at {at}: remove it")
    if most is not None and not 1 <= len(value) <= most:
        raise InvalidArgument(f"{name} has {len(value)} characters: it must have 1 to {most}")
    return value


def _node(
    snapshot: Snapshot,
    covered: tuple[Turn, ...],
    *,
    kind: str,
    label: str | None,
    strategy: Strategy,
    summary: str,
    cumulative: bool,
    count: TokenCounter,
) -> NewNode:
    return NewNode(
        parent=snapshot.tree.head,
        first_no=covered[0].no,
        last_no=covered[-1].no,
        kind=kind,
        label=label,
        strategy=strategy,
        summary=summary,
        cumulative=cumulative,
        tokens=count(summary),
        source_tokens=sum(turn.tokens for turn in covered),
    )
