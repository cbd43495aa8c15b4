"""A compiled context is valid for every provider, whatever the history."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from pgmem.domain.context import INTERRUPTED, NOT_SHOWN, render
from pgmem.domain.model import Turn
from pgmem.domain.providers import GOES_ON, IMAGE, to_anthropic, to_responses
from tests.support.talk import assistant, calls, fault_of_anthropic, fault_of_provider, result, user

ids = st.sampled_from(["c1", "c 2", "ü" * 70, ""]).map(lambda text: text or "0")
texts = st.sampled_from(["", " ", "hello", "[pgmem: x]"])
messages = st.one_of(
    texts.map(user),
    texts.map(assistant),
    texts.map(lambda text: {"role": "system", "content": text}),
    st.builds(
        lambda names, arguments: calls(*names, arguments=arguments),
        st.lists(ids, min_size=1, max_size=3, unique=True),
        st.sampled_from(['{"a": 1}', "", "[1]", "not json", "null", "[" * 100_000]),
    ),
    st.builds(result, ids, texts),
    st.just(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}, {"type": "text", "text": ""}]}
    ),
)


def turns(history):
    return [Turn(no, 0, message, False, 1, None, datetime.now(UTC)) for no, message in enumerate(history, start=1)]


@settings(max_examples=500)
@given(st.lists(messages, max_size=5), st.lists(messages, max_size=12))
def test_any_history_renders_valid_for_every_provider(kept, active):
    rendered = [
        {"role": "system", "content": "sys"},
        *render(turns(kept), missing=NOT_SHOWN),
        *render(turns(active), missing=INTERRUPTED),
    ]

    assert fault_of_provider(rendered) is None
    assert fault_of_anthropic(to_anthropic(rendered)) is None
    items = to_responses(rendered)
    made = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert sorted(made) == sorted(item["call_id"] for item in items if item.get("type") == "function_call_output")


@given(st.lists(messages, max_size=12))
def test_what_was_said_is_verbatim_and_in_order(history):
    rendered = render(turns(history), missing=INTERRUPTED)

    said = [message for message in history if message["role"] in ("user", "system") or not message.get("tool_calls", True)]
    shown = [message for message in rendered if message in said]
    assert shown == [message for message in said if message in shown]
    assert all(message in rendered for message in history if message["role"] != "tool")


CUSTOM = {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}}]}
URL = "https://x/y.png"


def image(value):
    return {"type": "image_url", "image_url": value}


def with_parts(role, *parts):
    return {"role": role, "content": list(parts)}


def test_a_custom_call_and_its_result_are_custom_items_of_responses():
    assert to_responses([CUSTOM, result("a", "x.txt"), calls("b"), result("b")]) == [
        {"type": "custom_tool_call", "call_id": "a", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "a", "output": "x.txt"},
        {"type": "function_call", "call_id": "b", "name": "look_up", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "b", "output": "done"},
    ]


def test_an_id_that_a_custom_call_and_then_a_function_call_has_is_answered_by_kind():
    items = to_responses([CUSTOM, result("a"), calls("a"), result("a")])

    assert [item["type"] for item in items[1::2]] == ["custom_tool_call_output", "function_call_output"]


@pytest.mark.parametrize("value", [URL, {"url": URL}, {"url": URL, "detail": "low"}])
def test_an_image_is_its_url_however_it_is_given(value):
    message = with_parts("user", image(value))

    assert to_anthropic([message])["messages"][0]["content"] == [{"type": "image", "source": {"type": "url", "url": URL}}]
    assert to_responses([message])[0]["content"] == [{"type": "input_image", "image_url": URL}]


@pytest.mark.parametrize("value", [None, 5, [], {}, {"url": None}, [URL]])
def test_an_image_without_a_url_becomes_its_json(value):
    message = with_parts("user", image(value))
    text = json.dumps(image(value))

    assert to_anthropic([message])["messages"][0]["content"] == [{"type": "text", "text": text}]
    assert to_responses([message])[0]["content"] == [{"type": "input_text", "text": text}]


def test_an_image_that_the_assistant_said_becomes_its_json():
    message = with_parts("assistant", image({"url": URL}))
    text = json.dumps(image({"url": URL}))

    assert to_anthropic([message])["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": GOES_ON}]},
        {"role": "assistant", "content": [{"type": "text", "text": text}]},
    ]
    assert to_responses([message])[0]["content"] == [{"type": "output_text", "text": text}]


@pytest.mark.parametrize(
    "head", ["data:image/png;base64,", "data:image/png;charset=utf8;base64,", "DATA:image/png;a=b;c=d;BASE64,"]
)
def test_a_data_url_is_a_base64_source_whatever_its_parameters(head):
    request = to_anthropic([with_parts("user", image({"url": head + "iVBO"}))])

    source = {"type": "base64", "media_type": "image/png", "data": "iVBO"}
    assert request["messages"][0]["content"] == [{"type": "image", "source": source}]


def test_an_image_in_a_tool_result_is_only_named_to_responses():
    parts = [{"type": "text", "text": "the plan"}, image({"url": "data:image/png;base64," + "iVBO" * 1000})]

    items = to_responses([calls("a"), {"role": "tool", "tool_call_id": "a", "content": parts}])

    assert items[1]["output"] == f"the plan\n{IMAGE}"


def test_a_last_message_of_the_assistant_ends_in_no_white_space_for_anthropic():
    said = [user("hi"), assistant("one \n"), user("go on"), assistant("two \n")]

    turns = to_anthropic(said)["messages"]

    assert [turn["content"][0]["text"] for turn in turns] == ["hi", "one \n", "go on", "two"]
