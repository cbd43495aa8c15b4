"""Conversations out of a JSONL file."""

import io
import json

import pytest

from pgmem.cli import conversations
from pgmem.cli.conversations import BadLine, Conversation, check_text_file, count_lines, read
from pgmem.errors import InvalidArgument

USER = {"role": "user", "content": "hi"}


def lines(*texts):
    return list(read(io.BytesIO(b"\n".join(texts)), max_turn_bytes=1000))


def test_a_first_system_message_is_the_prompt_and_no_turn():
    (found,) = lines(json.dumps({"messages": [{"role": "system", "content": "Be kind."}, USER], "reward": 1}).encode())

    assert found.system == "Be kind."
    assert list(found.turns()) == [(1, USER)]


def test_a_later_system_message_is_a_turn():
    later = {"role": "system", "content": "note"}
    (found,) = lines(json.dumps({"messages": [USER, later]}).encode())

    assert found.system is None
    assert list(found.turns()) == [(0, USER), (1, later)]


def test_blank_lines_count_and_are_passed_over():
    good = json.dumps({"messages": [USER]}).encode()

    assert [found.number for found in lines(b"", good, b"  \r", good, b"")] == [1, 3]


def test_a_byte_order_mark_is_not_part_of_the_first_line():
    (found,) = lines(b"\xef\xbb\xbf" + json.dumps({"messages": [USER]}).encode())

    assert isinstance(found, Conversation)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "not JSON"),
        (b'{"messages": []}}', "not JSON"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"messages": [{"role": "user", "content": "a", "n": ' + b"9" * 5000 + b"}]}", "not JSON"),
        (b"[]", "not an object with messages, but a list"),
        (b"{}", "no list of messages"),
        (b'{"messages": {}}', "messages is of type dict, not a list"),
        (b'{"messages": ["hi"]}', "messages[0]: a message is a dict"),
        (b'{"messages": [{"role": "user", "content": "a"}, {"role": "robot"}]}', "messages[1]: the role 'robot'"),
        (b'{"messages": [{"role": "tool", "content": "a"}]}', "messages[0]: a tool message needs tool_call_id"),
        (b'{"messages": [{"role": "user", "content": "a", "n": NaN}]}', "messages[0]: $.n is nan"),
        (
            json.dumps({"messages": [{"role": "user", "content": "a" * 1001}]}).encode(),
            "messages[0]: the message has over 1000 bytes, the most for one",
        ),
    ],
)
def test_a_line_that_cannot_be_played_is_named_with_its_reason_and_the_next_is_read(text, reason):
    bad, good = lines(text, json.dumps({"messages": [USER]}).encode())

    assert isinstance(bad, BadLine)
    assert bad.number == 0
    assert reason in bad.reason
    assert good.number == 1


def test_a_line_that_is_too_long_is_skipped_without_its_rest_being_taken_for_lines(monkeypatch):
    monkeypatch.setattr(conversations, "MOST_LINE_BYTES", 64)
    good = json.dumps({"messages": [USER]}).encode()
    assert len(good) < 64

    found = lines(b"x" * 300, good, b"y" * 64, good)

    assert [type(line) for line in found] == [BadLine, Conversation, BadLine, Conversation]
    assert [line.number for line in found] == [0, 1, 2, 3]


def test_a_binary_file_is_refused_and_a_text_file_is_left_where_it_was(tmp_path):
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "text").write_bytes(b"{}\n")

    with (tmp_path / "binary").open("rb") as file, pytest.raises(InvalidArgument, match="binary"):
        check_text_file(file)
    with (tmp_path / "text").open("rb") as file:
        check_text_file(file)
        assert file.read() == b"{}\n"


@pytest.mark.parametrize(("content", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)])
def test_lines_are_counted_as_they_are_read(content, lines):
    file = io.BytesIO(content)

    assert count_lines(file) == lines
    assert file.tell() == 0
