"""A provider's message as it is kept: checked once at the edge, stored so that it comes back equal, value for value."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pgmem.domain.model import Message, Role
from pgmem.domain.tokens import content_text
from pgmem.errors import InvalidMessage, TurnTooLarge, UnknownRole

MAX_DEPTH = 500
"""Nesting beyond this cannot be stored: Postgres and JSON parsers recurse."""

REPLACEMENT = "\ufffd"

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
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
    role = check(message)
    _check_size(message, max_bytes)
    content, rest = message.get("content"), {key: value for key, value in message.items() if key != "role"}
    if isinstance(content, str):
        del rest["content"]
    text = content_text(content) if content is not None else None
    extra = json.dumps(rest, ensure_ascii=False, allow_nan=False) if rest else None
    whole = json.dumps(message, ensure_ascii=False, allow_nan=False)
    if not _UNSTORABLE.search(whole) and "\\u0000" not in whole:
        return StoredMessage(str(role), text, extra, None)
    raw = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", whole)
    return StoredMessage(str(role), text and storable(text), extra and json.dumps(_storable(rest), ensure_ascii=False), raw)


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
        raise UnknownRole(f"the role {role!r:.100} is not known: use one of {known}", path="$.role") from None


def _check_content(message: Message, role: Role) -> None:
    content = message.get("content")
    if isinstance(content, str):
        return
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return
    if content is not None:
        raise InvalidMessage(f"content is text or a list of parts, not {type(content).__name__}", path="$.content")
    if role is not Role.ASSISTANT or not any(value for key, value in message.items() if key not in ("role", "content", "name")):
        raise InvalidMessage(f"a {role} message needs content: give a text, '' if it is empty", path="$.content")


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
    body, text = (call.get("custom"), "input") if call.get("type") == "custom" else (call.get("function"), "arguments")
    if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not isinstance(body.get(text), str):
        raise InvalidMessage(f"a tool call has a function with a name and its {text} as text", path=f"{path}.function")
    return str(call["id"])


def _check_size(message: Message, max_bytes: int) -> None:
    size = sum(len(part.encode("utf-8", "surrogatepass")) for _, part in _walk(message, "$") if isinstance(part, str))
    if size > max_bytes:
        raise TurnTooLarge(f"the message has {size} bytes of text, {max_bytes} is the most: split it, or keep the body elsewhere")


def _check_json(value: Any, *, root: str = "$") -> None:
    for path, part in _walk(value, root):
        match part:
            case float() if not math.isfinite(part):
                raise InvalidMessage(f"{path} is {part}: JSON has no such number, use a text or null", path=path)
            case int() if not isinstance(part, bool) and part.bit_length() > 14000:
                raise InvalidMessage(f"{path} is a number of over 4,000 digits: use a text", path=path)
            case str() | int() | float() | None | dict() | list():
                continue
            case _:
                raise InvalidMessage(
                    f"{path} is a {type(part).__name__}: use what JSON has (dict, list, str, int, float, bool, None)",
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


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value


def _unescape_surrogate(found: re.Match[str]) -> str:
    # json.loads would join two escaped halves that were apart in the message; real characters stay as they are
    return chr(int(found[1], 16)) if found[1] else found[0]
