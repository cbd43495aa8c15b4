"""The state tree as a picture: nodes and turns in the order they came, branches where they start."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text
from rich.tree import Tree

from pgmem import Branch, Namespace, Node, NodeStatus, Outcome, Turn, TurnStatus, Verdict
from pgmem.cli.render import counted, inert, one_line

SHOWN, MERGED, LEFT = "●", "◐", "○"
LEGEND = f"{SHOWN} the model sees it   {MERGED} merged into a newer memory   {LEFT} left behind"

_REASON_CHARACTERS = 240
"""So much of what a judge said."""


@dataclass(frozen=True, slots=True)
class Run:
    """Turns in a row that share a branch and a status, and that no node stands for.

    Attributes:
        branch: where they are drawn.
        status: active, abandoned or erased.
        first_no: the first turn.
        last_no: the last turn.
        turns: how many.
        tokens: their size.
    """

    branch: int
    status: TurnStatus
    first_no: int
    last_no: int
    turns: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What a picture of a tree needs.

    Attributes:
        session: the session's key.
        namespace: the namespace.
        nodes: every node ever made, oldest first.
        path: the nodes on the active path.
        shown: those of the path that the context shows: from the newest cumulative one on.
        branches: every branch but the first, oldest first; the newest one is active.
        runs: the turns that no node stands for, oldest first.
        verdicts: everything that a judge said, oldest first.
    """

    session: str
    namespace: str
    nodes: tuple[Node, ...]
    path: frozenset[int]
    shown: frozenset[int]
    branches: tuple[Branch, ...]
    runs: tuple[Run, ...]
    verdicts: tuple[Verdict, ...] = ()


async def read_shape(namespace: Namespace) -> Shape:
    """The shape of a namespace's tree; it keeps no text of the turns."""
    path = await namespace.path()
    nodes = tuple([node async for node in namespace.nodes()])
    branches = tuple([branch async for branch in namespace.branches()])
    turns = [replace(turn, message={}) async for turn in namespace.turns()]
    active_branch = branches[-1].no if branches else 0
    return Shape(
        session=namespace.key,
        namespace=namespace.name,
        nodes=nodes,
        path=frozenset(node.no for node in path),
        shown=frozenset(_shown(path)),
        branches=branches,
        runs=tuple(_runs(turns, nodes, active_branch)),
        verdicts=tuple([verdict async for verdict in namespace.verdicts()]),
    )


def draw(shape: Shape) -> Tree:
    """The picture of a tree."""
    root = Tree(Text.assemble((inert(shape.session), "bold"), f"  namespace {shape.namespace}"), guide_style="dim")
    if not shape.nodes and not shape.runs and not shape.branches:
        root.add(Text("nothing yet", style="dim"))
    items, starts, said = _by_branch(shape), _starts(shape), _said(shape)
    waiting: list[tuple[Tree, int]] = [(root, 0)]
    while waiting:
        parent, number = waiting.pop()
        for item in items[number]:
            drawn = parent.add(_run_text(item) if isinstance(item, Run) else _node_text(item, shape))
            if isinstance(item, Node):
                for verdict in said[item.no]:
                    drawn.add(_verdict_text(verdict))
                waiting += [(drawn.add(_branch_text(branch, shape)), branch.no) for branch in starts[item.no]]
        if number == 0:
            waiting += [(root.add(_branch_text(branch, shape)), branch.no) for branch in starts[None]]
    return root


def _shown(path: Sequence[Node]) -> Iterator[int]:
    for node in reversed(path):
        yield node.no
        if node.cumulative:
            return


def _runs(turns: Iterable[Turn], nodes: Sequence[Node], active_branch: int) -> Iterator[Run]:
    # a failed node stands for nothing: what became of its turns is drawn where they are
    covered = _Ranges([node for node in nodes if node.status is not NodeStatus.FAILED])
    run: Run | None = None
    for turn in turns:
        status = turn.status or TurnStatus.ACTIVE
        if status is TurnStatus.COMPRESSED or (status is not TurnStatus.ACTIVE and turn.no in covered):
            continue
        branch = active_branch if status is TurnStatus.ACTIVE else turn.branch
        if run is not None and (run.branch, run.status) == (branch, status):
            run = replace(run, last_no=turn.no, turns=run.turns + 1, tokens=run.tokens + turn.tokens)
            continue
        if run is not None:
            yield run
        run = Run(branch, status, turn.no, turn.no, 1, turn.tokens)
    if run is not None:
        yield run


