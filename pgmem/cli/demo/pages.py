"""The demo as pages of the terminal: a heading, a sentence that teaches, and what was found."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from pgmem import Context, Turn
from pgmem.cli.demo.audit import Answer
from pgmem.cli.demo.layout import as_rows, head, say
from pgmem.cli.demo.layout import show as put_under
from pgmem.cli.demo.story import POLICY, Erasure, Recalled, Story
from pgmem.cli.demo.task import Task
from pgmem.cli.demo.task_pages import show_task
from pgmem.cli.drawing import LEGEND, draw
from pgmem.cli.messages import preview
from pgmem.cli.render import PAGE_COLUMNS, console, counted, one_line, table

_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Place:
    """Where the demo ran, as it is told.

    Attributes:
        name: in words.
        url_option: the option that leads there again, or nothing.
        psql: the command that opens it.
        server_ends: what becomes of the server, or nothing.
    """

    name: str
    url_option: str
    psql: str
    server_ends: str


def show(story: Story, task: Task, answers: Sequence[Answer], *, place: Place) -> None:
    """Prints all of it."""
    page = console()
    page.width = min(page.width, PAGE_COLUMNS)
    turns = story.figures.turns
    say(
        page,
        f"An agent of a support team looks into an incident: {turns} turns, {len(story.moments)} of them its own, with tools. "
        f"Every turn is stored in {place.name}, in the session {story.key}, and is never changed or deleted.",
    )
    _tokens(page, story)
    _moments(page, story)
    _recalled(page, story.recalled)
    _tree(page, story)
    _past(page, story)
    _erased(page, story.erasure)
    show_task(page, task)
    _audited(page, answers)
    _go_on(page, story, task, place)


def _tokens(page: Console, story: Story) -> None:
    figures = story.figures
    head(
        page,
        "Tokens",
        f"When {POLICY.threshold} turns are active, pgmem puts one node in the place of all but the newest {POLICY.keep_recent}. "
        "No model is asked: tool results go, their values stay.",
    )
    most = max(moment.full_tokens for moment in story.moments)
    cells = max((page.width - 44) // 2, 1)
    rows = table("call", "whole history", "", "sent", "", right=("call", "whole history", "sent"))
    for moment in story.moments[1::2]:
        sent = Text(_bar(moment.sent_tokens, most, cells), style="cyan")
        full = Text(_bar(moment.full_tokens, most, cells), style="dim")
        rows.add_row(str(moment.call), f"{moment.full_tokens:,}", full, f"{moment.sent_tokens:,}", sent)
    put_under(page, rows)
    say(
        page,
        f"Over {figures.contexts} calls of the model: {figures.full_tokens:,} tokens of history, {figures.sent_tokens:,} sent, "
        f"{figures.reduction:.0%} less; and the longer it goes on, the more.",
    )


def _moments(page: Console, story: Story) -> None:
    head(
        page,
        "What the model is sent",
        "Your system prompt, one memory message, the newest user turn, and the active turns verbatim. One round trip. "
        "The system prompt is not in the sums.",
    )
    for name, moment in zip(("Before anything was compressed", "In the middle", "At the end"), story.shown(), strict=True):
        say(
            page,
            f"{name}, call {moment.call}: {moment.sent_tokens:,} of the {moment.full_tokens:,} tokens of the history",
            style="bold",
        )
        put_under(page, as_rows(moment.context.messages, cells=page.width - 25))


def _recalled(page: Console, recalled: Recalled) -> None:
    head(
        page,
        "What it still knows",
        f"The last call of a tool, {recalled.call}, quotes {len(recalled.values)} ids that no verbatim turn holds any more: "
        f"they were read at turn {recalled.read_at}. The memory message has {len(recalled.kept)} of the {len(recalled.values)}.",
    )
    lines = recalled.memory.splitlines()[:_MOST_LINES]
    put_under(page, Text("\n".join([*(one_line(line, page.width - 4) for line in lines), "…"]), style="dim"))


def _tree(page: Console, story: Story) -> None:
    head(page, "The tree", "Nodes cover turns; the newest cumulative one is what the model sees of them. Positions name facts.")
    put_under(page, draw(story.shape))
    say(page, LEGEND, style="dim")


def _past(page: Console, story: Story) -> None:
    moment = story.rebuilt
    verdict = "the same, byte for byte" if story.rebuilt_equal else "NOT the same"
    head(
        page,
        "Any context of the past",
        "What was sent can be built again from the facts, for an audit or a bug report, however much happened since.",
    )
    say(page, f"context(as_of={moment.context.no}), what call {moment.call} was sent: {verdict}.")
    chain = "whole, no fact was edited" if story.broken is None else f"BROKEN at fact {story.broken}"
    say(page, f"The hash chain over all {story.facts} facts of this tree: {chain}.")


def _erased(page: Console, erasure: Erasure) -> None:
    head(
        page,
        "A namespace, erased",
        "The agent followed a side track in the namespace scratch. Erase leaves all of it behind: the model sees nothing, "
        "and every turn stays in the table.",
    )
    say(page, f"before  {_size(erasure.before)}\nafter   {_size(erasure.after)}")
    put_under(page, draw(erasure.shape))
    put_under(page, _stored(erasure.turns, cells=page.width - 33))


def _audited(page: Console, answers: Sequence[Answer]) -> None:
    head(
        page,
        "Audit by SQL",
        "Views for people: turn_log, node_log, branch_log, log. pgmem_reader sees no more of a conversation.",
    )
    for answer in answers:
        say(page, answer.question, style="bold")
        put_under(page, Text(answer.statement, style="cyan"))
        put_under(page, _rows(answer.rows))


def _go_on(page: Console, story: Story, task: Task, place: Place) -> None:
    head(page, "Go on", f"All of this is still there. {place.server_ends}".rstrip())
    commands = (
        *_to_find_the_command(),
        f"pgmem tree {story.key} --tenant demo{place.url_option}",
        f"pgmem turns {story.key} --tenant demo{place.url_option} | less",
        f"pgmem tree {task.key} --tenant demo{place.url_option}",
        place.psql,
        f"pgmem replay your-conversations.jsonl{place.url_option}",
    )
    for command in commands:
        page.print(Text(f"  {command}", style="cyan"), soft_wrap=True)
    page.print()
    say(page, "README.md shows the same in Python.")


def _to_find_the_command() -> list[str]:
    """What lets the shell find ``pgmem``, where it does not yet."""
    script = Path(sys.prefix) / "bin" / "activate"
    return [] if shutil.which("pgmem") or not script.exists() else [f". {shlex.quote(os.path.relpath(script))}"]


def _stored(turns: Sequence[Turn], *, cells: int) -> Table:
    rows = table("turn", "status", "role", "", right=("turn",))
    for turn in turns:
        rows.add_row(str(turn.no), str(turn.status), str(turn.role), Text(preview(turn.message, cells)))
    return rows


def _rows(found: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not found:
        return Text("(no row)", style="dim")
    numbers = [name for name, value in found[0].items() if isinstance(value, int)]
    rows = table(*found[0], right=numbers)
    for row in found:
        rows.add_row(*(Text("" if value is None else one_line(str(value))) for value in row.values()))
    return rows


def _size(context: Context) -> str:
    return f"{counted(len(context.messages), 'message')}, {counted(context.tokens, 'token')} are sent"


def _bar(tokens: int, most: int, cells: int) -> str:
    return "█" * max(round(tokens / most * cells), 1 if tokens else 0)
