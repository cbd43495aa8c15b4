"""A compiled context in the forms of other providers' APIs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgmem.domain.tokens import call_name_and_arguments, content_text

Block = dict[str, Any]

GOES_ON = "[pgmem: the conversation goes on]"
SYSTEM_SAYS = "[pgmem: system message]\n"
IMAGE = "[pgmem: an image, not shown here]"

_TOOL_ID = re.compile(r"[^A-Za-z0-9_-]")
_DATA_URL = re.compile(r"data:(?P<media>[^;,]+)(?:;[^;,]*)*;base64,(?P<data>.*)", re.DOTALL | re.IGNORECASE)


def to_anthropic(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``system`` and ``messages`` for Anthropic: leading system messages as the system prompt, roles alternating from user on."""
    lead = next((index for index, message in enumerate(messages) if message["role"] != "system"), len(messages))
    system = "\n\n".join(content_text(message["content"]) for message in messages[:lead])
    ids = _ToolIds()
    turns: list[dict[str, Any]] = []
    for message in messages[lead:]:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message, ids)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [_text(GOES_ON)]})
    _strip_end(turns)
    return {"system": system, "messages": turns} if system else {"messages": turns}


def to_responses(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """``input`` items for OpenAI's Responses API."""
    items: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    for message in messages:
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            kind = kinds.get(call_id, "function_call")
            items.append({"type": f"{kind}_output", "call_id": call_id, "output": _output(message.get("content"))})
            continue
        if message.get("content") is not None:
            items.append({"role": message["role"], "content": _responses_content(message)})
        for call in message.get("tool_calls") or ():
            items.append(_responses_call(call))
            kinds[call["id"]] = items[-1]["type"]
    return items


class _ToolIds:
    """Call ids as Anthropic takes them: of its alphabet, and each used by one call only."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._now: dict[str, str] = {}

    def call(self, call_id: str) -> str:
        plain = _TOOL_ID.sub("_", call_id)[:48] or "_"
        name, again = plain, 2
        while name in self._used:
            name, again = f"{plain}_{again}", again + 1
        self._used.add(name)
        self._now[call_id] = name
        return name

    def result(self, call_id: str) -> str:
        return self._now[call_id]


def _blocks(message: Mapping[str, Any], ids: _ToolIds) -> list[Block]:
    content = message.get("content")
    match message["role"]:
        case "tool":
            body = _parts(content, _anthropic_part)
            return [
                {"type": "tool_result", "tool_use_id": ids.result(message["tool_call_id"])} | ({"content": body} if body else {})
            ]
        case "assistant":
            return _parts(content, _text_part) + [_tool_use(call, ids) for call in message.get("tool_calls") or ()]
        case "system":
            return [_text(SYSTEM_SAYS + content_text(content))]
        case _:
            return _parts(content, _anthropic_part)


def _tool_use(call: Mapping[str, Any], ids: _ToolIds) -> Block:
    name, arguments = call_name_and_arguments(call)
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        given = arguments
    return {
        "type": "tool_use",
        "id": ids.call(call["id"]),
        "name": name,
        "input": given if isinstance(given, dict) else {"input": given},
    }


def _parts(content: Any, convert: Callable[[Block], Block]) -> list[Block]:
    # a text block that is blank is refused
    if isinstance(content, str):
        return [_text(content)] if content.strip() else []
    blocks = [convert(part) for part in content or ()]
    return [block for block in blocks if block.get("type") != "text" or block["text"].strip()]


def _anthropic_part(part: Block) -> Block:
    url = _image_url(part)
    if url is None:
        return _text_part(part)
    data = _DATA_URL.fullmatch(url)
    source = {"type": "base64", "media_type": data["media"], "data": data["data"]} if data else {"type": "url", "url": url}
    return {"type": "image", "source": source}


def _text_part(part: Block) -> Block:
    return _text(content_text([part]))


def _image_url(part: Block) -> str | None:
    """Where the image of ``part`` is; None when that is no image, or not one that says where it is."""
    if part.get("type") != "image_url":
        return None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None


def _strip_end(turns: Sequence[dict[str, Any]]) -> None:
    # a last message of the assistant that ends in white space is refused
    if turns and turns[-1]["role"] == "assistant" and turns[-1]["content"][-1]["type"] == "text":
        turns[-1]["content"][-1] = _text(turns[-1]["content"][-1]["text"].rstrip())


def _responses_call(call: Mapping[str, Any]) -> Block:
    name, arguments = call_name_and_arguments(call)
    named = {"call_id": call["id"], "name": name}
    if call.get("type") == "custom":
        return {"type": "custom_tool_call", **named, "input": arguments}
    return {"type": "function_call", **named, "arguments": arguments}


def _output(content: Any) -> str:
    """A tool result's text: base64 would be read as text, and paid for."""
    if not isinstance(content, list):
        return content_text(content)
    return content_text([IMAGE if _image_url(part) is not None else part for part in content])


def _responses_content(message: Mapping[str, Any]) -> Any:
    content = message["content"]
    if isinstance(content, str):
        return content
    if message["role"] == "assistant":
        return [{"type": "output_text", "text": content_text([part])} for part in content]
    return [_responses_part(part) for part in content]


def _responses_part(part: Block) -> Block:
    url = _image_url(part)
    return {"type": "input_text", "text": content_text([part])} if url is None else {"type": "input_image", "image_url": url}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
