"""How large text is, in tokens, by a counter that the user may replace."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pgmem.domain.model import Message
from pgmem.domain.policy import check_number
from pgmem.errors import InvalidArgument

TokenCounter = Callable[[str], int]
"""Tokens of a text; must be deterministic, and at least 0."""

BYTES_PER_TOKEN = 4

MOST_TEXT_TOKENS = 2**31 - 1
"""What the column holds."""


def count_tokens(text: str) -> int:
    """Tokens of ``text`` at four UTF-8 bytes a token, rounded up; a lone surrogate counts three bytes.

    Example:
        >>> count_tokens("hello")
        2
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def checked_counter(count: object) -> TokenCounter:
    """``count``, made to refuse what it returns unless that is a number of tokens.

    Raises:
        InvalidArgument: it is no function.
    """
    if not callable(count):
        raise InvalidArgument(f"count is of type {type(count).__name__}: give a function of a text that returns its tokens")
    if count is count_tokens:
        return count_tokens

    def counted(text: str) -> int:
        return check_number("what count() returned", count(text), least=0, most=MOST_TEXT_TOKENS)

    return counted


def content_text(content: Any) -> str:
    """The text of a message's content: itself, or its parts' text, or their JSON where a part has none."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(part) for part in content)


def message_text(message: Message) -> str:
    """All that a model reads of a message: content, call names and arguments."""
    text = content_text(message.get("content"))
    for call in message.get("tool_calls") or ():
        name, arguments = call_name_and_arguments(call)
        text += name + arguments
    return text


def call_name_and_arguments(call: Message) -> tuple[str, str]:
    """A tool call's name and argument text, of a function call or a custom one."""
    body_key, text_key = call_keys(call)
    body = call.get(body_key) or {}
    return str(body.get("name", "")), str(body.get(text_key, ""))


def call_keys(call: Message) -> tuple[str, str]:
    """The key of a tool call's body and, in that, of its argument text: its type alone says which."""
    return ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    return json.dumps(part, ensure_ascii=False)
