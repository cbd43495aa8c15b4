"""What a server sends is read up to a limit, and never blocks the event loop for long."""

from __future__ import annotations

import asyncio
import gzip
import time
import tracemalloc
import zlib

import pytest

from pgmem.errors import ModelError, ModelRefused, ModelUnavailable, PgmemError
from pgmem.llm.client import MOST_ANSWER_BYTES
from tests.llm.raw import completion, endless, raw, response
from tests.llm.support import asking

BOMB = gzip.compress(bytes(200 * 2**20))


async def longest_stall(waited):
    """The longest that the event loop was kept from other work meanwhile."""
    longest, ticking = 0.0, True

    async def tick():
        nonlocal longest
        while ticking:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            longest = max(longest, time.perf_counter() - before)

    ticks = asyncio.create_task(tick())
    with pytest.raises(PgmemError):
        await waited
    ticking = False
    await ticks
    return longest


@pytest.mark.parametrize("status", [200, 302, 401, 500])
async def test_an_answer_without_an_end_is_left_at_the_limit(status):
    away = {"location": "/v1/elsewhere"} if status == 302 else {}
    async with raw(endless(b" " * 65_536, status, **away), retry_attempts=1, timeout_seconds=30) as (server, model):
        tracemalloc.start()
        with pytest.raises(ModelError) as caught:
            await model.summarise(asking())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        await asyncio.wait_for(server.left.wait(), 10)
    assert "no answer within" not in str(caught.value)
    assert caught.value.status == (None if status == 200 else status)
    assert peak < 6 * MOST_ANSWER_BYTES


async def test_an_answer_that_is_not_read_is_left():
    async with raw(endless(b" " * 65_536, content_encoding="br"), retry_attempts=1) as (server, model):
        with pytest.raises(ModelUnavailable, match="packed as 'br'"):
            await model.summarise(asking())

        await asyncio.wait_for(server.left.wait(), 10)


async def test_an_answer_over_the_limit_is_a_fault_that_says_so_and_is_tried_again():
    async with raw(response(b" " * (MOST_ANSWER_BYTES + 1)), response(completion())) as (server, model):
        assert (await model.summarise(asking())).text == "made"
        assert len(server.heads) == 2

        server.responses, server.heads = server.responses[:1], []
        with pytest.raises(ModelUnavailable, match=f"the answer is over {MOST_ANSWER_BYTES} bytes"):
            await model.summarise(asking())


async def test_an_answer_just_below_the_limit_is_read():
    body = completion()
    async with raw(response(body + b" " * (MOST_ANSWER_BYTES - len(body)))) as (_, model):
        assert (await model.summarise(asking())).text == "made"


@pytest.mark.parametrize("status", [200, 500])
async def test_a_packed_answer_is_unpacked_up_to_the_limit(status):
    async with raw(response(BOMB, status, content_encoding="gzip"), retry_attempts=1) as (_, model):
        tracemalloc.start()
        with pytest.raises(ModelUnavailable):
            await model.summarise(asking())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < 6 * MOST_ANSWER_BYTES


async def test_a_packed_answer_is_read_and_asked_for_in_no_other_way():
    async with raw(response(gzip.compress(completion()), content_encoding="GZip")) as (server, model):
        assert (await model.summarise(asking())).text == "made"

    assert "accept-encoding: gzip\r\n" in server.heads[0]


PACKED = {
    "not at all": (completion(), "gzip"),
    "as was not asked": (completion(), "br"),
    "twice": (gzip.compress(BOMB), "gzip, gzip"),
    "by zlib": (zlib.compress(completion()), "gzip"),
}


@pytest.mark.parametrize(("body", "encoding"), PACKED.values(), ids=PACKED)
async def test_what_cannot_be_unpacked_is_a_fault_that_says_so(body, encoding):
    async with raw(response(body, content_encoding=encoding), response(completion())) as (server, model):
        assert (await model.summarise(asking())).text == "made"

        server.responses = server.responses[:1]
        with pytest.raises(ModelUnavailable, match="packed"):
            await model.summarise(asking())


async def test_a_redirect_is_followed_and_one_in_a_circle_is_refused():
    circle = response(b"", 307, location="/v1/elsewhere")
    async with raw(circle, response(completion())) as (server, model):
        assert (await model.summarise(asking())).text == "made"
        assert server.heads[1].startswith("post /v1/elsewhere")

        server.responses = server.responses[:1]
        with pytest.raises(ModelRefused, match="HTTP 307"):
            await model.summarise(asking())
        assert len(server.heads) < 20


@pytest.mark.parametrize("charset", ["utf-8", "punycode", "idna", "base64", "no-such"])
async def test_an_answer_is_utf8_whatever_its_header_says(charset):
    said = completion('{"summary": "h\u00e9"}')
    assert "h\u00e9".encode() in said

    async with raw(response(said, content_type=f"application/json; charset={charset}")) as (_, model):
        assert (await model.summarise(asking())).text == "h\u00e9"


SLOW = {
    "an open thought": response(completion("<think>" + "\n" * 60_000)),
    "many open thoughts": response(completion("<think>" * 15_000)),
    "blank lines": response(completion("\n" * 200_000)),
    "an open fence": response(completion("```json\n" + ("\n" + " " * 300) * 3_000)),
    "fences": response(completion("```json\n" * 100_000)),
    "a long error": response(b"model " * 4_000_000, 500),
    "a long answer that is none": response(b"model sk- key-key- " * 400_000),
    "a long refusal": response(b'{"choices": [{"message": {"refusal": "' + b"sk-key- " * 900_000 + b'"}}]}'),
    "a long summary": response(completion('{"summary": "' + "word " * 1_500_000 + '"}')),
}


@pytest.mark.parametrize("slow", SLOW.values(), ids=SLOW)
async def test_no_answer_keeps_the_event_loop_busy(slow):
    async with raw(slow, retry_attempts=1, timeout_seconds=60) as (_, model):
        assert await longest_stall(model.summarise(asking())) < 1
