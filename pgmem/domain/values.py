"""What distinguishes in a text: the values that tell it from others of its kind, taken without asking a model.

A *value* is a piece of text that nobody could guess from the words around it: an identifier, a path, an address, a date,
a number, a name, a title, a quoted string. Form tells it, not vocabulary: digits, inner punctuation, capitals, quotes,
a script without case, a place of its own (a JSON string, a cell of a table). Plain lower-case words of running text,
punctuation and one- or two-digit numbers can be guessed, or say nothing alone, and are left out.

Values stay in *rows*, one for each line of text or each object of JSON: what stood together can still be read together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import Any

Row = tuple[str, ...]
"""The values of one line or one JSON object, in order."""

RANKS = 5
"""How many ranks of values there are, from 0."""

_HEAD_CHARS = 196_608
_TAIL_CHARS = 65_536
"""Of a longer text only so much of its beginning and of its end is looked at: the work on one text is bounded."""

_LONG_CHARS = 300
_LONG_WORDS = 10
"""A string longer than this, or of several lines, is a text that holds values, not a value."""

_NAME_CHARS = 20
"""A longer word without digits or marks is a sentence of a script without spaces, not a name."""

_TITLE_WORDS = 5
"""A shorter line is a title or a label, not running text."""

_ROW_VALUES = 32
"""A longer row goes on in the next one."""

_PIECE = re.compile(
    r"[a-zA-Z][\w+.-]{1,20}://[^\s\"'<>`)\]}|]+"
    r"|\"[^\"\n]{2,100}\"|(?<!\w)'[^'\n]{2,100}'(?!\w)|`[^`\n]{2,100}`"
    r"|(?:[\w/.@:#$%&+=~?!*\\-]|(?<=\d),(?=\d))+"
)
_BEFORE = ":!?*=+&%\\…"
_AFTER = ".:!?*#=+&$~\\-…"
_HIRAGANA = re.compile(r"[\u3040-\u309f]+")
"""Japanese grammar between the words of a script that has no spaces."""

_SENTENCE_END = re.compile(r"[。！？]")
_COUNTER = re.compile(r"\s*(\d+)\b")
_FIELDS = (re.compile(r"\t+"), re.compile(r"\|"), re.compile(r" {2,}"), re.compile(r"[,;]"))
_QUOTES = "\"'`"
_SHOWN = re.compile(r"\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|(\S+)")


def rows_of(text: str) -> list[Row]:
    """The rows of values of ``text``: JSON by object, a table by its cells, anything else by line.

    Example:
        >>> rows_of('{"id": "A-17", "ok": true, "by": {"name": "Ann Lee", "age": 7}}')
        [('A-17',), ('Ann Lee',)]
        >>> rows_of("failed to open /etc/app.conf at 10:42:07")
        [('/etc/app.conf', '10:42:07')]
    """
    short, long = _parts(text, _telling)
    return [*short, *long]


def argument_values(arguments: str) -> tuple[Row, list[Row]]:
    """The values of a call's argument text that can stand on one line, and the rows of its longer strings."""
    short, long = _parts(arguments, _any)
    return tuple(dict.fromkeys(chain.from_iterable(short))), long


def rank(value: str) -> int:
    """How much ``value`` distinguishes, by its form.

    4 names one thing anywhere (a path, an address, a long identifier), 3 is an identifier, 2 a number or a compound,
    1 a name, 0 a plain word.
    """
    digits = sum(map(str.isdigit, value))
    letters = any(map(str.isalpha, value))
    if len(value) >= 5 and (digits > 4 or (digits and letters) or "/" in value or "@" in value):
        return 4 if value.count("/") > 2 or "@" in value[1:] or len(value) > 30 else 3
    if digits or " " in value or value[1:] != value[1:].lower() or any(mark in value[1:-1] for mark in "_/@.:-"):
        return 2
    return int(value != value.lower() or (letters and value == value.upper()))


def trim(rows: Iterable[Row], sizes: Sequence[int], known: Set[str] = frozenset()) -> tuple[Row, ...]:
    """``rows`` where they fit the least of ``sizes``, in characters; else the values that distinguish most, in their order.

    Then those of rank ``n`` stay only until ``sizes[n]`` characters are kept, each once, and none that is ``known``.
    """
    rows = tuple(rows)
    if sum(len(value) + 1 for row in rows for value in row) <= min(sizes):
        return rows
    first = {value: (y, x) for y, row in reversed([*enumerate(rows)]) for x, value in reversed([*enumerate(row)])}
    chosen = []
    total = 0
    for negative, place, value in sorted((-rank(v), place, v) for v, place in first.items() if v not in known):
        cost = len(value) + 1
        if total + cost <= sizes[-negative]:
            total += cost
            chosen.append((place, value))
    kept: dict[int, list[str]] = {}
    for (y, _), value in sorted(chosen):
        kept.setdefault(y, []).append(value)
    return tuple(map(tuple, kept.values()))


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


def _parts(text: str, show: Callable[[str, Any], str]) -> tuple[list[Row], list[Row]]:
    """The rows of the objects of JSON, and those of its long strings or of a text that is not JSON."""
    if len(text) > _HEAD_CHARS + _TAIL_CHARS:
        text = text[:_HEAD_CHARS] + "\n" + text[-_TAIL_CHARS:]
    parsed = _parsed(text)
    if parsed is None:
        return [], list(_rows_of_lines(text))
    return list(_rows_of_json(parsed, show)), list(chain.from_iterable(map(_rows_of_lines, _long_strings(parsed))))


