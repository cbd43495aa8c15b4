"""The pages of the demo's second session: a summary that fails, one that passes, and an attempt that is left behind."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from pgmem import Verdict
from pgmem.cli.demo.layout import as_rows, head, say, show
from pgmem.cli.demo.task import ACTOR, Task
from pgmem.cli.drawing import draw
from pgmem.cli.render import inert
from pgmem.domain.context import HINTS_HEADING

_COLUMNS_BEFORE_TEXT = 25
_MOST_RAW = 3


def show_task(page: Console, task: Task) -> None:
    """Prints all of it."""
    _failed(page, task)
    _raw(page, task)
    _passed(page, task)
    _left(page, task)
    head(page, "All of it in one tree", "Nothing is gone: both summaries, both verdicts and all turns are stored.")
    show(page, draw(task.shape))


def _failed(page: Console, task: Task) -> None:
    head(
        page,
        "A summary that drops a decision",
        f"A second session, with a model. It is scripted: it reads {task.requests} answers off a script, behind a real HTTP "
        f"endpoint on {_place(task)}. compress() asks it to sum up {len(task.first.after.messages)} turns, maintain() whether "
        "that may stand.",
    )
    show(page, Text(inert(task.first.node.summary), style="dim"))
    _verdict(page, task.first.verdict)


def _raw(page: Console, task: Task) -> None:
    before, after = task.first.shown, task.first.after
    head(
        page,
        "Raw turns in its place",
        f"The node left the path in the verdict's own commit: instead of {before.tokens:,} tokens with a hole in them the model "
        f"is sent the {len(after.messages)} turns verbatim, {after.tokens:,} tokens.",
    )
    show(page, as_rows(after.messages, cells=page.width - _COLUMNS_BEFORE_TEXT, most=_MOST_RAW))


def _passed(page: Console, task: Task) -> None:
    after = task.second.after
    head(
        page,
        "The second attempt, with a hint",
        "The next compress() of these turns tells the model what the judge said. Its request holds:",
    )
    show(page, Text(inert("\n".join(task.told)), style="cyan"))
    say(page, f"What it writes now is shown in the place of the turns, {after.tokens:,} tokens:")
    show(page, Text(inert(task.second.node.summary), style="dim"))
    _verdict(page, task.second.verdict)


def _left(page: Console, task: Task) -> None:
    head(
        page,
        "An attempt that is left behind",
        f"The agent opens the change in the wrong mode. {ACTOR} calls revise() with a note: {task.left} turns leave the context, "
        "and the next one has the note. This is all that is sent, and the note whole:",
    )
    show(page, as_rows(task.next.messages, cells=page.width - _COLUMNS_BEFORE_TEXT))
    hints = next(str(message["content"]) for message in task.next.messages if _is_hints(str(message["content"])))
    show(page, Text(inert(hints.removeprefix(HINTS_HEADING)), style="cyan"))


def _verdict(page: Console, verdict: Verdict) -> None:
    said = [f"verdict: {verdict.outcome}. {verdict.reason}", *(f"missing: {item}" for item in verdict.missing)]
    say(page, inert("\n".join(said)), style="bold")


def _is_hints(content: str) -> bool:
    return content.startswith(HINTS_HEADING)


def _place(task: Task) -> str:
    return task.base_url.removeprefix("http://").partition(":")[0]
