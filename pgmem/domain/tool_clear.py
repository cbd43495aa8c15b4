"""The `tool_clear` strategy: a bounded cumulative memory that asks no model.

What users and assistants said stays, and so do the calls. Of a tool result only its *values* stay (see `values`): what a later step may
have to repeat exactly and could not guess. When there is too little room, everything shortens with age: a text to its beginning and the values of
the rest, values to those that distinguish most, and the oldest entries go, counted.

The memory is text that a model reads and that `clear` itself reads back: entries from the oldest to the newest,

    #17 user: what was said, whole or cut at "…"
    #18>search DEN IAH 2024-05-27
    = values of the result, a row for each of its lines or records

A line of content that would read as one of these marks begins with a backslash.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pgmem.domain.model import Role, Turn
from pgmem.domain.tokens import TokenCounter, call_name_and_arguments, content_text
from pgmem.domain.values import Row, argument_values, row_from, row_text, rows_of, trim

_OPENING = "[memory by #turn; = values left of what was cut"
_CLOSING = "[end]"
_EARLIER = "earlier"

_ENTRY = re.compile(r"#(\d+)(?: ([a-z]+): ?|>(\S*) ?)")
_MARKS = re.compile(r"^(?=\\|#\d|= |\[end\]$|\[memory by #turn)", re.MULTILINE)
_FRAME = re.compile(r"^\[memory by #turn[^\n]*?(?:; (\d+) older gone)?\]$\n?(.*?)^\[end\]$", re.MULTILINE | re.DOTALL)

_TEXT_BYTES: dict[str, int] = {Role.USER: 4000, Role.SYSTEM: 4000, Role.ASSISTANT: 600, _EARLIER: 32_000}
_CALL_BYTES = 400
_ROWS_BYTES = 1600
_LEAST_BYTES = 24
"""What an entry may take when it is the newest; the smallest part worth showing."""

_HALF_AGE = 16
"""How many newer entries halve what an entry may take."""

_STEPS = 64
_STEP = 0.88


@dataclass(frozen=True, slots=True)
class _Entry:
    """One thing that was said or called.

    Attributes:
        no: the turn's position; 0 for memory from elsewhere.
        who: a role, ``earlier``, or ``>`` and the name of the tool called.
        text: what was said; '' for a call.
        args: the call's short arguments.
        rows: values of the call's result and long arguments, or of what was cut from the text.
    """

    no: int
    who: str
    text: str = ""
    args: Row = ()
    rows: tuple[Row, ...] = ()

    @property
    def is_call(self) -> bool:
        """Whether a tool was called."""
        return self.who.startswith(">")


@dataclass(frozen=True, slots=True)
class _Memory:
    """Entries from the oldest to the newest, and how many older ones are gone."""

    entries: tuple[_Entry, ...]
    gone: int = 0


def clear(memory: str, turns: Sequence[Turn], *, max_tokens: int, count: TokenCounter) -> str:
    """The memory of everything that ``memory`` and ``turns`` tell, in at most ``max_tokens`` by ``count``.

    Args:
        memory: what the context showed before: '' at first, an earlier result of this function, a text from elsewhere, or several of these.
        turns: the turns to add, oldest first.
        max_tokens: the bound; where not even a few words fit the result is ''.
        count: tokens of a text.

    Example:
        >>> from pgmem.domain.tokens import count_tokens
        >>> clear("", [], max_tokens=100, count=count_tokens)
        ''
    """
    if not turns and count(memory) <= max_tokens:
        return memory
    old = _parse(memory)
    whole = _Memory((*old.entries, *_entries(turns)), old.gone)

    def at(step: int) -> str:
        return _shown(_fitted(whole, _STEP**step))

    def fits(step: int) -> bool:
        return count(at(step)) <= max_tokens

    step = 0 if fits(0) else bisect_left(range(_STEPS), True, lo=1, key=fits)
    text = at(step)
    return text if count(text) <= max_tokens else _beginning(whole.entries, max_tokens, count)


def clear_body(text: str, max_bytes: int = _ROWS_BYTES) -> str:
    """The values of one tool-result body, a line for each row, at most ``max_bytes`` of them.

    Example:
        >>> clear_body("Sent to ann@example.com as order A-1042, thank you")
        'Sent ann@example.com A-1042'
    """
    return "\n".join(map(row_text, trim(rows_of(text), max_bytes)))


def _entries(turns: Sequence[Turn]) -> list[_Entry]:
    """The entries of ``turns``; a result's values stand with its call."""
    open_calls: dict[str, int] = {}
    entries: list[_Entry] = []
    for turn in turns:
        text = content_text(turn.content).strip()
        if turn.role is Role.TOOL:
            rows = trim(rows_of(text), _ROWS_BYTES)
            place = open_calls.pop(str(turn.message.get("tool_call_id")), None)
            if place is None:
                entries.append(_Entry(turn.no, _tool(turn.message.get("name") or "result"), rows=rows))
            else:
                entries[place] = replace(entries[place], rows=entries[place].rows + rows)
            continue
        if text:
            entries.append(_Entry(turn.no, turn.role, text))
        for call in turn.message.get("tool_calls") or ():
            open_calls[str(call.get("id"))] = len(entries)
            entries.append(_call_entry(turn.no, *call_name_and_arguments(call)))
    return entries


