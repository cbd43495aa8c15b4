"""What a replay measures, and what comes out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median


@dataclass(frozen=True, slots=True)
class NoSummary:
    """Why a model gave no summary that could stand.

    Attributes:
        error: the kind of the error.
        times: how often it was so.
        first: what it said the first time.
    """

    error: str
    times: int
    first: str


@dataclass(slots=True)
class Figures:
    """The sums of a replay, while it runs. Tokens are without the caller's system prompt.

    Attributes:
        conversations: how many began.
        turns: added.
        nodes: made.
        contexts: compiled.
        over_budget: contexts that could not be made within the budget; nothing else counts them.
        full_tokens: of the whole history before each assistant message, summed over the contexts.
        sent_tokens: of the contexts.
        largest_tokens: of the largest context.
        no_summaries: why the model gave no summary that could stand, by the kind of the error; the turns stayed as they were.
        model_calls: summaries that a model wrote and that became nodes.
        model_input_tokens: what its server counted as read for those nodes.
        model_output_tokens: what it counted as written for them.
        append_seconds: how long each append took.
        context_seconds: how long each context took.
        compact_seconds: how long each compaction took that made a node.
    """

    conversations: int = 0
    turns: int = 0
    nodes: int = 0
    contexts: int = 0
    over_budget: int = 0
    full_tokens: int = 0
    sent_tokens: int = 0
    largest_tokens: int = 0
    no_summaries: dict[str, NoSummary] = field(default_factory=dict)
    model_calls: int = 0
    model_input_tokens: int = 0
    model_output_tokens: int = 0
    append_seconds: list[float] = field(default_factory=list)
    context_seconds: list[float] = field(default_factory=list)
    compact_seconds: list[float] = field(default_factory=list)

    def add_context(self, *, sent_tokens: int, full_tokens: int) -> None:
        """Counts one context."""
        self.contexts += 1
        self.sent_tokens += sent_tokens
        self.full_tokens += full_tokens
        self.largest_tokens = max(self.largest_tokens, sent_tokens)

    def add_usage(self, *, calls: int, input_tokens: int, output_tokens: int) -> None:
        """Counts what a model did for one conversation."""
        self.model_calls += calls
        self.model_input_tokens += input_tokens
        self.model_output_tokens += output_tokens

    def add_no_summary(self, cause: BaseException) -> None:
        """Counts a compaction without a summary."""
        error = type(cause).__name__
        known = self.no_summaries.get(error, NoSummary(error, 0, str(cause)))
        self.no_summaries[error] = replace(known, times=known.times + 1)

    @property
    def reduction(self) -> float:
        """The share of the full history that was not sent."""
        return 1 - self.sent_tokens / self.full_tokens if self.full_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, in milliseconds; None when it never happened."""

    median: float | None
    p95: float | None


def times(seconds: Sequence[float]) -> Times:
    """The median and the 95th percentile (nearest rank) of ``seconds``.

    Example:
        >>> times([0.001, 0.003, 0.002])
        Times(median=2.0, p95=3.0)
    """
    if not seconds:
        return Times(None, None)
    ordered = sorted(seconds)
    rank = math.ceil(len(ordered) * 95 / 100)
    return Times(_milliseconds(median(ordered)), _milliseconds(ordered[rank - 1]))


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Adds to ``into`` how long the body took, unless it raised."""
    began = time.perf_counter()
    yield
    into.append(time.perf_counter() - began)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
