"""The memory that `tool_clear` makes of turns: what stays, what goes, and that it is always bounded."""

from __future__ import annotations

from datetime import UTC, datetime

from pgmem.domain.model import Turn
from pgmem.domain.tokens import count_tokens
from pgmem.domain.tool_clear import clear


def turns_of(*messages, first=1):
    return [Turn(no, 0, m, False, 0, None, datetime(2024, 1, 1, tzinfo=UTC)) for no, m in enumerate(messages, first)]


def test_what_was_said_stays_and_tool_bodies_go():
    turns = turns_of(
        {"role": "user", "content": "Where is my parcel?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "find_parcel", "arguments": '{"mail": "ann@example.com"}'},
                }
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "The parcel with number ZX-77120 waits in the depot and will be brought soon.",
        },
        {"role": "assistant", "content": "It waits in the depot."},
    )

    memory = clear("", turns, max_tokens=8000, count=count_tokens)

    assert "Where is my parcel?" in memory
    assert "It waits in the depot." in memory
    assert "find_parcel ann@example.com" in memory
    assert "ZX-77120" in memory
    assert "will be brought soon" not in memory
