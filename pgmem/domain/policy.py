"""When a namespace compacts, what stays verbatim, and how large its memory may get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgmem.domain.model import Strategy
from pgmem.domain.names import shown
from pgmem.errors import InvalidArgument

MOST_TURNS = 1_000_000
MOST_TOKENS = 10_000_000
MOST_SECONDS = 86_400
LEAST_SUMMARY_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A namespace's compaction settings.

    Attributes:
        threshold: active turns at which ``compact()`` acts; it fires at this number, not past it.
        keep_recent: the newest turns that stay verbatim; below the threshold.
        strategy: how ``compact()`` gets its summary.
        max_summary_tokens: the most that one summary may hold, the memory message's heading included. What ``tool_clear``
            makes is the whole memory; summaries of your own that are not cumulative stand one after another.
        max_attempts: how many summaries of the same turns may fail before tool_clear makes the node.

    Raises:
        InvalidArgument: a value is of the wrong type or out of range; it names the value and the range.

    Example:
        >>> Policy(threshold=8, keep_recent=4).max_summary_tokens
        8000
    """

    threshold: int = 20
    keep_recent: int = 5
    strategy: Strategy = Strategy.TOOL_CLEAR
    max_summary_tokens: int = 8_000
    max_attempts: int = 3

    def __post_init__(self) -> None:
        """Checks every value, each against its own range and keep_recent against the threshold."""
        check_number("threshold", self.threshold, least=1, most=MOST_TURNS)
        check_number("keep_recent", self.keep_recent, least=0, most=MOST_TURNS)
        check_number("max_summary_tokens", self.max_summary_tokens, least=LEAST_SUMMARY_TOKENS, most=MOST_TOKENS)
        check_number("max_attempts", self.max_attempts, least=1, most=100)
        object.__setattr__(self, "strategy", check_strategy(self.strategy))
        if self.keep_recent >= self.threshold:
            raise InvalidArgument(
                f"keep_recent is {self.keep_recent} and threshold {self.threshold}: keep_recent must be below it, "
                "or a compaction would have nothing to cover"
            )


def check_number(name: str, value: Any, *, least: int, most: int) -> int:
    """``value``, if it is an integer of that range.

    Raises:
        InvalidArgument: it is not; True, 8.0 and "8" are not integers here.
    """
    if type(value) is not int or not least <= value <= most:
        raise InvalidArgument(f"{name} is {shown(value)}: it must be an integer from {least} to {most}")
    return value


def check_seconds(name: str, value: Any) -> float:
    """``value`` as seconds, if it is a number over 0 and at most a day.

    Raises:
        InvalidArgument: it is not; True, nan and "8" are not numbers here.
    """
    if type(value) not in (int, float) or not 0 < value <= MOST_SECONDS:
        raise InvalidArgument(f"{name} is {shown(value)}: it must be a number over 0, at most {MOST_SECONDS}")
    return float(value)


def check_strategy(value: Any) -> Strategy:
    """``value`` as a strategy that makes a summary by itself.

    Raises:
        InvalidArgument: it is none; a text of the caller's own goes in as ``summary=``.
    """
    if value in (Strategy.TOOL_CLEAR, Strategy.LLM):
        return Strategy(value)
    raise InvalidArgument(f"strategy is {shown(value)}: use 'tool_clear' or 'llm', or give a text as summary=")
