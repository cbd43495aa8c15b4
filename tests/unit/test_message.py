"""A message is kept so that it comes back equal, and what Postgres cannot hold never reaches it."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pgmem.domain.message import StoredMessage, decode, encode
from pgmem.domain.tokens import call_name_and_arguments
from pgmem.errors import InvalidMessage, TurnTooLarge

# every character, lone surrogates included
texts = st.text(st.characters(codec=None), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
fields = st.dictionaries(
    texts.filter(lambda name: name not in ("role", "content", "tool_calls", "tool_call_id")), values, max_size=4
)
contents = texts | st.lists(st.dictionaries(texts, values, max_size=3), max_size=3)


@given(contents, fields)
def test_any_message_comes_back_equal(content, rest):
    message = {"role": "user", "content": content} | rest

    assert decode(encode(message, max_bytes=10**6)) == message


@given(contents, fields)
def test_no_column_but_raw_holds_an_escape_that_breaks_a_query(content, rest):
    stored = encode({"role": "user", "content": content} | rest, max_bytes=10**6)

    for column in (stored.content, stored.extra, stored.raw):
        assert column is None or not any(character == "\0" or "\ud800" <= character <= "\udfff" for character in column)
    if stored.extra is not None:
        assert "\0" not in json.dumps(json.loads(stored.extra), ensure_ascii=False)


def test_plain_text_needs_one_column():
    assert encode({"role": "user", "content": "hi"}, max_bytes=100) == StoredMessage("user", "hi", None, None)


def test_a_missing_content_and_a_null_one_come_back_as_they_were():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for message in ({"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": None, "tool_calls": [call]}):
        assert decode(encode(message, max_bytes=200)) == message


def test_the_limit_counts_bytes_not_characters():
    encode({"role": "user", "content": "e" * 100}, max_bytes=150)

    with pytest.raises(TurnTooLarge, match="bytes"):
        encode({"role": "user", "content": "é" * 100}, max_bytes=150)


@pytest.mark.parametrize("bad", [None, [], "x", 5, {"content": "x"}, {"role": "user", "content": {"a": 1}}])
def test_what_is_no_message_is_refused(bad):
    with pytest.raises(InvalidMessage):
        encode(bad, max_bytes=100)


def test_an_error_says_where_in_the_message_the_fault_is():
    with pytest.raises(InvalidMessage) as caught:
        encode({"role": "user", "content": "x", "meta": {"list": [1, {"bad": {1, 2}}]}}, max_bytes=1000)

    assert caught.value.path == "$.meta.list[1].bad"


def test_a_list_that_holds_itself_is_refused():
    value: list = []
    value.append(value)

    with pytest.raises(InvalidMessage, match="nested"):
        encode({"role": "user", "content": "x", "meta": value}, max_bytes=10_000)


@pytest.mark.parametrize("small", [1, 1.5, None, True, "", [], {}])
def test_every_value_counts_towards_the_limit(small):
    encode({"role": "user", "content": "x", "meta": [small] * 50}, max_bytes=500)

    with pytest.raises(TurnTooLarge):
        encode({"role": "user", "content": "x", "meta": [small] * 60}, max_bytes=500)


def test_numbers_count_as_long_as_they_are_written():
    with pytest.raises(TurnTooLarge):
        encode({"role": "user", "content": "x", "meta": 10**500}, max_bytes=500)


def test_a_message_that_is_far_over_the_limit_is_refused_without_being_walked():
    class Unread(list):
        def __iter__(self):
            raise AssertionError("its items are looked at")

    with pytest.raises(TurnTooLarge):
        encode({"role": "user", "content": "x", "meta": Unread([0] * 1000)}, max_bytes=500)


@pytest.mark.parametrize(
    ("call", "path"),
    [
        ({"id": "a", "type": "custom", "function": {"name": "f", "arguments": ""}}, "$.tool_calls[0].custom"),
        ({"id": "a", "type": "function", "custom": {"name": "f", "input": ""}}, "$.tool_calls[0].function"),
        ({"id": "a", "custom": {"name": "f", "input": ""}}, "$.tool_calls[0].function"),
    ],
)
def test_a_call_without_the_body_of_its_type_is_refused(call, path):
    with pytest.raises(InvalidMessage) as caught:
        encode({"role": "assistant", "tool_calls": [call]}, max_bytes=1000)

    assert caught.value.path == path


def test_what_else_a_call_holds_than_the_body_of_its_type_is_not_read():
    custom = {"id": "a", "type": "custom", "custom": {"name": "sh", "input": "ls"}, "function": "junk"}
    function = {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}, "custom": 5}
    message = {"role": "assistant", "tool_calls": [custom, function]}

    assert decode(encode(message, max_bytes=1000)) == message
    assert [call_name_and_arguments(call) for call in (custom, function)] == [("sh", "ls"), ("f", "{}")]


@pytest.mark.parametrize("text", ["\0", "\ud83d", "\\u0000", "\\\0"])
def test_a_deep_message_with_what_no_column_holds_is_kept(text):
    value: object = text
    for _ in range(480):
        value = {text: value} if text == "\0" else [value]
    message = {"role": "user", "content": "x", "meta": value}

    stored = encode(message, max_bytes=10**6)

    assert decode(stored) == message
    assert "\\u0000" not in (stored.extra or "") or text == "\\u0000"
