"""Hears of jobs that end: one connection that LISTENs while anybody waits, where there is no pooler between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import sql

log = logging.getLogger("pgmem")

CONNECT_SECONDS = 10


class Notices:
    """Who waits for what; a notice only spares a look, so it may be missed.

    Args:
        place: the connection string.
        channel: what the queue's schema notifies on.
    """

    def __init__(self, place: str, channel: str) -> None:
        self._place = place
        self._channel = channel
        self._waiting: dict[asyncio.Event, int] = {}
        self._listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def of(self, job: int) -> AsyncIterator[asyncio.Event]:
        """An event that is set when the job ends, if that is heard."""
        ended = asyncio.Event()
        self._waiting[ended] = job
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen(), name="pgmem notices")
        try:
            yield ended
        finally:
            del self._waiting[ended]
            if not self._waiting:
                await self._stop()

    async def _stop(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        try:
            async with await psycopg.AsyncConnection.connect(
                self._place, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="pgmem notices"
            ) as connection:
                await self._hear(connection)
        except (psycopg.Error, OSError) as error:
            log.info("jobs are looked at now and then, since no notice of them can be heard: %s", error)

    async def _hear(self, connection: psycopg.AsyncConnection) -> None:
        cursor = await connection.execute("select pg_backend_pid()")
        if await cursor.fetchone() != (connection.info.backend_pid,):
            return  # a pooler is between: it would give the notices to somebody else
        await connection.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
        async for notice in connection.notifies():
            with contextlib.suppress(ValueError):
                self._tell(int(notice.payload))

    def _tell(self, job: int) -> None:
        for ended, waited_for in self._waiting.items():
            if waited_for == job:
                ended.set()
