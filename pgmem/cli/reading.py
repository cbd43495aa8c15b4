"""Opens a namespace that is there: makes no session, and migrates no database of the user's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pgmem
from pgmem import Event, InvalidArgument, Memory, Namespace, Session, SessionNotFound

if TYPE_CHECKING:
    from pgmem import OpenAIModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command looks.

    Attributes:
        key: the session's key.
        namespace: the memory space inside it.
        tenant: who owns the session.
        url: a libpq URL; None for what the environment says.
        schema: the schema; None for what the environment says.
    """

    key: str
    namespace: str
    tenant: str
    url: str | None
    schema: str | None


@asynccontextmanager
async def opened(
    place: Place, *, model: OpenAIModel | None = None, on_event: Callable[[Event], object] | None = None
) -> AsyncIterator[Namespace]:
    """The namespace, for as long as the database is open.

    Args:
        place: where.
        model: writes summaries; None where no model is asked.
        on_event: takes what happens.

    Raises:
        SessionNotFound: there is no such session.
        InvalidArgument: the session has no such namespace.
    """
    async with pgmem.open(place.url, tenant=place.tenant, schema=place.schema, summary_model=model) as memory:
        if on_event is not None:
            memory.on_event(on_event)
        session = await _session(memory, place)
        names = await session.namespaces()
        if place.namespace not in names:
            raise InvalidArgument(
                f"session {place.key!r:.200} has no namespace {place.namespace!r:.200}: it has {', '.join(names)}"
            )
        yield session.namespace(place.namespace)


async def _session(memory: Memory, place: Place) -> Session:
    try:
        return await memory.session(place.key, create=False)
    except SessionNotFound as error:
        raise SessionNotFound(
            f"tenant {place.tenant!r:.200} has no session {place.key!r:.200}: see `pgmem sessions --tenant {place.tenant:.200}`"
        ) from error
