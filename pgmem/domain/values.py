"""What distinguishes in a text: the values that tell it from others of its kind, taken without asking a model.

A *value* is a piece of text that nobody could guess from the words around it: an identifier, a path, an address, a date, a number,
a name, a quoted string. Form tells it, not vocabulary: digits, inner punctuation, capitals, mixed case, quotes, a script without case.
Plain lower-case words, punctuation and one- or two-digit numbers can be guessed, or say nothing alone, and are left out.
Values stay in *rows*, one for each line of text or each object of JSON, so that what stood together can still be read together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Row = tuple[str, ...]
"""The values of one line or one JSON object, in order."""

HEAD_CHARS = 196_608
TAIL_CHARS = 65_536
"""Of a longer text only so much of its beginning and of its end is looked at: the work on one text is bounded."""

_ROW_VALUES = 32
"""A longer row goes on in the next one."""

LONG_CHARS = 200
"""A string longer than this, or of several lines, is a text that holds values, not a value."""

_PIECE = re.compile(
    r"[a-zA-Z][\w+.-]{1,20}://[^\s\"'<>`)\]}|]+"
    r"|\"[^\"\n]{2,120}\"|'[^'\n]{2,120}'|`[^`\n]{2,120}`"
    r"|[^\s\"'`()\[\]{}<>,;|]+"
)
_SHOWN = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|(\S+)")
_QUOTES = "\"'`"
_EDGE = ".:!?*#=+&%$^~\\-…。、，！？：；"
_CASELESS = re.compile(r"[^\W\d_a-zA-Z]")


def rows_of(text: str) -> list[Row]:
    """The rows of values of ``text``: JSON by object, anything else by line.

    Example:
        >>> rows_of('{"id": "A-17", "ok": true, "by": {"name": "Ann Lee", "age": 7}}')
        [('A-17',), ('Ann Lee',)]
        >>> rows_of("failed to open /etc/app.conf at 10:42:07")
        [('/etc/app.conf', '10:42:07')]
    """
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        return _rows_of_lines(text[:HEAD_CHARS] + "\n" + text[-TAIL_CHARS:])
    parsed = _parsed(text)
    if parsed is None:
        return _rows_of_lines(text)
    return [*_rows_of_json(parsed), *(row for long in _long_strings(parsed) for row in _rows_of_lines(long))]


def argument_values(arguments: str) -> tuple[Row, list[Row]]:
    """The values of a call's argument text that can stand on one line, and the rows of its longer strings."""
    parsed = _parsed(arguments)
    if parsed is None:
        return (), _rows_of_lines(arguments)
    short = [value for row in _rows_of_json(parsed) for value in row]
    return tuple(dict.fromkeys(short)), [row for text in _long_strings(parsed) for row in _rows_of_lines(text)]


def rank(value: str) -> int:
    """How much ``value`` distinguishes, by its form: 3 an identifier, 2 a number or a compound, 1 a name, 0 a plain word."""
    digits = any(map(str.isdigit, value))
    letters = any(map(str.isalpha, value))
    inner = any(mark in value[1:-1] for mark in "_/@.:-")
    if len(value) >= 5 and ((digits and letters) or "/" in value or "@" in value):
        return 3
    if digits or inner or value[1:] != value[1:].lower() or " " in value:
        return 2
    return int(value != value.lower() or bool(_CASELESS.search(value)))


def trim(rows: Iterable[Row], size: int) -> tuple[Row, ...]:
    """The values of ``rows`` that distinguish most, at most ``size`` bytes of them, in their order."""
    rows = tuple(rows)
    places = [(-rank(value), y, x, _bytes(value) + 1) for y, row in enumerate(rows) for x, value in enumerate(row)]
    if sum(place[3] for place in places) <= size:
        return rows
    kept: list[list[str]] = [[] for _ in rows]
    chosen = []
    for _, y, x, cost in sorted(places):
        size -= cost
        if size < 0:
            break
        chosen.append((y, x))
    for y, x in sorted(chosen):
        kept[y].append(rows[y][x])
    return tuple(tuple(row) for row in kept if row)


def row_text(row: Row) -> str:
    """One line that shows ``row``; ``row_from`` reads it back."""
    return " ".join(map(_quoted, row))


def row_from(line: str) -> Row:
    """The row that ``row_text`` showed as ``line``."""
    return tuple("".join(found) for found in _SHOWN.findall(line))


def _quoted(value: str) -> str:
    """``value`` between quotes that it does not hold, where it would be read as several values without."""
    if " " not in value and value[:1] not in _QUOTES:
        return value
    return next((quote + value + quote for quote in _QUOTES if quote not in value), value)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _parsed(text: str) -> Any:
    """The object or list that ``text`` is the JSON of, else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rows_of_lines(text: str) -> list[Row]:
    rows = []
    for line in text.split("\n"):
        row = tuple(dict.fromkeys(_values_of_line(line)))
        if row:
            rows.append(row)
    return rows


def _values_of_line(line: str) -> Iterator[str]:
    for piece in _PIECE.findall(line):
        if piece[0] in "\"'`" and len(piece) > 2:
            inner = piece[1:-1].strip()
            if inner:
                yield inner
            continue
        value = piece.strip(_EDGE)
        if rank(value) and not (value.isdigit() and len(value) < 3) and len(value) > 1:
            yield value[:LONG_CHARS]


def _rows_of_json(root: Any) -> Iterator[Row]:
    """A row for each object or list, parents first; a value that the row before showed under the same key is left out."""
    above: dict[str, str] = {}
    for key, items in _containers(root):
        row = [key] if rank(key) == 3 and not _is_long(key) else []
        for name, item in items:
            value = _scalar(name, item)
            if value and above.get(name) != value:
                row.append(value)
                above[name] = value
        for start in range(0, len(row), _ROW_VALUES):
            yield _without_repeats(row[start : start + _ROW_VALUES])


def _long_strings(root: Any) -> Iterator[str]:
    for _, items in _containers(root):
        yield from (item for _, item in items if isinstance(item, str) and _is_long(item))


def _containers(root: Any) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Each object and list under ``root`` as its key and its items, parents first; an item of a list has the list's key."""
    stack = [("", root)]
    while stack:
        key, container = stack.pop()
        items = list(container.items()) if isinstance(container, dict) else [(key, item) for item in container]
        yield key, items
        stack += [(name, item) for name, item in reversed(items) if isinstance(item, dict | list)]


def _is_long(text: str) -> bool:
    return len(text) > LONG_CHARS or "\n" in text


def _scalar(key: str, item: Any) -> str:
    """The value that a JSON scalar shows, '' for none: numbers of three digits or more go with their key."""
    if isinstance(item, str):
        return "" if _is_long(item) or (len(item) <= 3 and not rank(item)) else item
    if isinstance(item, bool) or not isinstance(item, int | float):
        return ""
    text = json.dumps(item)
    return f"{key}={text}" if len(text) > 2 else ""


def _without_repeats(row: Sequence[str]) -> Row:
    """Each value once, and none that another of the row holds."""
    unique = dict.fromkeys(row)
    return tuple(value for value in unique if not any(value in other and value != other for other in unique))