class _Ranges:
    """The positions that some node covers."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in sorted((node.first_no, node.last_no) for node in nodes):
            if self._ends and first <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], last)
            else:
                self._starts.append(first)
                self._ends.append(last)

    def __contains__(self, no: int) -> bool:
        at = bisect_right(self._starts, no) - 1
        return at >= 0 and no <= self._ends[at]


def _by_branch(shape: Shape) -> dict[int, list[Node | Run]]:
    items: dict[int, list[Node | Run]] = defaultdict(list)
    for node in shape.nodes:
        items[node.branch].append(node)
    for run in shape.runs:
        items[run.branch].append(run)
    for found in items.values():
        found.sort(key=lambda item: (item.first_no, item.last_no))
    return items


def _starts(shape: Shape) -> dict[int | None, list[Branch]]:
    """The branches by the node where they start."""
    starts: dict[int | None, list[Branch]] = defaultdict(list)
    for branch in shape.branches:
        starts[branch.base].append(branch)
    return starts


def _said(shape: Shape) -> dict[int, list[Verdict]]:
    """The verdicts by their node."""
    said: dict[int, list[Verdict]] = defaultdict(list)
    for verdict in shape.verdicts:
        said[verdict.node].append(verdict)
    return said


def _node_text(node: Node, shape: Shape) -> Text:
    shown, left = node.no in shape.shown, node.no not in shape.path
    text = Text(f"{SHOWN if shown else LEFT if left else MERGED} ")
    text.append(f"node {node.no}", style="bold" if shown else "")
    text.append(f"  {node.status}", style="red" if node.status is NodeStatus.FAILED else "cyan" if shown else "")
    text.append(f"  {_turns(node.first_no, node.last_no)}, {counted(node.source_tokens, 'token')}")
    text.append(f"  → {'memory' if node.cumulative else 'summary'} of {node.tokens:,} ({node.strategy})")
    if node.label is not None:
        text.append(f"  “{one_line(node.label)}”")
    if left:
        text.stylize("dim")
    return text


def _run_text(run: Run) -> Text:
    shown = run.status is TurnStatus.ACTIVE
    size = counted(run.tokens, "token")
    text = Text(f"{SHOWN if shown else LEFT} ")
    text.append(_turns(run.first_no, run.last_no), style="bold" if shown else "")
    text.append(f"  {run.status}", style="cyan" if shown else "")
    text.append(f"  {counted(run.turns, 'turn')} verbatim, {size}" if shown else f"  {size}")
    if not shown:
        text.stylize("dim")
    return text


def _turns(first_no: int, last_no: int) -> str:
    return f"turn {first_no}" if first_no == last_no else f"turns {first_no}–{last_no}"


def _verdict_text(verdict: Verdict) -> Text:
    text = Text(f"verdict {verdict.no}", style="dim")
    text.append(f"  {verdict.outcome}", style="not dim red" if verdict.outcome is Outcome.FAIL else "not dim")
    model = f" ({one_line(verdict.model)})" if verdict.model else ""
    text.append(f" by {one_line(verdict.judge)}{model}")
    if verdict.reason:
        text.append(f": “{one_line(verdict.reason, _REASON_CHARACTERS)}”")
    if verdict.missing:
        text.append(f"; missing: {one_line('; '.join(verdict.missing), _REASON_CHARACTERS)}")
    return text


def _branch_text(branch: Branch, shape: Shape) -> Text:
    active = branch.no == shape.branches[-1].no
    text = Text(f"branch {branch.no}", style="bold" if active else "dim")
    by = f" by {one_line(branch.actor)}" if branch.actor else ""
    note = f", “{one_line(branch.note)}”" if branch.note else ""
    verdict = next((verdict for verdict in shape.verdicts if verdict.reopened == branch.no), None)
    if verdict is not None:  # its reason is the note, and is drawn under its node
        note = f" after verdict {verdict.no}"
    text.append(f"  {branch.cause}{by}{note}, {branch.created_at:%Y-%m-%d %H:%M:%S%z}", style="not bold dim")
    return text
