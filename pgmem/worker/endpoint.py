"""Where others ask whether a worker lives: ``GET /health`` over HTTP, for an orchestrator's probes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pgmem.worker.worker import Health, Worker

REQUEST_SECONDS = 5.0
"""How long a probe may take to say what it wants."""

MOST_BYTES = 8_192


@asynccontextmanager
async def health_endpoint(worker: Worker, *, host: str, port: int) -> AsyncIterator[int]:
    """Answers while the body runs: 200 while the worker takes jobs, else 503; gives the port, chosen freely for 0."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, worker.health))
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, host, port, limit=MOST_BYTES)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def _response(head: bytes, health: Health) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != b"/health":
        return _http(404, "Not Found", {"error": "ask for /health"}, method)
    body = {
        "working": health.working,
        "running": health.running,
        "done": health.done,
        "failed": health.failed,
        "swept_at": health.swept_at.isoformat() if health.swept_at else None,
    }
    return _http(200, "OK", body, method) if health.working else _http(503, "Service Unavailable", body, method)


def _http(status: int, words: str, body: object, method: bytes) -> bytes:
    text = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} {words}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else text)
