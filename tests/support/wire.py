"""A proxy before Postgres that reads the frontend's messages, so that round trips and statements are counted where they happen."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from psycopg import conninfo

SYNC, QUERY, PARSE, EXECUTE = b"S", b"Q", b"P", b"E"


class Wire:
    """Counts what passes.

    A round trip is a Sync or a simple Query: the client then waits for ReadyForQuery.
    """

    def __init__(self, url: str) -> None:
        self._target = conninfo.conninfo_to_dict(url)
        self._folder = tempfile.mkdtemp(prefix="pgw")
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.seen: Counter[bytes] = Counter()
        self.connections = 0
        self.cut_after: bytes | None = None
        self.refuse = False

    @property
    def url(self) -> str:
        rest = {name: value for name, value in self._target.items() if name not in ("host", "hostaddr", "port", "sslmode")}
        return conninfo.make_conninfo(**rest, host=self._folder, port="5432", sslmode="disable")

    @property
    def round_trips(self) -> int:
        return self.seen[SYNC] + self.seen[QUERY]

    @property
    def statements(self) -> int:
        return self.seen[EXECUTE] + self.seen[QUERY]

    def reset(self) -> None:
        self.seen.clear()

    def cut(self) -> None:
        """Closes all connections, as a network does."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        self.connections += 1
        self._tasks.add(asyncio.current_task())
        host, port = str(self._target.get("host") or "localhost"), str(self._target.get("port") or "5432")
        if host.startswith("/"):
            back_reader, back_writer = await asyncio.open_unix_connection(str(Path(host) / f".s.PGSQL.{port}"))
        else:
            back_reader, back_writer = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, back_writer}
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            await asyncio.gather(self._forward(reader, back_writer), self._back(back_reader, writer, back_writer))
        for end in (writer, back_writer):
            end.transport.abort()
            self._writers.discard(end)

    async def _forward(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        to.write(size + await reader.readexactly(int.from_bytes(size, "big") - 4))
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
            self.seen[head[:1]] += 1
            to.write(head + body)
            await to.drain()

    async def _back(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        while True:
            part = await reader.read(65536)
            if not part or (self.cut_after is not None and self.cut_after in part):
                # the client never hears what the server said
                to.transport.abort()
                server.transport.abort()
                return
            to.write(part)
            await to.drain()


class Unplugged(Wire):
    """Lets nothing of the server through any more to who was connected when it was unplugged, and tells nobody."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._dead: set[asyncio.StreamWriter] = set()

    def unplug(self) -> None:
        self._dead |= self._writers

    async def _back(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            if to not in self._dead:
                to.write(part)
                await to.drain()
        to.transport.abort()
        server.transport.abort()


AnyWire = TypeVar("AnyWire", bound=Wire)


@asynccontextmanager
async def serving(proxy: AnyWire) -> AsyncIterator[AnyWire]:
    """The wire, while it is there."""
    server = await asyncio.start_unix_server(proxy.serve, path=str(Path(proxy._folder) / ".s.PGSQL.5432"), limit=2**27)
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        tasks = [task for task in proxy._tasks if task]
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


def wire(url: str) -> AbstractAsyncContextManager[Wire]:
    """A wire that only counts, while it is there."""
    return serving(Wire(url))
