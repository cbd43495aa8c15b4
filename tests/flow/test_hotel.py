"""Both policies in one session: the conversation of examples/hotel_flow.py, every request as the model would get it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "hotel_flow.py"


@pytest.fixture
def hotel():
    found = importlib.util.spec_from_file_location("hotel_flow", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
async def requests(hotel, session, monkeypatch):
    """What the model was sent, in order, while the conversation was played."""
    seen = []

    async def model(messages, answer):
        seen.append(messages)
        return answer

    monkeypatch.setattr(hotel, "model", model)
    flow = await hotel.HotelFlow(session).start()
    await hotel.converse(flow)
    return seen


def of(requests, prompt):
    return [request for request in requests if request[0]["content"].startswith(prompt)]


async def test_exploring_keeps_what_was_said_through_every_visit(requests):
    first, *_, last = of(requests, "Find out")

    assert [message["role"] for message in first] == ["system", "user"]
    memory = last[1]["content"]
    assert memory.startswith("Conversation memory for this step:\n")
    assert all(said in memory for said in ("two and a child", "June 3 to June 5", "wants to swim", "150 EUR"))
    assert [message["content"] for message in last if message["role"] == "user"] == [
        "Show me what you have.",
        "What would it be without a pool?",
        "Yes, please.",
    ]


async def test_each_presentation_and_comparison_starts_clean_with_the_list_of_the_state(requests):
    first, second = of(requests, "Present these")
    compared = of(requests, "Compare these")

    assert [message["content"] for message in first[1:]] == ["Show me what you have."]
    assert [message["content"] for message in second[1:]] == ["Yes, please."]
    assert "Miramar" in first[0]["content"]
    assert "Bahnhof" in second[0]["content"]
    assert "Miramar" not in str(second)
    assert [len(request) for request in compared] == [2, 4]


async def test_what_is_explored_is_never_seen_where_it_is_not(requests):
    elsewhere = of(requests, "Present these") + of(requests, "Compare these")

    assert len(elsewhere) == 4
    assert not any(said in str(request) for request in elsewhere for said in ("Conversation memory", "child", "I can search"))


async def test_every_message_is_stored_where_it_was_said_and_a_forwarded_one_where_it_went_too(requests, session):
    stored = {name: [turn.content async for turn in session.namespace(name).turns()] for name in ("PresentStep", "CompareStep")}

    assert stored == {
        "PresentStep": [
            "Show me what you have.",
            "There are the Miramar and the Excelsior.",
            "Which one is cheaper?",
            "Yes, please.",
            "There is the Bahnhof.",
        ],
        "CompareStep": [
            "Which one is cheaper?",
            "The Excelsior, 95 EUR against 140.",
            "And nearer to the sea?",
            "The Miramar.",
            "What would it be without a pool?",
        ],
    }
