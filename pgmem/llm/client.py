"""The HTTP client under the ``openai`` package: it reads no more of an answer than an answer can be."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import openai

MOST_ANSWER_BYTES = 8 * 2**20
"""What an answer may have, unpacked: 128,000 tokens, the most that models write, with every character escaped are under 4 MiB."""

MOST_REASON_BYTES = 16 * 2**10
"""What is read of an answer that is an error: its reason stands at the beginning."""

_MOST_REDIRECTS = 5
_KEPT_HEADERS = (b"retry-after",)


class UnreadableAnswer(openai.OpenAIError):
    """The body is larger than an answer can be, or packed in a way that was not asked for."""


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """Gives whole responses, as the driver expects them, whose bodies were read up to a limit.

    A body that is an error is cut at ``MOST_REASON_BYTES``. The connection is free again in any case.
    """

    def __init__(self) -> None:
        # only what `_unpacking` can stop at a limit; the deadline is the caller's
        super().__init__(headers={"Accept-Encoding": "gzip"}, timeout=None)

    async def send(self, request: Any, **options: Any) -> Any:
        """The response to a request, redirects followed.

        Raises:
            UnreadableAnswer: the body is larger than ``MOST_ANSWER_BYTES``, or cannot be unpacked.
        """
        response = await self._last(request, **options)
        try:
            body = await _body(response)
        finally:
            await response.aclose()
        kept = [(name, value) for name, value in response.headers.raw if name.lower() in _KEPT_HEADERS]
        # of the same library: the driver has changed it once
        return type(response)(response.status_code, headers=kept, content=body, request=response.request)

    async def _last(self, request: Any, **options: Any) -> Any:
        """The response after all redirects, its body unread; the library would read all of theirs."""
        options |= {"stream": True, "follow_redirects": False}
        response = await super().send(request, **options)
        for _ in range(_MOST_REDIRECTS):
            if response.next_request is None:
                break
            await response.aclose()
            response = await super().send(response.next_request, **options)
        return response


async def _body(response: Any) -> bytes:
    if not response.is_success:
        return (await _read(response, MOST_REASON_BYTES))[:MOST_REASON_BYTES]
    body = await _read(response, MOST_ANSWER_BYTES)
    if len(body) > MOST_ANSWER_BYTES:
        raise UnreadableAnswer(f"the answer is over {MOST_ANSWER_BYTES} bytes, more than any model writes: the rest was not read")
    return body


async def _read(response: Any, most: int) -> bytes:
    """The unpacked body; when it is longer than ``most``, its beginning and one byte or more beyond."""
    unpacked, body = _unpacking(response.headers.get("content-encoding", "")), bytearray()
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            body += unpacked(chunk, most + 1 - len(body))
            if len(body) > most:
                break
    return bytes(body)


def _unpacking(encoding: str) -> Callable[[bytes, int], bytes]:
    """What makes of the next packed bytes so many unpacked ones, at most."""
    if encoding.strip().lower() in ("", "identity"):
        return lambda chunk, most: chunk[:most]
    if encoding.strip().lower() not in ("gzip", "x-gzip"):
        raise UnreadableAnswer(f"the answer is packed as {encoding!r:.40}, which was not asked for")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def unpacked(chunk: bytes, most: int) -> bytes:
        try:
            return unpacker.decompress(chunk, most)
        except zlib.error as error:
            raise UnreadableAnswer(f"the answer cannot be unpacked: {error}") from None

    return unpacked
