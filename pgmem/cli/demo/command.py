"""The command ``pgmem demo``: where it runs, and in which order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

import pgmem
from pgmem import settings as settings_module
from pgmem.cli.demo import pages
from pgmem.cli.demo.audit import Answer, ask
from pgmem.cli.demo.pages import Place
from pgmem.cli.demo.story import POLICY, Story, live
from pgmem.cli.demo.task import Task, live_task
from pgmem.cli.options import Url
from pgmem.cli.render import complaints
from pgmem.cli.urls import without_password
from pgmem.operations import opening
from pgmem.settings import Settings
from pgmem.store import embedded

TENANT = "demo"

EXAMPLE = "Example: pgmem demo"

_ENDS = "The commands start the embedded server again where it has ended."


def demo(
    url: Url = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the embedded server running, if the demo starts it.")] = False,
) -> None:
    """Live through an incident with an agent, and show what pgmem kept, what it sent, and how to audit it.

    Needs no API key. A conversation of 49 turns with tools is stored in a session of its own, of the tenant "demo". You
    see the tokens sent against the full history, what the model was sent at three moments, the tree, a context of the
    past built again, and a namespace that is erased. In a second session a scripted model, behind an HTTP endpoint of
    its own, writes a summary that fails its judge, and one that passes; an attempt is left behind with a note. Then SQL
    audits it. What it stores stays; the embedded server that it starts ends with it, unless you say --keep.
    """
    settings = settings_module.read()
    place = url or settings.database_url
    if place is None:
        complaints().print("Starting a Postgres of its own; the first time it is made, which takes a few seconds ...")
        embedded.start(settings.home, pg_bin=settings.pg_bin, keep_running=keep)
        opening.ready_embedded(settings)
    complaints().print("Playing the conversation, a few seconds more ...")
    story, task, answers = asyncio.run(_lived(url, place, settings))
    pages.show(story, task, answers, place=_told(url, place))


async def _lived(url: str | None, place: str | None, settings: Settings) -> tuple[Story, Task, tuple[Answer, ...]]:
    key = f"demo/{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    async with pgmem.open(url, tenant=TENANT, policy=POLICY) as memory:
        story = await live(memory, key)
    task = await live_task(url, tenant=TENANT, key=f"{key}/task")
    reader = place or opening.ready_embedded(settings, user=opening.READER_ROLE)
    return story, task, await ask(reader, settings, key)


def _told(url: str | None, place: str | None) -> Place:
    if url is not None:
        shown = without_password(url)
        return Place("your Postgres", f" --url '{shown}'", f"psql '{shown}'", "")
    if place is not None:
        return Place("your Postgres", "", 'psql "$(pgmem db url)"', "")
    return Place("the embedded Postgres", "", 'psql "$(pgmem db url --role reader)"', _ENDS)
