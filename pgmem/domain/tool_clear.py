"""The `tool_clear` strategy: a bounded cumulative memory that asks no model.

What users and assistants said stays, and so do the calls; of a tool result only its *values* stay (see ``values``).
Everything shortens with age: an assistant's long text to its beginning and the values of the rest, the values of a result
to those that distinguish most. Where there is too little room it shortens more, until what is oldest goes, counted.

The memory is text for a model to read and for ``clear`` to read back: entries from the oldest to the newest,

    [memory by #turn; = values of what was cut; 3 older gone]
    #17 user: what was said, whole or until "…"
    #18>search DEN IAH 2024-05-27
    = values of the result, a row for each of its lines or objects
    [end]

A line of content that would read as one of these marks gets a backslash in front.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import sqrt

from pgmem.domain.model import Message, Role, Turn
from pgmem.domain.tokens import TokenCounter, call_name_and_arguments, content_text
from pgmem.domain.values import RANKS, Row, argument_values, row_from, row_text, rows_of, trim

_EARLIER = "earlier"
"""Who speaks in memory that is not ours: a summary that a caller gave or a model wrote."""

_OPENING = re.compile(r"\[memory by #turn; = values of what was cut(?:; ([0-9]{1,18}) older gone)?\]")
_CLOSING = "[end]"
_HEAD = re.compile(r"#([0-9]{1,18})(?: (user|system|assistant|earlier): ?|(>\S*) ?)")
_BLOB = re.compile(r"(?<![\w+/=-])([\w+/=-]{40})[\w+/=-]{400,}", re.ASCII)
"""An encoded file, of which nobody reads more than the beginning."""

_MARK = re.compile(r"^(?=\\|#\d|= |\[end\]$|\[memory by #turn)", re.MULTILINE)

_TEXT_CHARS: dict[str, tuple[int, int]] = {
    Role.USER: (1000, 3000),
    Role.SYSTEM: (1000, 3000),
    Role.ASSISTANT: (240, 300),
    _EARLIER: (32_000, 0),
}
"""How much of a text lasts, and how much more there is of the newest."""

_ARGS_CHARS = 400
_ROWS_CHARS = 2400
"""How much of a call's arguments lasts, and how much there is of the newest result's values."""

_ARGS_HALF_AGE = 256
_LASTING_HALF_AGE = 16
_TEXT_HALF_AGE = 2
_ROWS_HALF_AGES = (8, 12, 16, 32, 96)
"""How many newer entries halve arguments and what lasts of a text, both under pressure only; what a text has more; the
values of each rank. What was used once is used again: arguments age slowest."""

_OLD_AGE = 32
"""From this age on a call goes when newer entries show all that it shows."""

_LEAST_CHARS = 24
"""Less than this of a text or of arguments is not worth its line."""

_ID_CHARS = 12
"""A longer call id was made by a machine for a machine."""

_SCALE = 0.88
_STEPS = 128
"""Pressure comes in steps of this factor; after the last one next to nothing is left."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A part of the memory that the context showed before.

    Attributes:
        text: what it showed.
        own: whether ``clear`` made it. Only then is it read back; marks in any other text are content, and forge nothing.
    """

    text: str
    own: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """One thing that was said, or one call.

    Attributes:
        no: the turn's position; 0 for memory that is not ours.
        who: a role, ``earlier``, or ``>`` and the name of the tool called.
        text: what was said; '' for a call.
        args: the call's short arguments; empty for what was said.
        rows: values of the call's result and long arguments, or of what was cut from the text.
    """

    no: int
    who: str
    text: str = ""
    args: Row = ()
    rows: tuple[Row, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether this is a call."""
        return self.who.startswith(">")


@dataclass(frozen=True, slots=True)
class _Memory:
    """Entries from the oldest to the newest, and how many older ones are gone."""

    entries: tuple[_Entry, ...]
    gone: int = 0


def clear(memories: Sequence[Remembered], turns: Sequence[Turn], *, max_tokens: int, count: TokenCounter) -> str:
    """The memory of all that ``memories`` and ``turns`` tell, in at most ``max_tokens`` by ``count``.

    Args:
        memories: what the context showed before, oldest first.
        turns: the turns to add, oldest first.
        max_tokens: the bound; where it leaves no room for a few words of the newest turn the result is ''.
        count: tokens of a text.

    Example:
        >>> from datetime import UTC, datetime
        >>> from pgmem.domain.tokens import count_tokens
        >>> hello = Turn(1, 0, {"role": "user", "content": "Hello"}, False, 2, None, datetime(2026, 1, 1, tzinfo=UTC))
        >>> print(clear([], [hello], max_tokens=100, count=count_tokens))
        [memory by #turn; = values of what was cut]
        #1 user: Hello
        [end]
    """
    old = [_parsed(memory.text) if memory.own else _Memory(_earlier(memory.text)) for memory in memories]
    entries = (*chain.from_iterable(memory.entries for memory in old), *_entries(turns))
    whole = _Memory(tuple(map(_at_most, entries)), sum(memory.gone for memory in old))

    def at(step: int) -> str:
        return _shown(_fitted(whole, _SCALE**step))

    def fits(step: int) -> bool:
        return count(at(step)) <= max_tokens

    text = at(0 if fits(0) else bisect_left(range(_STEPS), True, lo=1, key=fits))
    return text if count(text) <= max_tokens and "\n#" in text else _beginning(whole.entries, max_tokens, count)


