"""Reading what a model wrote: strictly, so that nothing half said counts as an answer."""

from __future__ import annotations

import json
import re
from typing import Any

from pgmem.domain.message import storable
from pgmem.domain.model import Outcome
from pgmem.errors import ModelAnswerInvalid

Said = tuple[Outcome, str | None, tuple[str, ...]]
"""A judge's outcome, reason, and what is missing."""

_CODE_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


def read_summary(content: str) -> str:
    """The summary of an answer; it may be empty.

    Raises:
        ModelAnswerInvalid: the answer is not one JSON object with the text ``summary`` and nothing else.
    """
    answer = _json_object(content, {"summary"})
    summary = answer.get("summary")
    if not isinstance(summary, str):
        raise ModelAnswerInvalid('the answer is not one JSON object of the form {"summary": "<text>"}')
    return summary


def read_judgement(content: str) -> Said:
    """The outcome, the reason and what is missing.

    Raises:
        ModelAnswerInvalid: the answer is not one JSON object with one outcome, ``pass`` or ``fail``, a failure without a word on
            why included.
    """
    answer = _json_object(content, {"outcome", "reason", "missing"})
    outcome, reason, missing = answer.get("outcome"), answer.get("reason"), answer.get("missing") or []
    if not isinstance(outcome, str) or outcome.strip().lower() not in tuple(Outcome):
        raise ModelAnswerInvalid('"outcome" is not one of "pass" and "fail"')
    if not (reason is None or isinstance(reason, str)):
        raise ModelAnswerInvalid('"reason" is not a text')
    if not isinstance(missing, list) or not all(isinstance(item, str) for item in missing):
        raise ModelAnswerInvalid('"missing" is not a list of texts')
    said = storable(reason or "").strip() or None
    lacking = tuple(storable(item).strip() for item in missing if item.strip())
    if outcome.strip().lower() == Outcome.FAIL and not (said or lacking):
        raise ModelAnswerInvalid('the outcome is "fail", with no reason and nothing missing')
    return Outcome(outcome.strip().lower()), said, lacking


def _json_object(content: str, known: set[str]) -> dict[str, Any]:
    text = _without_thought(content.strip())
    fenced = _CODE_FENCE.fullmatch(text)
    answer = _parsed(fenced[1] if fenced else text)
    if not isinstance(answer, dict):
        raise ModelAnswerInvalid("the answer is not one JSON object")
    if not answer.keys() <= known:
        keys = " and ".join(f'"{key}"' for key in sorted(known))
        raise ModelAnswerInvalid(f"the answer is not one JSON object with {keys} and nothing else")
    return answer


def _parsed(text: str) -> Any:
    """What the JSON says; None when it is none, since the parser's own error would keep the whole text."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return None


def _without_thought(text: str) -> str:
    """What follows a ``<think>`` block at the beginning; the text itself when there is none."""
    _, ended, after = text.partition("</think>")
    return after.strip() if ended and text.startswith("<think>") else text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key stands twice."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)
