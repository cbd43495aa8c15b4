"""``pgmem replay``: plays a file of conversations, and shows what was sent and how long it took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Literal, TextIO

import typer
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

import pgmem
from pgmem import (
    DatabaseError,
    InvalidArgument,
    Memory,
    ModelError,
    PgmemError,
    Policy,
    Session,
    SetupError,
    Strategy,
    SummaryFailed,
    settings,
)
from pgmem.cli.conversations import BadLine, Conversation, check_text_file, count_lines, read
from pgmem.cli.figures import Figures
from pgmem.cli.models import KEY_HELP, Asked, BaseUrl, ModelName, RequestSeconds, chosen_model, connected
from pgmem.cli.options import Schema, Url
from pgmem.cli.player import Step, play
from pgmem.cli.render import complaints, console, counted, inert, json_line, put, write_line
from pgmem.cli.report import Report, as_table, report_of, why_no_summary

TENANT = "replay"
"""Who owns the sessions of all replays."""

TOLD_EVERY_SECONDS = 5.0
"""How often a replay without a terminal says how far it is."""

EXAMPLE = (
    "Examples:\n\n\b\n"
    "  pgmem replay talks.jsonl\n"
    "  pgmem replay talks.jsonl --threshold 8 --keep-recent 4 --dump contexts.jsonl\n"
    "  pgmem replay talks.jsonl --strategy llm --model llama3.2 --base-url http://localhost:11434/v1\n"
    "  pgmem replay talks.jsonl --json | jq .reduction\n\n"
    f"{KEY_HELP}"
)

_DEFAULT = Policy()


@dataclass(slots=True)
class _Run:
    """One replay: what it reads and writes, and what it has found so far."""

    file: Path
    source: IO[bytes]
    dump: TextIO | None
    progress: Progress
    task: TaskID
    budget_tokens: int | None
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    figures: Figures = field(default_factory=Figures)
    skipped: list[BadLine] = field(default_factory=list)
    failed: list[BadLine] = field(default_factory=list)
    round_trips: int = 0

    def key(self, conversation: Conversation) -> str:
        """The conversation's session: no other replay has it."""
        stem = self.file.stem.encode(errors="replace").decode()
        return f"replay/{stem}/{self.began:%Y%m%dT%H%M%S.%fZ}/{conversation.number}"

    def so_far(self, lines: int) -> str:
        """How far it is, when so many lines are done."""
        [task] = self.progress.tasks
        of = f"{lines:,}" if task.total is None else f"{lines:,} of {task.total:,.0f}"
        one = (lines if task.total is None else task.total) == 1
        return f"{of} conversation{'s'[one:]}, {counted(self.figures.turns, 'turn')}"

    def seconds(self) -> float:
        """How long it takes by now."""
        return (datetime.now(UTC) - self.began).total_seconds()

    def report(self) -> Report:
        """What came out."""
        return report_of(self.figures, self.skipped, self.failed, round_trips=self.round_trips, seconds=self.seconds())


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL in UTF-8.", show_default=False)],
    threshold: Annotated[int, typer.Option(help="Active turns at which it compacts.")] = _DEFAULT.threshold,
    keep_recent: Annotated[int, typer.Option(help="The newest turns, which stay verbatim.")] = _DEFAULT.keep_recent,
    max_summary_tokens: Annotated[int, typer.Option(help="The most that the memory message holds.")] = _DEFAULT.max_summary_tokens,
    strategy: Annotated[Literal["tool_clear", "llm"], typer.Option(help="How a summary is made.")] = "tool_clear",
    model: ModelName = None,
    base_url: BaseUrl = None,
    timeout: RequestSeconds = None,
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most that a context holds, the system prompt included.", show_default=False)
    ] = None,
    dump: Annotated[
        Path | None, typer.Option(metavar="CONTEXTS", help="Write every context to this file, one a line.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Play conversations turn by turn, as an agent would live them, and show what compaction saves.

    Each line of FILE is one conversation: {"messages": [OpenAI chat messages]}; other keys are ignored. A first system
    message is the caller's prompt: it is sent with every context and never stored. Before each assistant message the
    context is compiled, then the message is added, then the policy may compact. Each conversation gets a session of its
    own, replay/<file>/<time>/<number>, of the tenant "replay"; its number is its line in FILE, from 0.

    A line that cannot be played is named and skipped as a whole. A context over --budget-tokens is counted and left
    out, and its conversation goes on. A conversation that fails half way is named and counted, and the next one is
    played; a failure of the database ends the replay. CONTEXTS gets for each assistant message {"conversation": its
    number, "index": the message's position in "messages", "messages": what would have been sent}.

    With --strategy llm a model writes the summaries, unjudged, and what its server counted for the nodes is shown. Where
    it writes none that can stand, the turns stay verbatim, and the most frequent cause is shown; a server that does not
    answer ends the replay.

    Exits with 0 when every line was played, with 1 when one was skipped or failed or there was none, with 2 when FILE or
    CONTEXTS cannot be used.
    """
    policy = _policy(threshold, keep_recent, max_summary_tokens, strategy)
    asked = chosen_model(model, base_url, timeout, option="--strategy llm", wanted=policy.strategy is Strategy.LLM)
    with _source(file) as source, _target(dump, file) as target, _progress() as progress:
        task = progress.add_task("", total=count_lines(source))
        run = _Run(file, source, target, progress, task, budget_tokens)
        asyncio.run(_replay(run, policy, asked, url, schema))
    report = run.report()
    if as_json:
        write_line(json_line({"file": str(file)} | asdict(report)))
    else:
        put(console(), as_table(report))
        if why := why_no_summary(report):
            write_line(why)
    raise typer.Exit(0 if report.conversations and not report.skipped and not report.failed else 1)


async def _replay(run: _Run, policy: Policy, asked: Asked | None, url: str | None, schema: str | None) -> None:
    most = settings.read().max_turn_bytes
    async with (
        _telling(run),
        connected(asked) as model,
        pgmem.open(url, tenant=TENANT, policy=policy, schema=schema, summary_model=model) as memory,
    ):
        for found in read(run.source, max_turn_bytes=most):
            if isinstance(found, BadLine):
                run.skipped.append(found)
                _say(run, f"skipped: conversation {found.number} (line {found.number + 1}): {found.reason}")
            else:
                await _play_or_name(run, memory, found)
        run.round_trips = memory.round_trips
    if not run.figures.conversations:
        _say(run, f"{run.file} holds no conversation that can be played")


async def _play_or_name(run: _Run, memory: Memory, conversation: Conversation) -> None:
    try:
        await _play(run, memory, conversation)
    except Exception as error:
        if _ends_all(error):
            raise
        reason = str(error) if isinstance(error, PgmemError) else f"{type(error).__name__}: {error}"
        run.failed.append(BadLine(conversation.number, reason))
        _say(run, f"failed: conversation {conversation.number} (line {conversation.number + 1}): {reason}")


def _ends_all(error: Exception) -> bool:
    # the next conversation would meet it too: no database, no model's server, no room for the dump
    if isinstance(error, SummaryFailed):
        return isinstance(error.__cause__, ModelError | TimeoutError | DatabaseError)
    return isinstance(error, DatabaseError | SetupError | OSError)


async def _play(run: _Run, memory: Memory, conversation: Conversation) -> None:
    session = await memory.session(run.key(conversation))
    async for step in play(session, conversation, figures=run.figures, budget_tokens=run.budget_tokens):
        _write(run, conversation, step)
        done = conversation.number + step.index / len(conversation.messages)
        run.progress.update(run.task, completed=done, description=run.so_far(int(done)))
    if memory.policy.strategy is Strategy.LLM:
        await _add_usage(run, session)
    run.progress.update(run.task, completed=conversation.number + 1, description=run.so_far(conversation.number + 1))


async def _add_usage(run: _Run, session: Session) -> None:
    for used in await session.usage():
        tokens = used.usage
        run.figures.add_usage(calls=used.calls, input_tokens=tokens.input_tokens, output_tokens=tokens.output_tokens)


def _write(run: _Run, conversation: Conversation, step: Step) -> None:
    if run.dump is not None and step.context is not None:
        sent = {"conversation": conversation.number, "index": step.index, "messages": step.context.messages}
        run.dump.write(json_line(sent) + "\n")


@asynccontextmanager
async def _telling(run: _Run) -> AsyncIterator[None]:
    """Says now and then how far the replay is, where no bar shows it."""
    if run.progress.console.is_terminal:
        yield
        return
    telling = asyncio.create_task(_tell(run), name="pgmem replay progress")
    try:
        yield
    finally:
        telling.cancel()


async def _tell(run: _Run) -> None:
    while True:
        await asyncio.sleep(TOLD_EVERY_SECONDS)
        [task] = run.progress.tasks
        _say(run, f"{run.so_far(int(task.completed))}, {run.seconds():.0f} s")


def _say(run: _Run, sentence: str) -> None:
    run.progress.console.print(inert(sentence))


def _policy(threshold: int, keep_recent: int, max_summary_tokens: int, strategy: str) -> Policy:
    try:
        return Policy(
            threshold=threshold,
            keep_recent=keep_recent,
            max_summary_tokens=max_summary_tokens,
            strategy=Strategy(strategy),
        )
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def _source(file: Path) -> Iterator[IO[bytes]]:
    try:
        source = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{inert(str(file))} cannot be read: {error.strerror}") from error
    with source:
        try:
            check_text_file(source)
        except InvalidArgument as error:
            raise typer.BadParameter(f"{inert(str(file))} cannot be played: {error}") from error
        yield source


@contextmanager
def _target(dump: Path | None, file: Path) -> Iterator[TextIO | None]:
    if dump is None:
        yield None
        return
    if dump.exists() and dump.samefile(file):
        raise typer.BadParameter(f"{inert(str(dump))} is the file that is played: dump into another one")
    try:
        target = dump.open("w", encoding="ascii")
    except OSError as error:
        raise typer.BadParameter(f"{inert(str(dump))} cannot be written: {error.strerror}") from error
    with target:
        yield target


def _progress() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    page = complaints()
    return Progress(
        *columns, console=page, transient=True, disable=not page.is_terminal, redirect_stdout=False, redirect_stderr=False
    )
