"""Conversations out of a JSONL file, one a line; a line that cannot be played is named, never half read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from pgmem.domain.message import encode
from pgmem.domain.model import Message, Role
from pgmem.domain.tokens import content_text
from pgmem.errors import InvalidArgument, InvalidMessage

MOST_LINE_BYTES = 256 * 1024 * 1024
"""The longest line that is read; a longer one is skipped without being held."""

_LOOKED_AT_BYTES = 8192
_CHUNK_BYTES = 1024 * 1024
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One line that can be played.

    Attributes:
        number: its line in the file, from 0.
        messages: all of it, the caller's prompt too.
        system: the caller's prompt, when the first message is one; it is not a turn.
    """

    number: int
    messages: tuple[Message, ...]
    system: str | None

    def turns(self) -> Iterator[tuple[int, Message]]:
        """The messages that are turns, each with its position in ``messages``."""
        first = 0 if self.system is None else 1
        return ((index, self.messages[index]) for index in range(first, len(self.messages)))


@dataclass(frozen=True, slots=True)
class BadLine:
    """One line that is skipped.

    Attributes:
        number: its line in the file, from 0.
        reason: what is wrong with it.
    """

    number: int
    reason: str


def check_text_file(file: IO[bytes]) -> None:
    """Nothing, when the beginning of ``file`` can be text; the file is where it was.

    Raises:
        InvalidArgument: it has a NUL, which no JSON text has.
    """
    peek = getattr(file, "peek", None)
    if peek is not None and b"\0" in peek(_LOOKED_AT_BYTES)[:_LOOKED_AT_BYTES]:
        raise InvalidArgument("it is a binary file: give JSONL in UTF-8, one conversation a line")


def count_lines(file: IO[bytes]) -> int | None:
    """How many lines ``file`` has, which is where it was then; None when it can be read only once."""
    if not file.seekable():
        return None
    lines, last = 0, b"\n"
    while chunk := file.read(_CHUNK_BYTES):
        lines, last = lines + chunk.count(b"\n"), chunk[-1:]
    file.seek(0)
    return lines + (last != b"\n")


def read(file: IO[bytes], *, max_turn_bytes: int) -> Iterator[Conversation | BadLine]:
    """The lines of ``file`` in order; blank ones count and are passed over.

    Args:
        file: JSONL in UTF-8: ``{"messages": [OpenAI chat messages]}``, other keys are ignored.
        max_turn_bytes: the largest message.
    """
    for number, text in enumerate(_lines(file)):
        if text is None:
            yield BadLine(number, f"longer than {MOST_LINE_BYTES >> 20} MiB")
        elif text.strip():
            yield _parsed(number, text, max_turn_bytes)


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """Each line without a byte order mark; None for one that is too long."""
    first = True
    while text := file.readline(MOST_LINE_BYTES):
        too_long = len(text) == MOST_LINE_BYTES and not text.endswith(b"\n")
        if too_long:
            while (rest := file.readline(MOST_LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
        yield None if too_long else text.removeprefix(_BOM) if first else text
        first = False


def _parsed(number: int, text: bytes, max_turn_bytes: int) -> Conversation | BadLine:
    try:
        messages = _messages(json.loads(text.decode()))
        for index, message in enumerate(messages):
            _check(message, index, max_turn_bytes)
    except UnicodeDecodeError as error:
        return BadLine(number, f"not UTF-8 at byte {error.start}")
    except InvalidMessage as error:
        return BadLine(number, str(error))
    except RecursionError:
        return BadLine(number, "not JSON that can be read: nested too deeply")
    except ValueError as error:
        return BadLine(number, f"not JSON: {error}")
    return Conversation(number, tuple(messages), _prompt(messages))


def _messages(found: Any) -> list[Any]:
    if not isinstance(found, dict):
        raise InvalidMessage(f"not an object with messages, but a {type(found).__name__}")
    messages = found.get("messages")
    if not isinstance(messages, list):
        raise InvalidMessage(
            "no list of messages" if messages is None else f"messages is of type {type(messages).__name__}, not a list"
        )
    return messages


def _check(message: Any, index: int, max_turn_bytes: int) -> None:
    try:
        encode(message, max_bytes=max_turn_bytes)
    except InvalidMessage as error:
        raise InvalidMessage(f"messages[{index}]: {error}", path=error.path) from error


def _prompt(messages: list[Any]) -> str | None:
    if not messages or messages[0]["role"] != Role.SYSTEM:
        return None
    return content_text(messages[0]["content"])
