"""What a model is told: everything that it needs, and nothing that is not there."""

from __future__ import annotations

import pytest

from pgmem.llm.pieces import pieces
from pgmem.llm.prompts import asks_for, judge_prompt, summary_prompt
from tests.llm.support import TALK, asking, assistant, blocks, judging, result, turns, user


def shown(request, **fields):
    prompt = summary_prompt(request, pieces(request.memory, request.turns, request.count), **fields)
    return prompt.task + prompt.data


def test_a_summary_prompt_shows_goal_memory_turns_attempts_and_failures_in_that_order():
    request = asking(memory="Ana decides.", goal="Deploy", hints=("npm hangs",), failures=("lost the build number",))

    found = [(name, text) for name, _, text in blocks(shown(request))]

    assert found[:3] == [("goal", "Deploy"), ("memory", "Ana decides."), ("turn", TALK[0].content)]
    assert found[-2:] == [("attempt", "npm hangs"), ("failed", "lost the build number")]


def test_turns_are_shown_with_number_role_trust_tool_name_and_ids():
    found = [(name, attributes) for name, attributes, _ in blocks(shown(asking()))]

    assert found == [
        ("turn", {"no": "1", "role": "user", "trust": "trusted"}),
        ("call", {"turn": "2", "role": "assistant", "trust": "agent", "id": "call_1", "name": "deploy"}),
        ("turn", {"no": "3", "role": "tool", "trust": "untrusted", "name": "deploy", "answers": "call_1"}),
        ("turn", {"no": "4", "role": "assistant", "trust": "agent"}),
    ]


def test_nothing_is_shown_for_what_is_not_there():
    prompt = shown(asking(memory=" \n", goal="", hints=("",)))

    assert {name for name, _, _ in blocks(prompt)} == {"turn", "call"}
    assert "None" not in prompt
    assert "null" not in prompt
    assert "left behind" not in prompt
    assert "failed;" not in prompt


def test_a_turn_without_text_is_said_to_be_empty():
    assert [text for _, _, text in blocks(shown(asking(turns(user(""), assistant("ok")))))] == ["(empty)", "ok"]


def test_the_newest_three_attempts_and_failures_are_shown():
    request = asking(hints=("newest", "third", "second", "oldest"), failures=("1", "2", "3", "4"))

    found = [(name, text) for name, _, text in blocks(shown(request)) if name in ("attempt", "failed")]

    assert found == [*(("attempt", hint) for hint in request.hints[:3]), *(("failed", told) for told in "234")]


def test_the_limit_is_told_in_tokens():
    assert "at most 1234 tokens" in shown(asking(max_summary_tokens=1234))


def test_a_picture_is_shown_by_its_size_and_text_beside_it_whole():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}

    prompt = shown(asking(turns(user([{"type": "text", "text": "look"}, picture]))))

    assert "look\n" in prompt
    assert "[pgmem: 5022 characters that are no text]" in prompt
    assert "AAAA" not in prompt


def test_text_that_no_request_can_hold_becomes_a_replacement_character():
    prompt = shown(asking(turns(user("a\0b\ud83d"), result("c", "x"))))

    assert "a\ufffdb\ufffd" in prompt
    prompt.encode()


def test_a_judge_prompt_shows_goal_memory_turns_and_summary():
    request = judging("Staging runs.", memory="Ana decides.", goal="Deploy")

    prompt = judge_prompt(request, pieces(request.memory, request.turns, request.count))

    names = [name for name, _, _ in blocks(prompt.task + prompt.data)]
    assert names == ["goal", "memory", "turn", "call", "turn", "turn", "summary"]
    assert "that no trusted turn" in prompt.task
    assert "part 1 of" not in prompt.task


def test_a_prompt_is_known_by_its_task():
    assert asks_for(summary_prompt(asking(), ()).task) == "summary"
    assert asks_for(judge_prompt(judging(), ()).task) == "judgement"
    assert asks_for("You are a helpful assistant.") is None


@pytest.mark.parametrize("prompt", [summary_prompt(asking(), ()), judge_prompt(judging(), ())])
def test_a_schema_is_one_that_strict_servers_take(prompt):
    assert prompt.schema["additionalProperties"] is False
    assert sorted(prompt.schema["required"]) == sorted(prompt.schema["properties"])
