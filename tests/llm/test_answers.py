"""Answers are read strictly: what is half said is no answer."""

from __future__ import annotations

import json

import pytest

from pgmem.domain.model import Outcome
from pgmem.errors import ModelAnswerInvalid
from pgmem.llm.answers import read_judgement, read_summary


@pytest.mark.parametrize(
    "content",
    [
        '{"summary": "text"}',
        ' \n{"summary": "text"}\n',
        '```json\n{"summary": "text"}\n```',
        '```\n{"summary": "text"}\n```\n',
        '<think>{"summary": "no"}</think>\n{"summary": "text"}',
    ],
)
def test_one_json_object_is_a_summary(content):
    assert read_summary(content) == "text"


def test_what_is_no_json_is_not_kept_by_the_error():
    with pytest.raises(ModelAnswerInvalid) as caught:
        read_summary("no JSON")

    assert caught.value.__context__ is None


@pytest.mark.parametrize("said", ["a </think> b", "<think>a</think> b"])
def test_a_thought_inside_a_summary_stays(said):
    answer = json.dumps({"summary": said})

    assert read_summary(answer) == said
    assert read_summary(f"<think>a thought</think>{answer}") == said


@pytest.mark.parametrize(
    "content",
    [
        "<think>without an end",
        '<think>without an end {"summary": "text"}',
        "text",
        "",
        '"text"',
        '["text"]',
        "{}",
        '{"summary": null}',
        '{"summary": ["text"]}',
        '{"summary": "text"',
        '{"summary": "text"} and more',
        '{"summary": "one"}{"summary": "two"}',
        '{"summary": "one", "summary": "two"}',
        '{"summary": "text", "outcome": "pass"}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_no_summary(content):
    with pytest.raises(ModelAnswerInvalid):
        read_summary(content)


def test_a_pass_and_a_fail_are_read():
    assert read_judgement('{"reason": "fine", "missing": [], "outcome": "pass"}') == (Outcome.PASS, "fine", ())
    assert read_judgement('{"outcome": "FAIL", "missing": [" the id ", ""], "reason": ""}') == (Outcome.FAIL, None, ("the id",))


def test_what_postgres_cannot_hold_becomes_a_replacement_character():
    read = read_judgement('{"reason": "a\\u0000b", "missing": ["\\ud800"], "outcome": "fail"}')

    assert read == (Outcome.FAIL, "a\ufffdb", ("\ufffd",))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "PASS",
        "PASS but FAIL",
        '{"outcome": "PASS but FAIL", "reason": "x", "missing": []}',
        '{"outcome": "pass", "outcome": "fail", "reason": "x"}',
        '{"outcome": "pass", "reason": "x"}\n{"outcome": "fail", "reason": "x"}',
        '[{"outcome": "pass"}, {"outcome": "fail"}]',
        '{"outcome": ["pass"], "reason": "x"}',
        '{"outcome": true, "reason": "x"}',
        '{"outcome": "unsure", "reason": "x"}',
        '{"outcome": null, "reason": "x"}',
        '{"reason": "x", "missing": []}',
        '{"outcome": "fail", "reason": "", "missing": []}',
        '{"outcome": "fail", "reason": 1}',
        '{"outcome": "fail", "reason": "x", "missing": "id"}',
        '{"outcome": "fail", "reason": "x", "missing": [1]}',
        '{"outcome": "pass", "verdict": "fail", "reason": "x"}',
    ],
)
def test_anything_else_is_no_verdict(content):
    with pytest.raises(ModelAnswerInvalid):
        read_judgement(content)
