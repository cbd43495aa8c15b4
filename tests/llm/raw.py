"""A server that writes the bytes that a test gives it: for answers that no scripted model would give."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager

from pgmem.llm.openai_model import OpenAIModel

KEY = "secret-key-1"


def completion(content='{"summary": "made"}'):
    return json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}, ensure_ascii=False).encode()


def response(body=b"", status=200, **headers):
    """One whole response; an underscore in a header's name stands for a dash."""
    shown = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
    shown |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Raw", *(f"{name}: {value}" for name, value in shown.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def endless(piece, status=200, **headers):
    """A response without an end, which writes ``piece`` for as long as somebody reads."""

    async def write(writer):
        lines = [f"HTTP/1.1 {status} Raw", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        while True:
            writer.write(piece)
            await writer.drain()

    return write


class RawServer:
    """Answers with ``responses`` in order, the last one repeated; ``heads`` are the requests, ``left`` is set when all ended."""

    def __init__(self, *responses):
        self.responses, self.heads, self.left, self._open = list(responses), [], asyncio.Event(), 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.root = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self._open += 1
        self.left.clear()
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = head.partition("content-length:")[2].partition("\r")[0].strip()
            await reader.readexactly(int(length or 0))
            chosen = self.responses[min(len(self.heads), len(self.responses) - 1)]
            self.heads.append(head)
            await self._write(chosen, writer)
        self._open -= 1
        if not self._open:
            self.left.set()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _write(self, chosen, writer):
        if callable(chosen):
            await chosen(writer)
        writer.write(chosen)
        await writer.drain()


@asynccontextmanager
async def raw(*responses, path="/v1", **options):
    """A raw server, and a model that asks it."""
    async with (
        RawServer(*responses) as server,
        OpenAIModel("raw", base_url=server.root + path, **{"api_key": KEY, "timeout_seconds": 20} | options) as model,
    ):
        yield server, model