def _parsed(text: str) -> Any:
    """The object or list that ``text`` is the JSON of, else None."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _rows_of_json(root: Any, show: Callable[[str, Any], str]) -> Iterator[Row]:
    """A row for each object or list, parents first, of what ``show`` makes of each key and scalar."""
    above: dict[str, str] = {}
    for key, items in _containers(root):
        row = [key] if rank(key) > 2 and not _is_text(key) else []
        row += _changed(((name, show(name, item)) for name, item in items), above)
        for start in range(0, len(row), _ROW_VALUES):
            yield _without_repeats(row[start : start + _ROW_VALUES])


def _long_strings(root: Any) -> Iterator[str]:
    for _, items in _containers(root):
        yield from (item for _, item in items if isinstance(item, str) and _is_text(item))


def _containers(root: Any) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Each object and list under ``root``: its key and its items, parents first; an item of a list has the list's key."""
    stack = [("", root)]
    while stack:
        key, container = stack.pop()
        items = list(container.items()) if isinstance(container, dict) else [(key, item) for item in container]
        yield key, items
        stack += [(name, item) for name, item in reversed(items) if isinstance(item, dict | list)]


def _changed(fields: Iterable[tuple[str, str]], above: dict[str, str]) -> Iterator[str]:
    """The values of ``fields`` that the row above did not show under the same name, as in a table with blanks."""
    for name, value in fields:
        if value and above.get(name) != value:
            above[name] = value
            yield value


def _is_text(string: str) -> bool:
    if len(string) > _LONG_CHARS or "\n" in string or _SENTENCE_END.search(string):
        return True
    return sum(map(str.isalpha, string.split())) >= _LONG_WORDS


def _any(key: str, item: Any) -> str:
    """What a JSON scalar shows: a string itself, numbers and true with their key, '' for nothing."""
    if isinstance(item, str):
        return "" if _is_text(item) else item
    return f"{key}={json.dumps(item)}" if item is True or type(item) in (int, float) else ""


def _telling(key: str, item: Any) -> str:
    """What a JSON scalar shows if it tells anything: not a flag, a number of one or two digits, a short plain word."""
    if isinstance(item, str):
        return "" if len(item) <= 3 and not rank(item) else _any(key, item)
    return "" if item is True or len(str(item)) < 3 else _any(key, item)


def _without_repeats(row: Sequence[str]) -> Row:
    """Each value once, and none that another of the row holds."""
    unique = dict.fromkeys(row)
    return tuple(value for value in unique if not any(value in other and value != other for other in unique))


def _rows_of_lines(text: str) -> Iterator[Row]:
    lines = text.split("\n")
    field, width = _table(lines)
    above: dict[str, str] = {}
    counter = -1
    for line in lines:
        number = _COUNTER.match(line)
        counts = number is not None and int(number[1][:9]) == counter + 1
        counter = int(number[1][:9]) if number else -1
        cells = field.split(line.strip()) if field else []
        if cells and len(cells) == width:
            row = tuple(_changed(((str(x), _cell(cell)) for x, cell in enumerate(cells)), above))
        else:
            row = tuple(dict.fromkeys(_values_of_line(line[number.end() :] if number and counts else line)))
        if row:
            yield row


def _table(lines: Sequence[str]) -> tuple[re.Pattern[str] | None, int]:
    """What parts the cells of most lines, and into how many, where the lines are a table."""
    filled = [line.strip() for line in lines if line.strip()]
    for field in _FIELDS:
        width, times = Counter(len(field.findall(line)) + 1 for line in filled).most_common(1)[0] if filled else (1, 0)
        if width > 2 and times > 2 and times > len(filled) / 2:
            return field, width
    return None, 0


def _cell(cell: str) -> str:
    value = cell.strip(" \"'")
    return "" if len(value) > _LONG_CHARS or (len(value) < 3 and not rank(value)) else value


def _values_of_line(line: str) -> Iterator[str]:
    """The values of a line, and the short words between two names: they are parts of a title."""
    pieces = list(_pieces(line))
    between: list[str] | None = None
    for place, piece in enumerate(pieces):
        value, is_value = _value(piece)
        if is_value and not _only_opens_a_sentence(pieces, place):
            is_name = value[:1].isupper()
            if is_name and between:
                yield from between
            yield value
            between = [] if is_name else None
        elif between is not None and len(between) < 2 and value.isalpha() and len(value) < 4:
            between.append(value)
        else:
            between = None


def _only_opens_a_sentence(pieces: Sequence[str], place: int) -> bool:
    """Whether the piece has a capital only because running text begins there, so that it is no name."""
    if len(pieces) < _TITLE_WORDS or not pieces[place].istitle() or not pieces[place].isalpha():
        return False
    if place > 0 and not (pieces[place - 1][-1] in ".!?" and pieces[place - 1][0].isalpha()):
        return False
    following = next((piece for piece in pieces[place + 1 : place + 4] if len(piece) > 3), "")
    return not following[:1].isupper()


def _pieces(line: str) -> Iterator[str]:
    for piece in _PIECE.findall(line):
        yield from (piece,) if piece.isascii() or piece[0] in _QUOTES else filter(None, _HIRAGANA.split(piece))


def _value(piece: str) -> tuple[str, bool]:
    """A piece of a line without what only surrounds it, and whether it is a value."""
    if piece[0] in _QUOTES and len(piece) > 2:
        return piece[1:-1], any(map(str.isalnum, piece))
    value = piece.lstrip(_BEFORE).rstrip(_AFTER)
    if not 1 < len(value) <= _LONG_CHARS or (value.isdigit() and len(value) < 3):
        return value, False
    distinct = rank(value)
    return value, distinct > 1 or (distinct == 1 and len(value) <= _NAME_CHARS)
