"""Who makes a summary: our models, or async functions of the user's; and what each summary must keep to."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

from pgmem.domain.asks import Summariser, Summary, SummaryRequest, Usage
from pgmem.domain.context import escaped
from pgmem.domain.message import storable
from pgmem.domain.names import shown
from pgmem.domain.tokens import TokenCounter
from pgmem.errors import EmptySummary, InvalidArgument, SummaryEcho, SummaryTooLong

ECHO_FROM_TOKENS = 64
"""Sources smaller than this may have a summary that is longer than they are."""

MOST_COUNTED = 2**53
"""A provider's count beyond this is none: JSON readers would round it."""


def summariser_of(model: Any) -> Summariser | None:
    """The strategy that ``model`` stands for: a model's ``summarise``, or the async function itself; None for None.

    Raises:
        InvalidArgument: it is nothing of the kind.
    """
    if model is None:
        return None
    asked: Summariser = getattr(model, "summarise", model)
    if not callable(asked) or isinstance(model, type):
        raise InvalidArgument(f"summary_model is of type {type(model).__name__}: give a pgmem.OpenAIModel or an async function")
    return asked


def checked(summary: object, request: SummaryRequest) -> Summary:
    """``summary`` as a Summary, if it can stand for the request's turns.

    A NUL or a lone surrogate in it becomes U+FFFD.

    Args:
        summary: what a strategy answered, a text or a Summary.
        request: what it was asked.

    Raises:
        InvalidArgument: it is neither, or has a part of another type.
        EmptySummary: it says nothing.
        SummaryTooLong: it is over ``max_summary_tokens``, as the memory message shows it.
        SummaryEcho: it is longer than the memory and the turns together.
    """
    given = _typed(summary)
    sources = request.count(request.memory) + sum(turn.tokens for turn in request.turns)
    text = checked_text(given.text, limit=request.max_summary_tokens, source_tokens=sources, count=request.count)
    return replace(given, text=text)


def checked_text(text: str, *, limit: int, source_tokens: int, count: TokenCounter) -> str:
    """``text`` made storable, if it says something, fits in ``limit`` and is no longer than what it was made from.

    Raises:
        EmptySummary: it says nothing.
        SummaryTooLong: it is over ``limit`` tokens, as the memory message shows it.
        SummaryEcho: it has more than ``source_tokens``, when those are 64 or more.
    """
    text = storable(text)
    if not text.strip():
        raise EmptySummary("the summary is empty: a node needs a text that stands for its turns")
    tokens = count(escaped(text))
    if tokens > limit:
        raise SummaryTooLong(f"the summary has {tokens} tokens and {limit} is the most: it must be shorter")
    if source_tokens >= ECHO_FROM_TOKENS and tokens > source_tokens:
        raise SummaryEcho(f"the summary has {tokens} tokens and its sources have {source_tokens}: it must be shorter than they are")
    return text


def _typed(summary: object) -> Summary:
    if isinstance(summary, str):
        return Summary(text=summary)
    if not isinstance(summary, Summary):
        raise InvalidArgument(f"the strategy gave a {type(summary).__name__}: it must give a text or a pgmem.Summary")
    if not isinstance(summary.text, str):
        raise InvalidArgument(f"the summary's text is of type {type(summary.text).__name__}: it must be a text")
    return replace(
        summary,
        model=text_or_none("model", summary.model),
        prompt_version=text_or_none("prompt_version", summary.prompt_version),
        usage=usage_or_none(summary.usage),
    )


def is_count(value: object) -> bool:
    """Whether ``value`` is a whole number that can be a count of tokens; True is none."""
    return type(value) is int and 0 <= value <= MOST_COUNTED


def text_or_none(field: str, value: object) -> str | None:
    """``value`` made storable, if it is a text or None.

    Raises:
        InvalidArgument: it is neither.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{field} is of type {type(value).__name__}: it must be a text or None")
    return storable(value)


def usage_or_none(value: object) -> Usage | None:
    """``value``, if it is a Usage that can be stored and summed, or None.

    Raises:
        InvalidArgument: it is neither.
    """
    if value is None:
        return None
    if not isinstance(value, Usage) or not all(map(is_count, (value.input_tokens, value.output_tokens))):
        raise InvalidArgument(f"usage is {shown(value)}: it must be a pgmem.Usage of two whole numbers, or None")
    return value


async def awaited(answer: object, who: str) -> object:
    """What a user's function answers, once awaited.

    Raises:
        InvalidArgument: the function was no async one.
    """
    if not inspect.isawaitable(answer):
        raise InvalidArgument(f"{who} gave a {type(answer).__name__} at once: it must be an async function, `async def`")
    return await answer
