"""Who judges a summary: ``coverage``, our models, async functions of the user's, or several; and what a judgement must be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgmem.domain.asks import Judge, Judgement, JudgeRequest, Usage
from pgmem.domain.coverage import coverage
from pgmem.domain.model import Outcome
from pgmem.domain.names import shown
from pgmem.domain.plans import check_text
from pgmem.errors import InvalidArgument
from pgmem.llm.strategies import awaited, text_or_none, usage_or_none

MOST_NAME = 256
"""Characters of a judge's name at most."""


def judge_of(judge: Any) -> Judge:
    """The judge that ``judge`` stands for: ``"coverage"`` (or None), a model's ``judge``, or the async function itself.

    Of several, in a list or a tuple, the first that says fail decides; so ``["coverage", model]`` asks the model only about
    summaries that kept what can be checked without one.

    Raises:
        InvalidArgument: it is nothing of the kind.
    """
    if judge is None or judge == "coverage":
        return _by_coverage
    if isinstance(judge, list | tuple) and judge:
        return _first_to_fail([judge_of(one) for one in judge])
    asked: Judge = getattr(judge, "judge", judge)
    if not callable(asked) or isinstance(judge, type):
        raise InvalidArgument(
            f"the judge is {shown(judge)}: give 'coverage', a pgmem.OpenAIModel, an async function, or a list of these that is "
            "not empty"
        )
    return asked


async def judged(judge: Judge, request: JudgeRequest) -> Judgement:
    """What a judge says, once it is sure to be a judgement that can be stored.

    A NUL or a lone surrogate in its texts becomes U+FFFD.

    Raises:
        InvalidArgument: it is none, or has a part of another type.
    """
    said = await awaited(judge(request), "the judge")
    if not isinstance(said, Judgement):
        raise InvalidArgument(f"a judge answers with a pgmem.Judgement, not with {type(said).__name__}")
    if said.outcome not in tuple(Outcome):
        raise InvalidArgument(f"the outcome is {shown(said.outcome)}: a judge says pass or fail")
    if not isinstance(said.missing, list | tuple) or not all(isinstance(item, str) for item in said.missing):
        raise InvalidArgument(f"missing is {shown(said.missing)}: give a list of texts")
    return replace(
        said,
        outcome=Outcome(said.outcome),
        reason=text_or_none("reason", said.reason),
        missing=tuple(text for item in said.missing if (text := text_or_none("missing", item))),
        judge=check_text("judge", said.judge, most=MOST_NAME),
        model=text_or_none("model", said.model),
        prompt_version=text_or_none("prompt_version", said.prompt_version),
        usage=usage_or_none(said.usage),
    )


async def _by_coverage(request: JudgeRequest) -> Judgement:
    # off the event loop: it reads megabytes
    return await asyncio.to_thread(coverage, request)


def _first_to_fail(judges: Sequence[Judge]) -> Judge:
    async def ask(request: JudgeRequest) -> Judgement:
        said: list[Judgement] = []
        for judge in judges:
            said.append(await judged(judge, request))
            if said[-1].outcome is Outcome.FAIL:
                break
        return replace(said[-1], judge=_names(said), usage=_all_usage(said))

    return ask


def _names(said: Sequence[Judgement]) -> str:
    """Who decided: who said fail, or all whose pass it took."""
    if said[-1].outcome is Outcome.FAIL:
        return said[-1].judge
    return ", ".join(dict.fromkeys(one.judge for one in said))[:MOST_NAME]


def _all_usage(said: Sequence[Judgement]) -> Usage | None:
    counted = [one.usage for one in said if one.usage is not None]
    return sum(counted, Usage()) if counted else None
