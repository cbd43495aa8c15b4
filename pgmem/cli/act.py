"""``pgmem compress``, ``maintain`` and ``revise``: the operations that change what the model sees."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import typer

from pgmem import Branch, CompactionSkipped, Event, Node, Outcome, SkipReason
from pgmem.cli.judging import Judged, judged, tell
from pgmem.cli.models import KEY_HELP, BaseUrl, JudgeName, Judges, ModelName, RequestSeconds, chosen_model, connected
from pgmem.cli.options import NamespaceName, Schema, SessionKey, Tenant, Url
from pgmem.cli.points import Point, in_words_of_commands
from pgmem.cli.reading import Place, opened
from pgmem.cli.render import complaints, counted, inert, span, write_line
from pgmem.memory import MAIN

COMPRESS_EXAMPLE = (
    "Examples:\n\n\b\n"
    '  pgmem compress user-42 --summary "They agreed on the blue one, 299 EUR." --label price\n'
    "  pgmem compress user-42 --strategy tool_clear --keep-recent 5\n"
    "  pgmem compress user-42 --model llama3.2 --base-url http://localhost:11434/v1\n\n"
    f"{KEY_HELP}"
)
MAINTAIN_EXAMPLE = (
    "Examples:\n\n\b\n"
    "  pgmem maintain user-42\n"
    "  pgmem maintain user-42 12 --judge llm --model gpt-5-mini || pgmem tree user-42\n"
    "  pgmem maintain user-42 --judge coverage --judge llm --model gpt-5-mini\n\n"
    f"{KEY_HELP}"
)
REVISE_EXAMPLE = (
    "Examples:\n\n\b\n"
    '  pgmem revise user-42 --after-turn 17 --note "The API wants ids, not names." --actor maren\n'
    "  pgmem revise user-42 12 --keep-turns"
)


_SKIPPED = {
    SkipReason.NOTHING_ACTIVE: "no active turn may be covered",
    SkipReason.NO_SAFE_CUT: "every cut would part a tool call from its results",
}


def compress(
    session: SessionKey,
    summary: Annotated[str | None, typer.Option(help="Your own text for the turns.", metavar="TEXT", show_default=False)] = None,
    summary_file: Annotated[
        Path | None, typer.Option(help="The same, from a file in UTF-8, as it is.", metavar="FILE", show_default=False)
    ] = None,
    strategy: Annotated[
        Literal["tool_clear", "llm"] | None, typer.Option(help="How to make one; llm where --model is given.", show_default=False)
    ] = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    timeout: RequestSeconds = None,
    label: Annotated[str | None, typer.Option(help="A short title.", metavar="TEXT", show_default=False)] = None,
    kind: Annotated[str, typer.Option(help="What it is about, in a word.", metavar="WORD")] = "topic",
    keep_recent: Annotated[int, typer.Option(min=0, help="The newest turns, which stay active.", metavar="N")] = 0,
    through: Annotated[
        int | None, typer.Option(min=1, help="The last turn that may be covered.", metavar="NO", show_default=False)
    ] = None,
    namespace: NamespaceName = MAIN,
    tenant: Tenant = "default",
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Put one summary in the place of active turns, which stay in the table: yours, or one that a strategy makes.

    tool_clear asks no model: tool results go, their values stay. llm asks a model for the updated memory. A summary of
    yours covers every turn that is active now, so name the last one that it is about with --through when others write.
    A tool call is never parted from its results.

    Exits with 1 when nothing was written, and says why.
    """
    if summary is None and summary_file is None and strategy is None and (model or base_url):
        strategy = "llm"
    text = _summary(summary, summary_file, strategy)
    asked = chosen_model(model, base_url, timeout, option="--strategy llm", wanted=strategy == "llm")
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)
    seen: list[Event] = []

    async def act() -> Node | None:
        async with connected(asked), opened(place, model=asked, on_event=seen.append) as found:
            return await found.compress(
                summary=text, label=label, kind=kind, strategy=strategy, keep_recent=keep_recent, through=through
            )

    node = asyncio.run(act())
    if node is None:
        complaints().print(f"nothing was written: {_why(seen)}")
        raise typer.Exit(1)
    write_line(
        f"node {node.no} stands for {span(node.first_no, node.last_no)}: "
        f"{counted(node.source_tokens, 'token')}, now {node.tokens:,}"
    )