def clear_body(text: str, max_chars: int = _ROWS_CHARS) -> str:
    """The values of one tool-result body, a line for each row: at most about ``max_chars`` of them.

    Example:
        >>> clear_body("Sent to ann@example.com as order A-1042, thank you")
        'ann@example.com A-1042'
    """
    return "\n".join(map(row_text, trim(rows_of(text), [max_chars] * RANKS)))


def _entries(turns: Sequence[Turn]) -> list[_Entry]:
    """The entries of ``turns``; a result's values stand with its call, or alone where that is not among them."""
    entries: list[_Entry] = []
    calls: dict[str, int] = {}
    for turn in turns:
        text = _BLOB.sub(r"\1…", content_text(turn.content)).strip()
        if turn.role is Role.TOOL:
            place = calls.pop(str(turn.message.get("tool_call_id")), len(entries))
            if place == len(entries):
                entries.append(_Entry(turn.no, _tool(turn.message.get("name") or "result", turn.message.get("tool_call_id"))))
            rows = trim(rows_of(text), [_ROWS_CHARS] * RANKS)
            entries[place] = replace(entries[place], rows=entries[place].rows + rows)
            continue
        if text:
            entries.append(_Entry(turn.no, turn.role, text))
        for call in turn.message.get("tool_calls") or ():
            calls[str(call.get("id"))] = len(entries)
            entries.append(_call(turn.no, call))
    return entries


def _call(no: int, call: Message) -> _Entry:
    name, arguments = call_name_and_arguments(call)
    args, rows = argument_values(arguments)
    return _Entry(no, _tool(name, call.get("id")), args=args, rows=trim(rows, [_ARGS_CHARS] * RANKS))


def _tool(name: object, call_id: object) -> str:
    """How a call is headed: its tool's name, and its id where that is short enough for people."""
    short = f"({call_id})" if call_id and len(str(call_id)) <= _ID_CHARS else ""
    return ">" + "_".join(f"{str(name)[:64]}{short}".split())


def _parsed(memory: str) -> _Memory:
    """The entries that ``memory``, which ``clear`` made, shows; what stands outside the frame is an entry of its own."""
    entries: list[_Entry] = []
    lines: list[str] = []
    gone = 0
    inside = False
    for line in memory.split("\n"):
        opening = None if inside else _OPENING.fullmatch(line)
        if opening or (inside and line == _CLOSING):
            entries += _framed(lines) if inside else _earlier("\n".join(lines))
            gone += int(opening[1] or 0) if opening else 0
            inside, lines = not inside, []
        else:
            lines.append(line)
    entries += _framed(lines) if inside else _earlier("\n".join(lines))
    return _Memory(tuple(entries), gone)


def _earlier(text: str) -> tuple[_Entry, ...]:
    """``text`` as one entry, whatever it holds."""
    return (_Entry(0, _EARLIER, text.strip()),) if text.strip() else ()


def _framed(lines: Iterable[str]) -> Iterator[_Entry]:
    """The entries between an opening and a closing line."""
    own: list[str] = []
    for line in lines:
        if own and _HEAD.match(line):
            yield _entry(own)
            own = []
        own.append(line)
    if own:
        yield _entry(own)


def _entry(lines: Sequence[str]) -> _Entry:
    """The entry that ``_entry_text`` showed as ``lines``."""
    head = _HEAD.match(lines[0])
    if head is None:
        return _Entry(0, _EARLIER, "\n".join(lines))
    values_at = next((at for at, line in enumerate(lines) if line.startswith("= ")), len(lines))
    text = "\n".join((lines[0][head.end() :], *(line.removeprefix("\\") for line in lines[1:values_at])))
    rows = tuple(row_from(line.removeprefix("= ").removeprefix("\\")) for line in lines[values_at:])
    if head[2]:
        return _Entry(int(head[1]), head[2], text, (), rows)
    return _Entry(int(head[1]), head[3], "", row_from(text), rows)


