"""How text gets to the terminal: never as markup, never as a control sequence, never cut in a pipe."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

PAGE_COLUMNS = 100
"""The widest that prose gets, and anything that is drawn to be looked at."""

PIPE_COLUMNS = 100_000
"""Wide enough for every table: what a program reads must not be cut."""

# Control characters but line feed and tab; marks that turn the direction of text; lone surrogates, which have no bytes
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def console() -> Console:
    """Standard output; as wide as the terminal, or as any table when it is none."""
    found = Console(highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = PIPE_COLUMNS
    return found


def complaints() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def inert(text: str) -> str:
    r"""``text`` with every character that a terminal could obey shown as its escape.

    Example:
        >>> inert("\x1b[2Jgone")
        '\\x1b[2Jgone'
    """
    return _UNSAFE.sub(lambda found: _escape(found[0]), text)


def one_line(text: str, most: int = PAGE_COLUMNS) -> str:
    """The beginning of ``text`` as one inert line of at most ``most`` characters."""
    line = inert(" ".join(text[: most * 10].split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def json_line(value: Any) -> str:
    """``value`` as one line of ASCII, whatever its texts hold."""
    return json.dumps(value, allow_nan=False)


def counted(number: int, noun: str) -> str:
    """The number with its noun.

    Example:
        >>> counted(1, "token"), counted(1200, "token")
        ('1 token', '1,200 tokens')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span(first_no: int, last_no: int) -> str:
    """The turns from one position to another.

    Example:
        >>> span(3, 3), span(3, 8)
        ('turn 3', 'turns 3 to 8')
    """
    return f"turn {first_no}" if first_no == last_no else f"turns {first_no} to {last_no}"


def write_line(text: str) -> None:
    """One line on standard output, as it is."""
    sys.stdout.write(text + "\n")


def put(page: Console, drawn: RenderableType, *, indent: int = 0) -> None:
    """Prints ``drawn`` without the spaces that would fill its lines up."""
    options = page.options.update(width=page.width - indent)
    for line in page.render_lines(drawn, options, pad=False):
        kept = list(line)
        while kept and not kept[-1].text.strip():
            kept.pop()
        if kept:
            kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
        page.print(Segments([Segment(" " * indent), *kept, Segment.line()] if kept else [Segment.line()]), end="")


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table with these headings, numbers in ``right`` aligned to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(Text(column), justify="right" if column in right else "left", overflow="fold")
    return made


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
