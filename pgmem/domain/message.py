"""A provider's message as it is kept: checked once at the edge, stored so that it comes back equal, value for value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgmem.domain.model import Message, Role
from pgmem.domain.tokens import call_keys, content_text
from pgmem.errors import InvalidMessage, TurnTooLarge, UnknownRole

MAX_DEPTH = 500
"""Nesting beyond this cannot be stored: Postgres and JSON parsers recurse."""

REPLACEMENT = "\ufffd"

_LEAST_BYTES = 8
"""What any key or value counts, however short: each costs memory and a place in the column."""

_MOST_BITS = 14_000
"""Of a number; one of over 4,300 digits Python does not turn into text."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUL_ESCAPE = re.compile(r"\\(?:u0000|.)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(d[89a-f][0-9a-f]{2})|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """The columns that keep one message.

    Attributes:
        role: who speaks.
        content: the text, for people; None when the message has no content.
        extra: JSON text of what ``content`` does not hold; None when it holds all.
        raw: JSON text of the whole message when it has a NUL or a lone surrogate, which neither column can hold.
    """

    role: str
    content: str | None
    extra: str | None
    raw: str | None


def encode(message: Message, *, max_bytes: int) -> StoredMessage:
    """Checks ``message`` and gives its columns.

    Raises:
        InvalidMessage: no provider would take it, or it would not come back equal; ``path`` says where.
        TurnTooLarge: it is over ``max_bytes`` of UTF-8.
    """
    _check_size(message, max_bytes)
    role = check(message)
    content, rest = message.get("content"), {key: value for key, value in message.items() if key != "role"}
    if isinstance(content, str):
        del rest["content"]
    text = content_text(content) if content is not None else None
    extra = json.dumps(rest, ensure_ascii=False, allow_nan=False) if rest else None
    whole = json.dumps(message, ensure_ascii=False, allow_nan=False)
    if not _UNSTORABLE.search(whole) and "\\u0000" not in whole:
        return StoredMessage(str(role), text, extra, None)
    raw = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", whole)
    return StoredMessage(str(role), text and storable(text), extra and _storable_json(extra), raw)


def decode(stored: StoredMessage) -> dict[str, Any]:
    """The message that ``encode`` was given."""
    if stored.raw is not None:
        message: dict[str, Any] = json.loads(_ESCAPE.sub(_unescape_surrogate, stored.raw))
        return message
    message = {"role": stored.role}
    extra = json.loads(stored.extra) if stored.extra is not None else {}
    if stored.content is not None and "content" not in extra:
        message["content"] = stored.content
    return message | extra


def check(message: Message) -> Role:
    """The message's role, when the message is one that a chat API takes.

    Raises:
        InvalidMessage: it is not; ``path`` says where.
    """
    if not isinstance(message, dict):
        raise InvalidMessage(f"a message is a dict like {{'role': 'user', 'content': 'hi'}}, not {type(message).__name__}")
    _check_json(message)
    role = _check_role(message.get("role"))
    _check_content(message, role)
    _check_calls(message, role)
    if role is Role.TOOL and not (isinstance(message.get("tool_call_id"), str) and message["tool_call_id"]):
        raise InvalidMessage("a tool message needs tool_call_id, the id of the call that it answers", path="$.tool_call_id")
    return role


