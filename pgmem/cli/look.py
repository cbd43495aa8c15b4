"""``pgmem sessions``, ``context``, ``turns`` and ``verify``: what is stored, for people and for programs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.text import Text

import pgmem
from pgmem import Session, Turn, TurnStatus
from pgmem.cli.messages import as_page, preview
from pgmem.cli.options import AsJson, NamespaceName, Schema, SessionKey, Tenant, Url
from pgmem.cli.reading import Place, opened
from pgmem.cli.render import console, counted, inert, json_line, one_line, put, table, write_line
from pgmem.memory import MAIN

SESSIONS_EXAMPLE = "Example: pgmem sessions replay/ --tenant replay"
CONTEXT_EXAMPLE = "Example: pgmem context user-42 --as-of 17 --json"
TURNS_EXAMPLE = "Example: pgmem turns user-42 --status compressed --json | jq .message"
VERIFY_EXAMPLE = "Example: pgmem verify user-42 && echo untouched"

_COLUMNS_BEFORE_TEXT = 46


def sessions(
    prefix: Annotated[
        str | None, typer.Argument(metavar="[PREFIX]", help="Only keys that begin with it.", show_default=False)
    ] = None,
    tenant: Tenant = "default",
    as_json: AsJson = False,
    url: Url = None,
    schema: Schema = None,
) -> None:
    """List a tenant's sessions in the order of their keys, with when they were made and what for."""

    async def show() -> None:
        rows = table("session", "made at", "goal")
        async with pgmem.open(url, tenant=tenant, schema=schema) as memory:
            async for session in memory.sessions(prefix):
                if as_json:
                    write_line(json_line(_session_json(session)))
                else:
                    made_at = f"{session.created_at:%Y-%m-%d %H:%M:%S%z}"
                    rows.add_row(Text(inert(session.key)), made_at, Text(one_line(session.goal or "")))
        if not as_json:
            put(console(), rows)

    asyncio.run(show())


def context(
    session: SessionKey,
    system: Annotated[str | None, typer.Option(help="Your system prompt, which is never stored.", show_default=False)] = None,
    budget_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most that all messages may hold.", show_default=False)
    ] = None,
    as_of: Annotated[
        int | None, typer.Option(min=0, metavar="NO", help="As it was when this fact was the newest.", show_default=False)
    ] = None,
    namespace: NamespaceName = MAIN,
    tenant: Tenant = "default",
    as_json: AsJson = False,
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Show what the model would be sent now, or was sent at any moment before.

    --as-of takes a fact's position, as `pgmem turns` and `pgmem tree` show them. With --json, one object: messages,
    ready to send, and tokens, nodes, branch, no and through.
    """
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)

    async def read() -> pgmem.Context:
        async with opened(place) as found:
            return await found.context(system, budget_tokens=budget_tokens, as_of=as_of)

    built = asyncio.run(read())
    if as_json:
        write_line(json_line(_context_json(built)))
        return
    page = console()
    page.print(as_page(built.messages))
    size = f"{counted(len(built.messages), 'message')}, {counted(built.tokens, 'token')}"
    page.print(f"{size}, as of fact {built.no} on branch {built.branch}")


def turns(
    session: SessionKey,
    status: Annotated[TurnStatus | None, typer.Option(help="Only these.", show_default=False)] = None,
    after: Annotated[int, typer.Option(min=0, metavar="NO", help="Only turns past this position.")] = 0,
    namespace: NamespaceName = MAIN,
    tenant: Tenant = "default",
    as_json: AsJson = False,
    url: Url = None,
    schema: Schema = None,
) -> None:
    """List every turn ever stored, in order, with its status and the node that stands for it.

    A turn is active, compressed behind a node, or left behind: abandoned by Revise, erased by Erase. It is never
    deleted. People see the beginning of each text; --json prints one object a line, the message as it was added.
    """
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)

    async def show() -> None:
        page = console()
        most = max(page.width - _COLUMNS_BEFORE_TEXT, 20) if page.is_terminal else 100
        if not as_json:
            page.print(Text(f"{'no':>7}  {'status':<10}  {'node':>5}  {'tokens':>7}  {'role':<9}  text", style="bold"))
        async with opened(place) as found:
            async for turn in found.turns(after, status):
                if as_json:
                    write_line(json_line(_turn_json(turn)))
                else:
                    page.print(_turn_line(turn, most))

    asyncio.run(show())


def verify(
    session: SessionKey, namespace: NamespaceName = MAIN, tenant: Tenant = "default", url: Url = None, schema: Schema = None
) -> None:
    """Check the hash chain over all facts of a tree: that none was edited, swapped or taken out since it was stored.

    Exits with 1 if one was, and says which is the first.
    """
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)

    async def read() -> int | None:
        async with opened(place) as found:
            return await found.verify()

    broken = asyncio.run(read())
    if broken is None:
        write_line("the chain is whole: every fact is as it was stored")
        return
    write_line(f"the chain breaks at fact {broken}: it, or what came before it, is not as it was stored")
    raise typer.Exit(1)


def _turn_line(turn: Turn, most: int) -> Text:
    style = "" if turn.status in (TurnStatus.ACTIVE, TurnStatus.COMPRESSED) else "dim"
    node = "" if turn.node is None else str(turn.node)
    start = f"{turn.no:>7}  {turn.status or '':<10}  {node:>5}  {turn.tokens:>7,}  {turn.role:<9}  "
    return Text(start + preview(turn.message, most), style=style)


def _turn_json(turn: Turn) -> dict[str, Any]:
    return {
        "no": turn.no,
        "branch": turn.branch,
        "status": turn.status,
        "node": turn.node,
        "pinned": turn.pinned,
        "tokens": turn.tokens,
        "idempotency_key": turn.idempotency_key,
        "created_at": turn.created_at.isoformat(),
        "message": turn.message,
    }


def _context_json(built: pgmem.Context) -> dict[str, Any]:
    return {
        "messages": built.messages,
        "tokens": built.tokens,
        "nodes": [node.no for node in built.nodes],
        "branch": built.branch,
        "no": built.no,
        "through": built.through,
    }


def _session_json(session: Session) -> dict[str, Any]:
    made_at = session.created_at.isoformat()
    return {"key": session.key, "goal": session.goal, "metadata": session.metadata, "created_at": made_at}
