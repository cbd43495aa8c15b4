"""``pgmem tree``: the state tree of a session."""

from __future__ import annotations

import asyncio

from rich.text import Text

from pgmem.cli.drawing import LEGEND, Shape, draw, read_shape
from pgmem.cli.options import NamespaceName, Schema, SessionKey, Tenant, Url
from pgmem.cli.reading import Place, opened
from pgmem.cli.render import console, put
from pgmem.memory import MAIN

EXAMPLE = "Example: pgmem tree user-42 --namespace scratch"


def tree(
    session: SessionKey, namespace: NamespaceName = MAIN, tenant: Tenant = "default", url: Url = None, schema: Schema = None
) -> None:
    """Draw the state tree: the summaries on the active path, the active turns, and all that was left behind.

    A full dot marks what the model sees, a half one what a newer memory has taken in, an empty one what was left
    behind: abandoned by Revise, erased, or failed by a judge. A branch hangs from the node where it starts, with its
    cause, who asked for it and the note. What a judge said of a node, and what it found missing, stands under it.
    """
    place = Place(key=session, namespace=namespace, tenant=tenant, url=url, schema=schema)

    async def read() -> Shape:
        async with opened(place) as found:
            return await read_shape(found)

    page = console()
    put(page, draw(asyncio.run(read())))
    page.print(Text(LEGEND, style="dim"))
