"""A compiled context is valid for every provider, whatever the history."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis.strategies as st
from hypothesis import given, settings

from pgmem.domain.context import INTERRUPTED, NOT_SHOWN, render
from pgmem.domain.model import Turn
from pgmem.domain.providers import to_anthropic, to_responses
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