def maintain(
    session: SessionKey,
    node: Annotated[
        int | None, typer.Argument(metavar="NODE", help="Its position; else the newest that is pending.", show_default=False)
    ] = None,
    judge: Judges = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    timeout: RequestSeconds = None,
    namespace: NamespaceName = MAIN,
    tenant: Tenant = "default",
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Ask a judge whether a summary may stand, and store the verdict.

    coverage checks that the values which must be kept are there, and that none is made up; it asks no model. llm asks a
    model whether the agent could work on with the summary alone. With both, in that order, the model is asked only of
    what coverage passes. A node that fails leaves the path with all that was built on it, and its turns are sent raw
    again; where 20 or more are, tool_clear puts a node in their place at once.

    Exits with 0 when the node passes or none is pending, with 1 when it fails.
    """
    judges = judge or [JudgeName.COVERAGE]
    asked = chosen_model(model, base_url, timeout, option="--judge llm", wanted=JudgeName.LLM in judges)
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)
    seen: list[Event] = []

    async def act() -> Judged | None:
        async with (
            connected(asked),
            opened(place, on_event=seen.append) as found,
            in_words_of_commands(place, found, Point(node=node)),
        ):
            return await judged(found, node, judge=[asked if name is JudgeName.LLM else name for name in judges])

    done = asyncio.run(act())
    if done is None:
        write_line("no node waits for a verdict; what tool_clear made is judged when you name it")
        return
    tell(done, seen, place)
    raise typer.Exit(1 if done.verdict.outcome is Outcome.FAIL else 0)


def revise(
    session: SessionKey,
    node: Annotated[int | None, typer.Argument(metavar="NODE", help="Go back to before this node.", show_default=False)] = None,
    after: Annotated[int | None, typer.Option(help="Go back to after this node.", metavar="NO", show_default=False)] = None,
    after_turn: Annotated[int | None, typer.Option(help="Go back to after this turn.", metavar="NO", show_default=False)] = None,
    note: Annotated[str | None, typer.Option(help="What the next attempt should know.", metavar="TEXT", show_default=False)] = None,
    keep_turns: Annotated[bool, typer.Option("--keep-turns", help="Leave nodes only; their turns are active again.")] = False,
    actor: Annotated[str | None, typer.Option(help="Who asks for it, for the audit.", metavar="NAME", show_default=False)] = None,
    namespace: NamespaceName = MAIN,
    tenant: Tenant = "default",
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Go back to a point on the active line; what lies past it is left behind, and never deleted.

    Without a point it goes back to before the newest attempt: a failed node whose turns are active, or the newest node.
    The note is shown in the contexts that follow as a "prior attempt"; what a judge said of a failed node is its note
    when you give none. Positions are those of `pgmem tree` and `pgmem turns`.
    """
    if sum(point is not None for point in (node, after, after_turn)) > 1:
        raise typer.BadParameter("name one point to go back to: NODE, --after or --after-turn")
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)
    point = Point(node=after if node is None else node, turn=after_turn, goes_back=True)

    async def act() -> Branch:
        async with opened(place) as found, in_words_of_commands(place, found, point):
            return await found.revise(node, after=after, after_turn=after_turn, note=note, keep_turns=keep_turns, actor=actor)

    branch = asyncio.run(act())
    start = "at the root" if branch.base is None else f"after node {branch.base}"
    write_line(f"branch {branch.no} starts {start}: {_left(branch)}")
    if branch.note:
        write_line(f"the next context says: prior attempt: {inert(branch.note)}")


def _left(branch: Branch) -> str:
    if branch.left_to is None:
        return "no turn is left behind"
    if branch.left_to == branch.left_from:
        return f"what stands at {branch.left_from} is left behind"
    return f"what stands from {branch.left_from} to {branch.left_to} is left behind"


def _summary(summary: str | None, file: Path | None, strategy: str | None) -> str | None:
    """The caller's own text; None when a strategy makes it."""
    if sum(way is not None for way in (summary, file, strategy)) != 1:
        raise typer.BadParameter("say how, in one way: --summary TEXT, --summary-file FILE or --strategy tool_clear|llm")
    if file is None:
        return summary
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{inert(str(file))} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{inert(str(file))} is not UTF-8 at byte {error.start}") from error


def _why(seen: list[Event]) -> str:
    return next((_SKIPPED[event.reason] for event in seen if isinstance(event, CompactionSkipped)), "the tree moved on")
