"""Where a compaction cuts, over random histories that a provider takes: both parts are such histories too."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from pgmem.domain.events import SkipReason
from pgmem.domain.model import EMPTY_TREE, Snapshot, Turn
from pgmem.domain.plans import cover
from pgmem.domain.policy import Policy
from pgmem.flow.stage_memory import Config
from tests.support.talk import assistant, calls, result, user

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HISTORIES = 10_000 if os.environ.get("PGMEM_TEST_LONG") else 2_000


@st.composite
def transactions(draw, number):
    """A call of one to eight tools with its results in any order, some of them missing."""
    ids = [f"c{number}-{at}" for at in range(draw(st.integers(1, 8)))]
    answered = draw(st.permutations(ids))[: draw(st.integers(0, len(ids)))]
    return [calls(*ids), *(result(call_id) for call_id in answered)]


@st.composite
def histories(draw):
    """Exchanges of a user's message, some transactions, some replies; the last one may still be under way."""
    messages = []
    for exchange in range(draw(st.integers(1, 8))):
        messages.append(user(f"question {exchange}"))
        for at in range(draw(st.integers(0, 3))):
            messages += draw(transactions(f"{exchange}-{at}"))
            messages += [assistant("between")] * draw(st.integers(0, 1))
    return messages


def answers(messages):
    """For each result the position of the call that it answers."""
    made = {call["id"]: at for at, message in enumerate(messages) for call in message.get("tool_calls") or ()}
    return {at: made[message["tool_call_id"]] for at, message in enumerate(messages) if message["role"] == "tool"}


@settings(max_examples=HISTORIES, deadline=None)
@given(messages=histories(), least=st.integers(8, 24), share=st.floats(0.1, 0.9))
def test_no_result_is_parted_from_its_call_and_an_open_call_stays(messages, least, share):
    policy = Config(least, max(1, min(least - 2, round(least * share)))).policy(Policy())
    turns = tuple(Turn(no, 0, message, False, 1, None, NOW) for no, message in enumerate(messages, start=1))

    covered = cover(Snapshot(EMPTY_TREE, (), False, kept=(), active=turns), keep_recent=policy.keep_recent, through=None)

    cut = 0 if isinstance(covered, SkipReason) else len(covered)
    assert covered == turns[:cut] or cut == 0
    assert len(turns) - cut >= min(policy.keep_recent, len(turns))
    parted = [(call, at) for at, call in answers(messages).items() if call < cut <= at]
    assert parted == []
    # the calls past the last user message that have no result yet may still get one
    last_user = max(at for at, message in enumerate(messages) if message["role"] == "user")
    answered = {messages[at]["tool_call_id"] for at in answers(messages)}
    waiting = [
        at
        for at, message in enumerate(messages)
        if at > last_user and any(call["id"] not in answered for call in message.get("tool_calls") or ())
    ]
    assert all(at >= cut for at in waiting)


@settings(max_examples=HISTORIES // 5, deadline=None)
@given(messages=histories(), recent=st.integers(1, 12))
def test_the_cut_is_the_last_safe_one(messages, recent):
    """It walks back no further than it has to."""
    turns = tuple(Turn(no, 0, message, False, 1, None, NOW) for no, message in enumerate(messages, start=1))

    covered = cover(Snapshot(EMPTY_TREE, (), False, kept=(), active=turns), keep_recent=recent, through=None)

    cut = 0 if isinstance(covered, SkipReason) else len(covered)
    last_user = max(at for at, message in enumerate(messages) if message["role"] == "user")
    pairs = answers(messages)
    answered = {messages[at]["tool_call_id"] for at in pairs}
    for later in range(cut + 1, len(turns) - recent + 1):
        parts = any(call < later <= at for at, call in pairs.items())
        covers_open = any(
            last_user < at < later and any(call["id"] not in answered for call in messages[at].get("tool_calls") or ())
            for at in range(len(messages))
        )
        assert parts or covers_open
