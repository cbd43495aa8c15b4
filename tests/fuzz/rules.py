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


@dataclass
class PlainNode:
    no: int
    parent: int | None
    covered: list[int]
    cumulative: bool


@dataclass
class PlainTree:
    """What a tree should be after the operations so far."""

    turns: list[PlainTurn] = field(default_factory=list)
    nodes: dict[int, PlainNode] = field(default_factory=dict)
    path: list[int] = field(default_factory=list)
    last_no: int = 0
    branch: int = 0
    open_branch: int = 0

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
        return [turn for turn in self.turns if not turn.erased and turn.no not in self.covered()]

    def live(self) -> list[PlainTurn]:
        return [turn for turn in self.turns if not turn.erased]

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

    def compress(self, covered: list[int], *, cumulative: bool) -> int:
        no = self.take_no()
        self.nodes[no] = PlainNode(no, self.path[-1] if self.path else None, covered, cumulative)
        self.path.append(no)
        return no

    def erase(self, *, keep_summary: bool) -> int:
        no = self.take_no()
        for turn in self.turns:
            turn.erased = True
        if not keep_summary:
            self.path = []
        self.branch = self.open_branch = no
        return no


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
