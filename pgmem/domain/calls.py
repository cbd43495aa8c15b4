"""Tool calls and their results: which belong together, which are open, and where a history may be cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgmem.domain.model import Message

OPEN = float("inf")


@dataclass(frozen=True, slots=True)
class Calls:
    """Who answers whom in a run of messages; messages are named by their index.

    Attributes:
        results: for an assistant message with calls, its calls in order as (call id, index of the result or None).
        open: the assistant messages with a call that has no result and no user message after it.
        stray: tool messages that answer no call of this run, or one that a user message interrupted.
    """

    results: dict[int, tuple[tuple[str, int | None], ...]]
    open: frozenset[int]
    stray: frozenset[int]


def match(messages: Sequence[Message]) -> Calls:
    """Pairs calls with results: the newest unanswered call of that id since the last user message wins."""
    waiting: dict[str, int] = {}
    calls: dict[int, dict[str, int | None]] = {}
    stray = set()
    for index, message in enumerate(messages):
        match message["role"]:
            case "assistant" if message.get("tool_calls"):
                calls[index] = {call["id"]: None for call in message["tool_calls"]}
                waiting |= dict.fromkeys(calls[index], index)
            case "tool":
                caller = waiting.pop(message["tool_call_id"], None)
                if caller is None:
                    stray.add(index)
                else:
                    calls[caller][message["tool_call_id"]] = index
            case "user":
                waiting.clear()
    last_user = max((index for index, message in enumerate(messages) if message["role"] == "user"), default=-1)
    is_open = frozenset(caller for caller, answers in calls.items() if caller > last_user and None in answers.values())
    return Calls({caller: tuple(answers.items()) for caller, answers in calls.items()}, is_open, frozenset(stray))


def safe_cut(messages: Sequence[Message], limit: int) -> int:
    """The most messages, up to ``limit``, that can be covered from the start without parting a call from a result.

    An open call stays uncovered; an interrupted one may be covered.

    Example:
        >>> call = {"role": "assistant", "tool_calls": [{"id": "c"}]}
        >>> safe_cut([{"role": "user"}, call, {"role": "tool", "tool_call_id": "c"}], 2)
        1
    """
    found = match(messages)
    ends = {
        caller: OPEN if caller in found.open else max((index for _, index in answers if index is not None), default=caller)
        for caller, answers in found.results.items()
    }
    cut = max(0, min(limit, len(messages)))
    for caller in sorted(ends, reverse=True):
        if caller < cut <= ends[caller]:
            cut = caller
    return cut
