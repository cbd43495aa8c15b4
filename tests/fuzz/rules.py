"""The rules of the tree once more, as plainly as they can be said: lists, sets and no cleverness."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class PlainTurn:
    no: int
    message: dict[str, Any]
    pinned: bool = False
    erased: bool = False
    abandoned: bool = False


@dataclass
class PlainNode:
    no: int
    parent: int | None
    covered: list[int]
    cumulative: bool
    cleared: bool = False
    outcome: str | None = None


@dataclass
class PlainNote:
    left_from: int
    text: str | None
    leaves_turns: bool


@dataclass
class PlainTree:
    """What a tree should be after the operations so far."""

    turns: list[PlainTurn] = field(default_factory=list)
    nodes: dict[int, PlainNode] = field(default_factory=dict)
    path: list[int] = field(default_factory=list)
    notes: list[PlainNote] = field(default_factory=list)
    last_no: int = 0
    branch: int = 0
    open_branch: int = 0
    version: int = 0

    def take_no(self) -> int:
        self.last_no += 1
        return self.last_no

    def add(self, message: dict[str, Any], *, pinned: bool = False) -> PlainTurn:
        turn = PlainTurn(self.take_no(), message, pinned)
        self.turns.append(turn)
        return turn

    def covered(self) -> set[int]:
        return {no for node in self.path for no in self.nodes[node].covered}

    def active(self) -> list[PlainTurn]:
        return [turn for turn in self.live() if turn.no not in self.covered()]

    def live(self) -> list[PlainTurn]:
        return [turn for turn in self.turns if not turn.erased and not turn.abandoned]

    def kept(self) -> list[int]:
        active = {turn.no for turn in self.active()}
        users = [turn.no for turn in self.live() if turn.message["role"] == "user"]
        wanted = {turn.no for turn in self.live() if turn.pinned} | set(users[-1:])
        return sorted(wanted - active)

    def shown_nodes(self) -> list[int]:
        shown: list[int] = []
        for no in reversed(self.path):
            shown.insert(0, no)
            if self.nodes[no].cumulative or len(shown) == 64:
                break
        return shown

    def status(self, turn: PlainTurn) -> tuple[str, int | None]:
        if turn.erased:
            return "erased", None
        if turn.abandoned:
            return "abandoned", None
        for no in self.path:
            if turn.no in self.nodes[no].covered:
                return "compressed", no
        return "active", None

    def coverable(self, keep_recent: int, through: int | None) -> list[int]:
        active = self.active()
        limit = len(active) - keep_recent
        if through is not None:
            limit = min(limit, len([turn for turn in active if turn.no <= through]))
        for cut in range(limit, 0, -1):
            if whole([turn.message for turn in active], cut):
                return [turn.no for turn in active[:cut]]
        return []

    def unjudged(self) -> int | None:
        """The newest node that the context shows, tool_clear did not make and nobody judged."""
        shown = [self.nodes[no] for no in self.shown_nodes()]
        return max((node.no for node in shown if node.outcome is None and not node.cleared), default=None)

    def compress(self, covered: list[int], *, cumulative: bool, cleared: bool = False) -> int:
        no = self.take_no()
        self.version += 1
        self.nodes[no] = PlainNode(no, self.path[-1] if self.path else None, covered, cumulative, cleared)
        self.path.append(no)
        return no

    def erase(self, *, keep_summary: bool) -> int:
        no = self.take_no()
        self.version += 1
        for turn in self.turns:
            turn.erased = True
        if not keep_summary:
            self.path = []
        self.notes = []
        self.branch = self.open_branch = no
        return no

    def node_status(self, node: PlainNode) -> str:
        if node.outcome == "fail":
            return "failed"
        if node.no not in self.path:
            return "abandoned"
        return "compressed" if node.outcome == "pass" else "pending"

    def judge(self, no: int, outcome: str) -> bool:
        """Whether the verdict took the node off the path."""
        self.take_no()
        self.nodes[no].outcome = outcome
        if outcome == "pass" or no not in self.path:
            return False
        self.path = self.path[: self.path.index(no)]
        self.branch = self.take_no()
        self.version += 1
        return True

    def failures(self, covered: list[int]) -> int:
        """Failed nodes that hang from the head and start at the same turn."""
        head = self.path[-1] if self.path else None
        return len(
            [
                node
                for node in self.nodes.values()
                if node.outcome == "fail" and (node.parent, node.covered[0]) == (head, covered[0])
            ]
        )

    def point_of(self, *, node: int | None = None, after: int | None = None, after_turn: int | None = None) -> int | str:
        """The last position to keep, or why there is no way back."""
        if after_turn is not None:
            return after_turn if after_turn in [turn.no for turn in self.live()] else "NotOnActiveLine"
        named = self.nodes.get(node if node is not None else after)
        if named is None:
            return "NodeNotFound"
        if named.no in self.path:
            return named.covered[-1] if after is not None else named.covered[0] - 1
        if node is not None and named.outcome == "fail" and named.covered[0] in [turn.no for turn in self.active()]:
            return named.covered[0] - 1
        return "NotOnActiveLine"

    def revise(self, point: int, note: str | None, *, keep_turns: bool) -> int:
        past = [turn for turn in self.live() if turn.no > point]
        left_from = past[0].no if past else self.last_no + 1
        no = self.branch = self.take_no()
        self.version += 1
        self.path = [node for node in self.path if self.nodes[node].covered[-1] <= point]
        if past and not keep_turns:
            self.open_branch = no
            for turn in past:
                turn.abandoned = True
        self.notes.append(PlainNote(left_from, note, bool(past) and not keep_turns))
        return no

    def hints(self) -> list[str]:
        shown = []
        for index, note in enumerate(self.notes):
            passed = any(later.leaves_turns and later.left_from < note.left_from for later in self.notes[index + 1 :])
            if note.text is not None and not passed:
                shown.append(note.text)
        return shown[-3:]


def whole(messages: list[dict[str, Any]], cut: int) -> bool:
    """Whether a cut tears nothing: every call before it is answered before it, or can never be answered any more."""
    for start in range(cut):
        for call in messages[start].get("tool_calls") or ():
            answer = answer_of(messages, start, call["id"])
            if answer is None and not any(message["role"] == "user" for message in messages[start:]):
                return False
            if answer is not None and answer >= cut:
                return False
    return True


def answer_of(messages: list[dict[str, Any]], start: int, call_id: str) -> int | None:
    """The result of a call: the first with its id, before the next user message and before the id is used again."""
    for index in range(start + 1, len(messages)):
        message = messages[index]
        if message["role"] == "user" or any(call["id"] == call_id for call in message.get("tool_calls") or ()):
            return None
        if message["role"] == "tool" and message["tool_call_id"] == call_id:
            return index
    return None
