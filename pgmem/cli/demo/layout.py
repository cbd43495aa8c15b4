"""How the demo's pages look: headings, sentences, pictures and messages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pgmem import Message
from pgmem.cli.messages import preview, tokens_of
from pgmem.cli.render import put, table

_MOST_MESSAGES = 8


def head(page: Console, title: str, sentence: str) -> None:
    """A heading, and the sentence that teaches."""
    rule = "─" * (page.width - len(title) - 4)
    put(page, Text.assemble(("── ", "dim"), (title, "bold"), (f" {rule}", "dim")))
    say(page, sentence)


def say(page: Console, text: str, *, style: str = "") -> None:
    """A sentence."""
    put(page, Text(text, style=style))
    page.print()


def show(page: Console, drawn: RenderableType) -> None:
    """What was found, under the sentence that says so."""
    put(page, drawn, indent=2)
    page.print()


def as_rows(messages: Sequence[Message], *, cells: int, most: int = _MOST_MESSAGES) -> Table:
    """The beginnings of the first messages, and how many more there are."""
    rows = table("role", "tokens", "", right=("tokens",))
    for message in messages[:most]:
        rows.add_row(message["role"], f"{tokens_of(message):,}", Text(preview(message, cells)))
    if len(messages) > most:
        rest = messages[most:]
        rows.add_row("…", f"{sum(map(tokens_of, rest)):,}", Text(f"{len(rest)} more, verbatim", style="dim"))
    return rows
