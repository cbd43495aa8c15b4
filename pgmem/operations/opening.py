"""Open: finds the database, the embedded one if none is named, and makes sure that it can be trusted with memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pgmem.settings import Settings
from pgmem.store import embedded, migrate
from pgmem.store.database import Database, check_server, connect, schema_version

log = logging.getLogger("pgmem")

APP_ROLE = "pgmem_app"
READER_ROLE = "pgmem_reader"


@asynccontextmanager
async def opened(url: str | None, settings: Settings) -> AsyncIterator[Database]:
    """A pool on a database that is fit for use; closed at the end.

    Args:
        url: a libpq URL; None for ``PGMEM_DATABASE_URL``, and where that is not set, for the embedded server.
        settings: what the environment says.

    Raises:
        SetupError: the server, the role or the schema is not fit; the message says what to do.
        DatabaseError: the database cannot be reached.
    """
    place = settings.database_url if url is None else url
    if place is None:
        place = await asyncio.to_thread(ready_embedded, settings)
    async with connect(place, settings) as database:
        migrate.check_version(await schema_version(database), schema=settings.schema)
        await check_server(database)
        yield database


def ready_embedded(settings: Settings, *, user: str = APP_ROLE) -> str:
    """Starts the embedded server if it does not run, migrates it, and gives the URL of ``user`` on it."""
    server = embedded.start(settings.home, pg_bin=settings.pg_bin)
    owner = server.url()
    if not migrate.is_current(owner, schema=settings.schema):
        log.info("migrating the embedded database")
        migrate.upgrade(owner, schema=settings.schema)
    migrate.allow_login(owner, roles=(APP_ROLE, READER_ROLE), password=server.password)
    return server.url(user=user)