def _shown(memory: _Memory) -> str:
    gone = f"; {memory.gone} older gone" if memory.gone else ""
    opening = f"[memory by #turn; = values of what was cut{gone}]"
    return "\n".join((opening, *map(_entry_text, memory.entries), _CLOSING))


def _entry_text(entry: _Entry) -> str:
    head = f"#{entry.no}{entry.who} {row_text(entry.args)}" if entry.is_call else f"#{entry.no} {entry.who}: "
    first, *more = entry.text.split("\n", 1)
    text = "\n".join((head + first, *(_MARK.sub(r"\\", rest) for rest in more))).rstrip(" ")
    rows = _MARK.sub(r"\\", "\n".join(map(row_text, entry.rows)))
    return f"{text}\n= {rows}" if rows else text


def _at_most(entry: _Entry) -> _Entry:
    """``entry`` as it may be shown at most, so that a long text is read once and not at each step of the pressure."""
    most = 0 if entry.is_call else sum(_TEXT_CHARS[entry.who])
    if len(entry.text) <= most:
        return entry
    text, rest = _beginning_and_rest(entry.text, most - 1)
    return replace(entry, text=text, rows=trim((*rows_of(rest), *entry.rows), [most // 2] * RANKS))


def _fitted(memory: _Memory, scale: float) -> _Memory:
    """``memory`` with every entry shortened to what its age and ``scale`` allow, each row only where it is newest."""
    known: set[str] = set()
    goal = next((entry for entry in memory.entries if entry.who == Role.USER), None)
    short = []
    for age, entry in enumerate(reversed(memory.entries)):
        if entry.is_call:
            short += _short_call(entry, scale, age, known)
        else:
            short.append(_short_text(entry, scale, 0 if entry is goal else age, known))
    news = (_with_news(entry, known) for entry in short)
    kept = tuple(entry for entry in news if entry.is_call or entry.text or entry.rows)
    return _Memory(kept[::-1], memory.gone + len(memory.entries) - len(kept))


def _short_call(entry: _Entry, scale: float, age: int, known: set[str]) -> list[_Entry]:
    """A call within its share, or nothing; ``known`` are the values of newer entries, and gets its own."""
    size = int(_ARGS_CHARS * _share(scale, age * (1 - scale), _ARGS_HALF_AGE))
    args = next(iter(trim([entry.args], [size] * RANKS)), ())
    fresh = [row for row in dict.fromkeys(entry.rows) if not known.issuperset(row)]
    rows = trim(fresh, [int(_ROWS_CHARS * _share(scale, age, half)) for half in _ROWS_HALF_AGES], known)
    if not rows and ((age >= _OLD_AGE and known.issuperset(args)) or size < _LEAST_CHARS):
        return []
    known.update(args, *rows)
    return [replace(entry, args=args, rows=rows)]


def _short_text(entry: _Entry, scale: float, age: int, known: set[str]) -> _Entry:
    """What was said within its share, the values of the rest among its rows; ``known`` gets the words that stay."""
    lasting, more = _TEXT_CHARS[entry.who]
    size = lasting * _share(scale, age * (1 - scale), _LASTING_HALF_AGE) + more * _share(scale, age, _TEXT_HALF_AGE)
    text, rest = _beginning_and_rest(entry.text, int(size))
    known.update(row_from(text))
    sizes = [int(size) // 2] * RANKS
    if not text:
        sizes[:2] = 0, 0  # Without the text around them, plain words and names tell nothing.
    return replace(entry, text=text, rows=trim((*rows_of(rest), *entry.rows), sizes))


def _share(scale: float, age: float, half_age: int) -> float:
    """What part of its size an entry keeps: pressure makes it older, and also smaller, but that more slowly."""
    return sqrt(sqrt(scale)) / (1 + age / (half_age * scale))


def _with_news(entry: _Entry, known: set[str]) -> _Entry:
    """Of what was cut from a text only the values that no entry shows; ``known`` gets them."""
    if entry.is_call:
        return entry
    rows = []
    for row in entry.rows:
        rows.append(tuple(value for value in row if value not in known))
        known.update(row)
    return replace(entry, rows=tuple(filter(None, rows)))


def _beginning_and_rest(text: str, size: int) -> tuple[str, str]:
    """The beginning of ``text`` in ``size`` characters, marked where it is cut, and the rest."""
    if len(text) <= size:
        return text, ""
    if size < _LEAST_CHARS:
        return "", text
    end = max(text.rfind(" ", 0, size), size // 2)
    return text[:end] + "…", text[end:]


def _beginning(entries: Sequence[_Entry], max_tokens: int, count: TokenCounter) -> str:
    """As much of the newest entry as fits, where nothing else does."""
    text = _entry_text(entries[-1])[:_ROWS_CHARS] if entries else ""
    while text and count(text) > max_tokens:
        text = text[: len(text) // 2]
    return text
