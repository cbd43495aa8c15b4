"""Text on the terminal."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from pgmem.cli.render import PAGE_COLUMNS, inert, json_line, one_line, put, table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("bell\a back\b cr\r", "bell\\x07 back\\x08 cr\\x0d"),
        ("\x9b31m", "\\x9b31m"),
        ("\x7f", "\\x7f"),
        ("left \u202e right", "left \\u202e right"),
        ("half \ud83d", "half \\ud83d"),
        ("two\nlines\tand ünïcode 🙂", "two\nlines\tand ünïcode 🙂"),
    ],
)
def test_what_a_terminal_could_obey_is_shown_as_its_escape(text, shown):
    assert inert(text) == shown


def test_one_line_joins_lines_and_ends_with_an_ellipsis_when_it_is_cut():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * 500) == "x" * (PAGE_COLUMNS - 1) + "…"
    assert one_line("abc", 3) == "abc"


def test_json_is_ascii_whatever_the_text_holds():
    assert json_line({"text": "é\ud83d\0"}) == '{"text": "\\u00e9\\ud83d\\u0000"}'


def test_markup_in_stored_text_stays_text():
    rows = table("text")
    rows.add_row(Text("[bold red]hi[/] :smile: [link=http://x]y[/link]"))
    page = Console(file=io.StringIO(), width=100, force_terminal=True, markup=False, emoji=False)

    put(page, rows)

    assert "[bold red]hi[/] :smile: [link=http://x]y[/link]" in page.file.getvalue()


def test_lines_are_not_filled_up_with_spaces():
    rows = table("a", "b")
    rows.add_row("1", "long text")
    rows.add_row("2", "")
    page = Console(file=io.StringIO(), width=60)

    put(page, rows, indent=2)

    lines = page.file.getvalue().splitlines()
    assert lines == ["  a  b", "  1  long text", "  2"]
