"""The models that a Memory makes for its flows: one for each way to ask, closed with the Memory."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgmem.llm.openai_model import OpenAIModel

log = logging.getLogger("pgmem")

MOST = 32
"""Models that are kept at once: each key or server of a tenant's own is one, with connections of its own."""


class Models:
    """The models made lately; a flow is made for each request, its model should keep its connections."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], OpenAIModel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def openai(self, name: str, *, api_key: str | None, base_url: str | None, **options: Any) -> OpenAIModel:
        """The model of that name, key and options, the same one each time while it is used.

        Raises:
            InvalidArgument: it cannot be made of them.
        """
        # the client of OpenAI's API takes half a second to import: only who uses it waits
        from pgmem.llm.openai_model import OpenAIModel

        model = OpenAIModel(name, api_key=api_key, base_url=base_url, **options)
        # what the environment says now, too: a key may be another one tomorrow
        said = (api_key or os.environ.get("OPENAI_API_KEY"), base_url or os.environ.get("OPENAI_BASE_URL"))
        way = (name, *said, *sorted(options.items()))
        kept = self._made.pop(way, model)
        self._made[way] = kept
        while len(self._made) > MOST:
            self._close_later(self._made.pop(next(iter(self._made))))
        return kept

    async def close(self) -> None:
        """Closes the connections of all of them."""
        made, self._made = list(self._made.values()), {}
        for model in made:
            await _close(model)
        await asyncio.gather(*self._closing)

    def _close_later(self, model: OpenAIModel) -> None:
        try:
            closing = asyncio.get_running_loop().create_task(_close(model), name="pgmem model close")
        except RuntimeError:
            return  # no loop runs, so it never opened a connection
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close(model: OpenAIModel) -> None:
    try:
        await model.close()
    except Exception:
        log.exception("the connections of %r could not be closed", model)