def _call_entry(no: int, name: str, arguments: str) -> _Entry:
    args, rows = argument_values(arguments)
    return _Entry(no, _tool(name), args=args, rows=trim(rows, _CALL_BYTES))


def _tool(name: object) -> str:
    return ">" + "_".join(str(name).split())[:64]


def _parse(memory: str) -> _Memory:
    """The entries that ``memory`` shows; what is not in a frame of ours becomes an entry of its own."""
    entries: list[_Entry] = []
    gone, end = 0, 0
    for frame in _FRAME.finditer(memory):
        entries += _earlier(memory[end : frame.start()])
        entries += _framed(frame[2])
        gone, end = gone + int(frame[1] or 0), frame.end()
    entries += _earlier(memory[end:])
    return _Memory(tuple(entries), gone)


def _earlier(text: str) -> list[_Entry]:
    return [_Entry(0, _EARLIER, text.strip("\n"))] if text.strip() else []


def _framed(body: str) -> Iterator[_Entry]:
    head: re.Match[str] | None = None
    texts: list[str] = []
    rows: list[Row] = []
    for line in body.split("\n")[:-1]:
        if match := _ENTRY.match(line):
            if head:
                yield _read(head, texts, rows)
            head, texts, rows = match, [line[match.end() :]], []
        elif line.startswith("= "):
            rows.append(row_from(line[2:]))
        elif rows:
            rows.append(row_from(line.removeprefix("\\")))
        else:
            texts.append(line.removeprefix("\\"))
    if head:
        yield _read(head, texts, rows)


def _read(head: re.Match[str], texts: list[str], rows: list[Row]) -> _Entry:
    text = "\n".join(texts)
    if head[2]:
        return _Entry(int(head[1]), head[2], text, (), tuple(rows))
    return _Entry(int(head[1]), ">" + head[3], "", row_from(text), tuple(rows))


def _shown(memory: _Memory) -> str:
    gone = f"; {memory.gone} older gone" if memory.gone else ""
    return "\n".join((f"{_OPENING}{gone}]", *map(_entry_text, memory.entries), _CLOSING))


def _entry_text(entry: _Entry) -> str:
    head = f"#{entry.no}{entry.who} " if entry.is_call else f"#{entry.no} {entry.who}: "
    first, *more = (row_text(entry.args) if entry.is_call else entry.text).split("\n")
    text = "\n".join((first, *(_MARKS.sub(r"\\", line) for line in more)))
    rows = "\n".join(_MARKS.sub(r"\\", row_text(row)) for row in entry.rows)
    return (head + text).rstrip(" ") + ("\n= " + rows if rows else "")


def _fitted(memory: _Memory, scale: float) -> _Memory:
    """``memory`` with every entry shortened to what its age and ``scale`` allow; each row once, where it is newest."""
    known: set[str] = set()
    goal = next((entry for entry in memory.entries if entry.who == Role.USER), None)
    kept: list[_Entry] = []
    for age, entry in enumerate(reversed(memory.entries)):
        share = scale if entry is goal or entry.who == _EARLIER else scale / (1 + age / _HALF_AGE)
        kept.append(_short_call(entry, scale, share, known) if entry.is_call else _short_text(entry, share, known))
    kept = [entry if entry.is_call else _with_news(entry, known) for entry in kept]
    kept = [entry for entry in reversed(kept) if entry.text or entry.args or entry.rows]
    return _Memory(tuple(kept), memory.gone + len(memory.entries) - len(kept))


def _short_text(entry: _Entry, share: float, known: set[str]) -> _Entry:
    size = int(share * _TEXT_BYTES[entry.who])
    text, cut = _head(entry.text, size)
    known.update(row_from(text))
    return replace(entry, text=text, rows=trim((*rows_of(cut), *entry.rows), size // 2)) if cut or entry.rows else entry


def _with_news(entry: _Entry, known: set[str]) -> _Entry:
    rows = []
    for row in entry.rows:
        rows.append(tuple(value for value in row if value not in known))
        known.update(row)
    return replace(entry, rows=tuple(filter(None, rows)))


def _short_call(entry: _Entry, scale: float, share: float, known: set[str]) -> _Entry:
    """``entry`` within its share; ``known`` holds the values of newer entries and gets its own."""
    args = trim(filter(None, [entry.args]), int(scale * _CALL_BYTES))
    if share < scale / 3 and args and known.issuperset(args[0]):
        args = ()
    known.update(*args)
    fresh = [row for row in dict.fromkeys(entry.rows) if not known.issuperset(row)]
    rows = trim(fresh, int(share * _ROWS_BYTES))
    known.update(value for row in rows for value in row)
    return replace(entry, args=args[0] if args else (), rows=rows)


def _head(text: str, size: int) -> tuple[str, str]:
    """The beginning of ``text`` in ``size`` characters and the rest."""
    if len(text) <= size:
        return text, ""
    if size < _LEAST_BYTES:
        return "", text
    place = max(text.rfind(" ", 0, size), size // 2)
    return text[:place] + "…", text[place:]


def _beginning(entries: Sequence[_Entry], max_tokens: int, count: TokenCounter) -> str:
    """As much of the newest entry's beginning as fits."""
    text = _entry_text(entries[-1])[: max(max_tokens, 0) * 8] if entries else ""
    while text and count(text) > max_tokens:
        text = text[: len(text) // 2]
    return text
