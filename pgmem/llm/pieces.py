"""Turns and memory as pieces of a prompt, cut so that each call's pieces fit in the model's window; nothing is left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgmem.domain.calls import match
from pgmem.domain.model import Role, Turn
from pgmem.domain.tokens import TokenCounter, call_name_and_arguments
from pgmem.llm.fence import Fence

UNTRUSTED = "untrusted"
"""How tool results are marked: text of the web, of files, of programs, that nobody vouches for."""

CUT = " [pgmem: cut here]"
"""What ends a text of which a prompt shows only the beginning."""

_TRUST = {Role.SYSTEM: "trusted", Role.USER: "trusted", Role.ASSISTANT: "agent", Role.TOOL: UNTRUSTED}
_BINARY_FROM_CHARACTERS = 1_000
_MOST_CHARACTERS_A_TOKEN = 16
_LEAST_PART_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """One block of a prompt.

    Attributes:
        name: what the block holds.
        text: what stands in it.
        attributes: what stands on its opening line.
        source_tokens: size of the text, without what stands around it.
    """

    name: str
    text: str
    attributes: dict[str, Any]
    source_tokens: int

    def block(self, fence: Fence) -> str:
        """The piece between the fence's lines."""
        return fence.block(self.name, self.text, **self.attributes)


def pieces(memory: str, turns: Sequence[Turn], count: TokenCounter) -> list[Piece]:
    """The memory, when it says something, then each turn: a piece for its text and one for each of its tool calls."""
    remembered = [Piece("memory", memory, {}, count(memory))] if memory.strip() else []
    called = _call_names(turns)
    return [*remembered, *(piece for turn in turns for piece in _turn_pieces(turn, called, count))]


def windows(waiting: Iterable[Piece], *, most_tokens: int, count: TokenCounter) -> list[tuple[Piece, ...]]:
    """The pieces in order, as few runs as fit in ``most_tokens`` each; a larger piece is cut into marked parts."""
    fence, found, filled = Fence(), list[list[Piece]](), most_tokens
    for piece in _fitting(waiting, fence, most_tokens, count):
        size = count(piece.block(fence) + "\n")
        if filled + size > most_tokens:
            found.append([])
            filled = 0
        found[-1].append(piece)
        filled += size
    return [tuple(run) for run in found]


def clip(text: str, most_tokens: int, count: TokenCounter) -> str:
    """``text``, or its beginning and a mark when it is over ``most_tokens``."""
    if count(text) <= most_tokens:
        return text
    ahead = text[: most_tokens * _MOST_CHARACTERS_A_TOKEN]
    return ahead[: _fits(ahead, most_tokens, lambda part: count(part + CUT))] + CUT


def _fitting(waiting: Iterable[Piece], fence: Fence, most_tokens: int, count: TokenCounter) -> Iterator[Piece]:
    for piece in waiting:
        if count(piece.block(fence) + "\n") <= most_tokens:
            yield piece
        else:
            yield from _parts(piece, fence, most_tokens, count)


def _parts(piece: Piece, fence: Fence, most_tokens: int, count: TokenCounter) -> list[Piece]:
    """A piece that is too large, in consecutive parts; their texts together are its text."""
    # as long an attribute as any that a part may get
    widest = replace(piece, text="", attributes=piece.attributes | {"part": "999999999 of 999999999"}).block(fence)
    texts, start = [], 0
    while start < len(piece.text):
        ahead = piece.text[start : start + most_tokens * _MOST_CHARACTERS_A_TOKEN]
        length = max(_LEAST_PART_CHARACTERS, _fits(ahead, most_tokens, lambda part: count(widest + part + "\n")))
        texts.append(ahead[:length])
        start += length
    return [
        replace(piece, text=text, attributes=piece.attributes | {"part": _part(piece, no, len(texts))}, source_tokens=count(text))
        for no, text in enumerate(texts, 1)
    ]


def _part(piece: Piece, no: int, of: int) -> str:
    part = f"{no} of {of}"
    return f"{piece.attributes['part']}, {part}" if "part" in piece.attributes else part


def _fits(text: str, most_tokens: int, count: TokenCounter) -> int:
    """The length of a beginning of ``text`` that is at most ``most_tokens``: near the longest, found in few counts."""
    if count(text) <= most_tokens:
        return len(text)
    low, high = 0, len(text)
    while high - low > 1 + low // 64:
        middle = (low + high) // 2
        low, high = (middle, high) if count(text[:middle]) <= most_tokens else (low, middle)
    return low


def _call_names(turns: Sequence[Turn]) -> dict[int, str]:
    """For each tool turn whose call is among the turns, by position: the name of the tool."""
    named: dict[int, str] = {}
    for caller, answers in match([turn.message for turn in turns]).results.items():
        calls = {call["id"]: call_name_and_arguments(call)[0] for call in turns[caller].message["tool_calls"]}
        named |= {turns[index].no: calls[call_id] for call_id, index in answers if index is not None}
    return named


def _turn_pieces(turn: Turn, called: dict[int, str], count: TokenCounter) -> Iterator[Piece]:
    message = turn.message
    text, calls = _shown(turn.content), message.get("tool_calls") or ()
    if text or not calls:
        attributes = {
            "no": turn.no,
            "role": turn.role.value,
            "trust": _TRUST[turn.role],
            "name": message.get("name") or called.get(turn.no),
            "answers": message.get("tool_call_id"),
        }
        yield Piece("turn", text, attributes, count(text))
    for call in calls:
        name, arguments = call_name_and_arguments(call)
        attributes = {"turn": turn.no, "role": turn.role.value, "trust": _TRUST[turn.role], "id": call["id"], "name": name}
        yield Piece("call", arguments, attributes, count(name + arguments))


def _shown(content: Any) -> str:
    """The content's text; of a part without one its JSON, where a picture or a sound shows only its size."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part["text"] if isinstance(part.get("text"), str) else _json(part) for part in content)


def _json(part: Any) -> str:
    return json.dumps(_light(part), ensure_ascii=False)


def _light(value: Any) -> Any:
    match value:
        case str() if len(value) > _BINARY_FROM_CHARACTERS and not any(map(str.isspace, value[:_BINARY_FROM_CHARACTERS])):
            return f"[pgmem: {len(value)} characters that are no text]"
        case dict():
            return {key: _light(item) for key, item in value.items()}
        case list():
            return [_light(item) for item in value]
        case _:
            return value
