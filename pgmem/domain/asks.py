"""What a model is asked and what it answers: a summary of turns, a judgement of a summary."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pgmem.domain.model import Node, Outcome, Turn
from pgmem.domain.tokens import TokenCounter, count_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a provider counted.

    Attributes:
        input_tokens: tokens that it read.
        output_tokens: tokens that it wrote.
    """

    input_tokens: int = 0
    output_tokens: int = 0

    def to_json(self) -> str:
        """As it is stored."""
        return json.dumps({"input_tokens": self.input_tokens, "output_tokens": self.output_tokens})

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(input_tokens=self.input_tokens + other.input_tokens, output_tokens=self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What a Compress asks a strategy for.

    Attributes:
        turns: the turns to cover, oldest first.
        memory: the memory that the context shows; empty at first.
        goal: what the session is for, or None.
        hints: notes of attempts that were left behind, newest first.
        failures: what a judge said of earlier summaries of these turns, oldest first.
        max_summary_tokens: the most that the summary may have.
        count: tokens of a text.
    """

    turns: tuple[Turn, ...]
    memory: str = ""
    goal: str | None = None
    hints: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    max_summary_tokens: int = 8_000
    count: TokenCounter = count_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a strategy answers; a plain text does as well.

    Attributes:
        text: the updated memory: what was known and what the turns add.
        model: the model that wrote it, or None.
        prompt_version: the prompt that asked for it, or None.
        usage: what the provider counted, or None.
    """

    text: str
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """What Maintain asks a judge.

    Attributes:
        node: the node, with the summary to judge.
        turns: the turns that it covers, oldest first.
        memory: the memory that went in.
        goal: what the session is for, or None.
        count: tokens of a text.
    """

    node: Node
    turns: tuple[Turn, ...]
    memory: str = ""
    goal: str | None = None
    count: TokenCounter = count_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a judge answers.

    Attributes:
        outcome: pass or fail.
        reason: why, in the judge's words.
        missing: what the summary lacks or has wrong, each a short text.
        judge: who judged: ``llm``, ``coverage``, or a name of your own.
        model: the model that judged, or None.
        prompt_version: the prompt that asked for it, or None.
        usage: what the provider counted, or None.
    """

    outcome: Outcome
    reason: str | None = None
    missing: tuple[str, ...] = ()
    judge: str = "custom"
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage | None = None


Summariser = Callable[[SummaryRequest], Awaitable[str | Summary]]
"""Makes a summary: an async function."""

Judge = Callable[[JudgeRequest], Awaitable[Judgement]]
"""Judges a summary: an async function."""
