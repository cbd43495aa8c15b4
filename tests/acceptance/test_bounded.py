"""The context stays bounded, however long the conversation gets, without any model."""

from __future__ import annotations

import os

import pytest

import pgmem
from tests.support.talk import assistant, calls, fault_of_provider, result, user

BOUND = 256
TURNS = 100_000 if os.environ.get("PGMEM_TEST_LONG") else 8_000


@pytest.mark.timeout(900)
async def test_the_memory_message_is_bounded_at_every_step_of_100_000_turns(app_url, key):
    async with pgmem.open(app_url, policy=pgmem.Policy(max_summary_tokens=BOUND)) as memory:
        session = await memory.session(key)
        for step in range(TURNS // 20):
            exchange = [
                user(f"step {step}"),
                calls(f"c{step}"),
                result(f"c{step}", f"id-{step} /srv/{step}.log ok " * 5),
                assistant(f"done {step}"),
            ]
            await session.add_turns(exchange * 5)
            node = await session.compact()
            assert node is not None
            context = await session.context()
            assert pgmem.count_tokens(context.messages[0]["content"]) <= BOUND
            assert len(context.messages) <= 30
        assert fault_of_provider(context.messages) is None
        assert context.no >= TURNS
