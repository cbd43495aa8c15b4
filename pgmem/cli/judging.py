"""A judge asked of a node, and what became of the tree by what it said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgmem import CompactionCommitted, Event, Namespace, Node, Policy, Verdict
from pgmem.cli.reading import Place
from pgmem.cli.render import inert, span, write_line


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and what it moved.

    Attributes:
        verdict: what the judge said.
        left: the nodes that left the path with it, oldest first.
    """

    verdict: Verdict
    left: tuple[Node, ...]


async def judged(found: Namespace, node: int | None, *, judge: Any) -> Judged | None:
    """Asks the judge, and looks at the path before and after; None when no node waits for a verdict."""
    before = await found.path()
    verdict = await found.maintain(node, judge=judge)
    if verdict is None:
        return None
    if verdict.reopened is None:
        return Judged(verdict, ())
    kept = {stays.no for stays in await found.path()}
    return Judged(verdict, tuple(left for left in before if left.no not in kept))


def tell(done: Judged, seen: Sequence[Event], place: Place) -> None:
    """Prints the verdict, what is active again, and what stands for it now."""
    verdict = done.verdict
    by = f"{verdict.judge} ({verdict.model})" if verdict.model else verdict.judge
    reason = f": {verdict.reason}" if verdict.reason else ""
    write_line(inert(f"verdict {verdict.no} on node {verdict.node}: {verdict.outcome} by {by}{reason}"))
    for item in verdict.missing:
        write_line(inert(f"  missing: {item}"))
    if verdict.reopened is None:
        return
    write_line(f"branch {verdict.reopened} starts without node {verdict.node}{_with_it(done)}: {_active_again(done)}")
    for event in seen:
        if isinstance(event, CompactionCommitted):
            _tell_cleared(event, place)


def _with_it(done: Judged) -> str:
    others = [str(node.no) for node in done.left if node.no != done.verdict.node]
    if not others:
        return ""
    return f" and what was built on it, node{'s'[: len(others) > 1]} {', '.join(others)}"


def _active_again(done: Judged) -> str:
    if not done.left:  # the node was made and left while this was asked
        return "its turns are active again"
    first, last = min(node.first_no for node in done.left), max(node.last_no for node in done.left)
    return f"{span(first, last)} {'is' if first == last else 'are'} active again"


def _tell_cleared(event: CompactionCommitted, place: Place) -> None:
    threshold = Policy().threshold
    write_line(
        f"{threshold} or more were active then, the policy's threshold: "
        f"tool_clear made node {event.no} of {span(event.first_no, event.last_no)} at once"
    )
    write_line("to have a model try again:")
    write_line(f"  {place.command('revise', str(event.no), '--keep-turns')}")
    write_line(f"  {place.command('compress', '--strategy', 'llm', '--model', 'NAME')}")