def storable(text: str) -> str:
    """``text`` with what a text column cannot hold shown as U+FFFD."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def unstorable_at(text: str) -> int | None:
    """The position of the first character that a text column cannot hold; None when all can be held."""
    found = _UNSTORABLE.search(text)
    return found.start() if found else None


def check_json(value: Any, *, name: str) -> None:
    """Nothing, when ``value`` is JSON that comes back equal and a json column can hold.

    Raises:
        InvalidMessage: it is not; ``path`` says where.
    """
    _check_json(value, root=name)
    for path, part in _walk(value, name):
        if isinstance(part, str) and unstorable_at(part) is not None:
            raise InvalidMessage(f"{path} holds a NUL or a lone surrogate at {unstorable_at(part)}: remove it", path=path)


def _check_role(role: Any) -> Role:
    try:
        return Role(role)
    except ValueError:
        known = ", ".join(Role)
        raise UnknownRole(
            f"the role {role!r:.100} is not known: use one of {known} (system also for OpenAI's developer)", path="$.role"
        ) from None


def _check_content(message: Message, role: Role) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        _check_parts(content)
        return
    if content is not None:
        raise InvalidMessage(f"content is text or a list of parts, not {type(content).__name__}", path="$.content")
    if role is not Role.ASSISTANT or not any(value for key, value in message.items() if key not in ("role", "content", "name")):
        raise InvalidMessage(f"a message of the role {role} needs content: give a text, '' if it is empty", path="$.content")


def _check_parts(parts: list[dict[str, Any]]) -> None:
    for index, part in enumerate(parts):
        if part.get("type") in ("tool_use", "tool_result"):
            raise InvalidMessage(
                f"a content part of the type {part['type']} is Anthropic's: give calls as tool_calls and each result as a "
                "message of the role tool",
                path=f"$.content[{index}].type",
            )


def _check_calls(message: Message, role: Role) -> None:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if role is not Role.ASSISTANT or not isinstance(calls, list):
        raise InvalidMessage("tool_calls is a list, and only an assistant message has it", path="$.tool_calls")
    ids = [_check_call(call, f"$.tool_calls[{index}]") for index, call in enumerate(calls)]
    for index, call_id in enumerate(ids):
        if call_id in ids[:index]:
            raise InvalidMessage(f"two calls of one message have the id {call_id!r:.100}", path=f"$.tool_calls[{index}].id")


def _check_call(call: Any, path: str) -> str:
    if not isinstance(call, dict) or not (isinstance(call.get("id"), str) and call["id"]):
        raise InvalidMessage("a tool call is a dict with an id", path=f"{path}.id")
    key, text = call_keys(call)
    body = call.get(key)
    if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not isinstance(body.get(text), str):
        raise InvalidMessage(f"a tool call has a {key} with a name and its {text} as text", path=f"{path}.{key}")
    return str(call["id"])


def _check_size(message: Message, max_bytes: int) -> None:
    # before all else, and no further than the limit: the work on any message is bounded by max_bytes
    size = 0
    waiting: list[tuple[Any, int]] = [(message, 1)]
    while waiting and size + _LEAST_BYTES * len(waiting) <= max_bytes:
        part, depth = waiting.pop()
        size += _own_bytes(part)
        if not isinstance(part, dict | list) or depth > MAX_DEPTH:
            continue
        if size + _LEAST_BYTES * (len(waiting) + len(part)) > max_bytes:
            size += _LEAST_BYTES * len(part)
            break
        waiting += ((item, depth + 1) for item in part)
        waiting += ((item, depth + 1) for item in part.values()) if isinstance(part, dict) else ()
    if size + _LEAST_BYTES * len(waiting) > max_bytes:
        raise TurnTooLarge(f"the message has over {max_bytes} bytes, the most for one: split it, or keep the body elsewhere")


def _own_bytes(part: Any) -> int:
    """The UTF-8 of a text or a number; whatever a dict or a list holds is not in it."""
    size = 0
    if isinstance(part, str):
        size = len(part.encode("utf-8", "surrogatepass"))
    elif isinstance(part, int) and part.bit_length() > _MOST_BITS:
        size = part.bit_length() // 4
    elif isinstance(part, int | float):
        size = len(json.dumps(part))
    return max(size, _LEAST_BYTES)


def _check_json(value: Any, *, root: str = "$") -> None:
    for path, part in _walk(value, root):
        match part:
            case float() if not math.isfinite(part):
                raise InvalidMessage(f"{path} is {part}: JSON has no such number, use a text or null", path=path)
            case int() if not isinstance(part, bool) and part.bit_length() > _MOST_BITS:
                raise InvalidMessage(f"{path} is a number of over 4,000 digits: use a text", path=path)
            case str() | int() | float() | None | dict() | list():
                continue
            case _:
                raise InvalidMessage(
                    f"{path} is of type {type(part).__name__}: use what JSON has (dict, list, str, int, float, bool, None)",
                    path=path,
                )


def _walk(value: Any, root: str) -> Iterator[tuple[str, Any]]:
    """Every value inside ``value``, keys too, with its path; without recursion."""
    waiting = [(root, value, 1)]
    while waiting:
        path, part, depth = waiting.pop()
        yield path, part
        if depth > MAX_DEPTH and isinstance(part, dict | list):
            raise InvalidMessage(
                f"the message is nested deeper than {MAX_DEPTH}: flatten it, or keep it as a text", path=path[:200]
            )
        if isinstance(part, dict):
            for key, item in part.items():
                if not isinstance(key, str):
                    raise InvalidMessage(f"{path} has the key {key!r:.100}: JSON keys are text", path=path)
                waiting += ((path, key, depth), (f"{path}.{key:.50}", item, depth + 1))
        elif isinstance(part, list):
            waiting += ((f"{path}[{index}]", item, depth + 1) for index, item in enumerate(part))


def _storable_json(text: str) -> str:
    """JSON text with what Postgres cannot hold shown as U+FFFD, in keys and values."""
    return storable(_NUL_ESCAPE.sub(lambda found: REPLACEMENT if found[0] == "\\u0000" else found[0], text))


def _unescape_surrogate(found: re.Match[str]) -> str:
    # json.loads would join two escaped halves that were apart in the message; real characters stay as they are
    return chr(int(found[1], 16)) if found[1] else found[0]
