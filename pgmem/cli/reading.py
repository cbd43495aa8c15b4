"""Opens a namespace that is there: makes no session, and migrates no database of the user's."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pgmem
from pgmem import Event, InvalidArgument, Memory, Namespace, Session, SessionNotFound
from pgmem.cli.render import complaints, inert
from pgmem.memory import MAIN

if TYPE_CHECKING:
    from pgmem.cli.models import Asked

DEFAULT_TENANT = "default"


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

    def command(self, name: str, *arguments: str) -> str:
        """A command on this place, as it is typed; where the database is goes without saying."""
        words = ["pgmem", name, self.key, *arguments]
        words += [] if self.namespace == MAIN else ["--namespace", self.namespace]
        words += [] if self.tenant == DEFAULT_TENANT else ["--tenant", self.tenant]
        return shlex.join(words)


@asynccontextmanager
async def opened(
    place: Place, *, model: Asked | None = None, on_event: Callable[[Event], object] | None = None
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
    async with opened_session(place, model=model, on_event=on_event) as session:
        names = await session.namespaces()
        if place.namespace not in names:
            raise InvalidArgument(
                f"session {place.key!r:.200} has no namespace {place.namespace!r:.200}: it has {', '.join(names)}"
            )
        if place.namespace == MAIN and len(names) > 1 and (await session.context()).no == 0:
            others = ", ".join(name for name in names if name != MAIN)
            complaints().print(inert(f"nothing is in namespace {MAIN!r}; this session has {others}: use --namespace"))
        yield session.namespace(place.namespace)


@asynccontextmanager
async def opened_session(
    place: Place, *, model: Asked | None = None, on_event: Callable[[Event], object] | None = None
) -> AsyncIterator[Session]:
    """The session, for as long as the database is open; see ``opened``."""
    async with pgmem.open(place.url, tenant=place.tenant, schema=place.schema, summary_model=model) as memory:
        if on_event is not None:
            memory.on_event(on_event)
        yield await _session(memory, place)


async def _session(memory: Memory, place: Place) -> Session:
    try:
        return await memory.session(place.key, create=False)
    except SessionNotFound as error:
        raise SessionNotFound(
            f"tenant {place.tenant!r:.200} has no session {place.key!r:.200}: see `pgmem sessions --tenant {place.tenant:.200}`"
        ) from error
