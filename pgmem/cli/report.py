"""What a replay found, as values for programs and as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from pgmem.cli.conversations import BadLine
from pgmem.cli.figures import Figures, NoSummary, Times, times
from pgmem.cli.render import counted, one_line, table

_MOST_CAUSE = 300


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line that was not played, or not to its end.

    Attributes:
        conversation: its number: its line, from 0.
        line: its line as editors count it, from 1.
        reason: what is wrong with it.
    """

    conversation: int
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of one replay; the names are those of ``--json``. Tokens are without the caller's system prompt.

    What the model read and wrote is counted for what made nodes; ``no_summary_causes`` has the most frequent one first.
    """

    conversations: int
    turns: int
    nodes: int
    contexts: int
    over_budget: int
    tokens_full: int
    tokens_sent: int
    reduction: float
    largest_context_tokens: int
    model_calls: int
    model_input_tokens: int
    model_output_tokens: int
    no_summary: int
    no_summary_causes: tuple[NoSummary, ...]
    append_ms: Times
    context_ms: Times
    compact_ms: Times
    round_trips: int
    seconds: float
    skipped: tuple[Skipped, ...]
    failed: tuple[Skipped, ...]


def report_of(
    figures: Figures, skipped: Sequence[BadLine], failed: Sequence[BadLine] = (), *, round_trips: int, seconds: float
) -> Report:
    """The report of a replay that has ended."""
    causes = tuple(sorted(figures.no_summaries.values(), key=lambda cause: -cause.times))
    return Report(
        conversations=figures.conversations,
        turns=figures.turns,
        nodes=figures.nodes,
        contexts=figures.contexts,
        over_budget=figures.over_budget,
        tokens_full=figures.full_tokens,
        tokens_sent=figures.sent_tokens,
        reduction=round(figures.reduction, 4),
        largest_context_tokens=figures.largest_tokens,
        model_calls=figures.model_calls,
        model_input_tokens=figures.model_input_tokens,
        model_output_tokens=figures.model_output_tokens,
        no_summary=sum(cause.times for cause in causes),
        no_summary_causes=causes,
        append_ms=times(figures.append_seconds),
        context_ms=times(figures.context_seconds),
        compact_ms=times(figures.compact_seconds),
        round_trips=round_trips,
        seconds=round(seconds, 3),
        skipped=_named(skipped),
        failed=_named(failed),
    )


def _named(lines: Sequence[BadLine]) -> tuple[Skipped, ...]:
    return tuple(Skipped(bad.number, bad.number + 1, bad.reason) for bad in lines)


def as_table(report: Report) -> Table:
    """The report for people."""
    made = table("", "", right=("",))
    made.show_header = False
    made.columns[0].justify = "left"
    for name, value in _rows(report):
        made.add_row(name, value)
    return made


def why_no_summary(report: Report) -> str | None:
    """The most frequent cause of a compaction without a summary, in a sentence; None where each had one."""
    if not report.no_summary_causes:
        return None
    most = report.no_summary_causes[0]
    often = f"{most.times:,} of {counted(report.no_summary, 'time')}"
    return f"no summary, most often ({often}): {most.error}: {one_line(most.first, _MOST_CAUSE)}"


def _rows(report: Report) -> list[tuple[str, str]]:
    return [
        ("conversations", f"{report.conversations:,}"),
        ("lines skipped", f"{len(report.skipped):,}"),
        *([("conversations that failed", f"{len(report.failed):,}")] if report.failed else []),
        ("turns added", f"{report.turns:,}"),
        ("nodes made", f"{report.nodes:,}"),
        ("contexts", f"{report.contexts:,}"),
        ("contexts over the budget", f"{report.over_budget:,}"),
        ("tokens of the full history", f"{report.tokens_full:,}"),
        ("tokens sent", f"{report.tokens_sent:,}"),
        ("reduction", f"{report.reduction:.1%}"),
        ("largest context, tokens", f"{report.largest_context_tokens:,}"),
        *_model_rows(report),
        ("append, median / p95", _milliseconds(report.append_ms)),
        ("context, median / p95", _milliseconds(report.context_ms)),
        ("compaction, median / p95", _milliseconds(report.compact_ms)),
        ("round trips", f"{report.round_trips:,}"),
        ("seconds", f"{report.seconds:.1f}"),
    ]


def _model_rows(report: Report) -> list[tuple[str, str]]:
    if not report.model_calls and not report.no_summary:
        return []
    return [
        ("model calls that made a node", f"{report.model_calls:,}"),
        ("tokens read for these nodes", f"{report.model_input_tokens:,}"),
        ("tokens written for these nodes", f"{report.model_output_tokens:,}"),
        ("compactions without a summary", f"{report.no_summary:,}"),
    ]


def _milliseconds(found: Times) -> str:
    if found.median is None or found.p95 is None:
        return "-"
    return f"{found.median:.2f} / {found.p95:.2f} ms"
