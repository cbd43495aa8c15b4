"""Connections: made by the task that needs one, given back without a wait, the newest used first.

Nothing works in the background. So a server that is gone says so at once to whoever asks, one that is back is used at
once, a cancelled task can lose no connection, and no task outlives the pool.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from pgmem.errors import DatabaseTimeout, DatabaseUnavailable

Connection = psycopg.AsyncConnection[dict[str, Any]]

LIFE_SECONDS = 3600.0
"""How long a connection is used: after a failover or behind a balancer the old ones end by themselves."""

IDLE_SECONDS = 600.0
"""How long a connection that nobody needs is kept."""


@dataclass(slots=True)
class _Kept:
    """A connection with the time when it was made and the time when it was given back."""

    connection: Connection
    made_at: float
    idle_at: float

    def is_fit(self) -> bool:
        """Whether it may be used again."""
        return not self.connection.closed and time.monotonic() < self.made_at + LIFE_SECONDS and _is_quiet(self.connection)

    def close(self) -> None:
        self.connection.pgconn.finish()


class Pool:
    """At most ``size`` connections.

    Args:
        connect: makes a connection; raises ``DatabaseUnavailable`` when it cannot.
        size: the most connections.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._room = asyncio.Semaphore(size)
        self._idle: list[_Kept] = []
        self._in_use = 0
        self._being_made = 0
        self._moved = asyncio.Event()
        self._closed = False

    @asynccontextmanager
    async def connection(self, deadline: float) -> AsyncIterator[Connection]:
        """A connection that the server has not closed while it was idle; it goes back at the end.

        Args:
            deadline: until when to wait for it, by the event loop's clock.

        Raises:
            DatabaseTimeout: none became free, or could be made, in time; nothing was sent.
            DatabaseUnavailable: none can be made, or the pool is closed.
        """
        await self._enter(deadline)
        try:
            kept = await self._take(deadline)
            self._in_use += 1
            try:
                yield kept.connection
            finally:
                self._give_back(kept)
        finally:
            self._room.release()

    def close(self) -> None:
        """Ends the idle connections now, and each one in use when it is given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def _enter(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.acquire()
        except TimeoutError as fault:
            raise DatabaseTimeout(
                f"none of {self._size} connections became free before the deadline, nothing was sent: "
                "raise PGMEM_POOL_SIZE, or look for what holds them",
                retryable=True,
            ) from fault

    async def _take(self, deadline: float) -> _Kept:
        if self._closed:
            raise DatabaseUnavailable("this Memory is closed: use it inside its `async with pgmem.open()`")
        kept = self._newest_idle()
        if kept is not None:
            return kept
        try:
            return await self._make(deadline)
        except DatabaseUnavailable as fault:
            return await self._another(deadline, fault)

    async def _another(self, deadline: float, fault: DatabaseUnavailable) -> _Kept:
        """One of our connections that is given back: the server may have no room for as many as we may have."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while (kept := self._newest_idle()) is None and (self._in_use or self._being_made):
                    self._moved.clear()
                    await self._moved.wait()
                if kept is not None:
                    return kept
        raise fault from fault.__cause__

    def _newest_idle(self) -> _Kept | None:
        while self._idle:
            kept = self._idle.pop()
            if kept.is_fit():
                return kept
            kept.close()
        return None

    async def _make(self, deadline: float) -> _Kept:
        self._being_made += 1
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connect()
        except TimeoutError as fault:
            raise DatabaseTimeout(
                "no connection could be made before the deadline, nothing was sent: look at the server and the way to it",
                retryable=True,
            ) from fault
        finally:
            self._being_made -= 1
            self._moved.set()
        now = time.monotonic()
        return _Kept(connection, now, now)

    def _give_back(self, kept: _Kept) -> None:
        self._in_use -= 1
        self._moved.set()
        if self._closed or kept.connection.pgconn.transaction_status != TransactionStatus.IDLE:
            kept.close()
            return
        kept.idle_at = time.monotonic()
        self._idle.append(kept)
        while self._idle[0].idle_at < kept.idle_at - IDLE_SECONDS:
            self._idle.pop(0).close()


def _is_quiet(connection: Connection) -> bool:
    # What a server says unasked is mostly a farewell. It need not be read: the end of the stream behind it is on the
    # socket whatever libpq or TLS have buffered, and a connection that is closed for a harmless notice is only made anew.
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poller.poll(0)
