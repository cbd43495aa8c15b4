"""Turns that are too many for one window take several calls; exactly the turns are sent, all of them."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pgmem.domain.tokens import count_tokens
from pgmem.errors import InvalidArgument, ModelRefused
from pgmem.llm.fence import Fence
from pgmem.llm.pieces import clip, pieces, windows
from pgmem.testing import failing, failure, passing, summary, text
from tests.llm.support import asking, blocks, judging, scripted, turns, user

WINDOW = 4_000
LONG = turns(*(user(f"turn {no}: " + "word " * 200) for no in range(60)))


def sent(endpoint, *names):
    """The blocks of all requests in order, parts joined."""
    found = {}
    for request in endpoint.requests:
        for name, attributes, body in blocks(request.prompt):
            if name in names:
                key = (name, attributes.get("no") or attributes.get("id"))
                found[key] = found.get(key, "") + body
    return found


async def test_all_turns_are_sent_once_each_in_order_and_the_memory_goes_along():
    answers = [summary(f"memory {no}") for no in range(40)]
    async with scripted(answers, max_input_tokens=WINDOW) as (endpoint, model):
        made = await model.summarise(asking(LONG, memory="memory before", max_summary_tokens=1000))

        numbers = [a["no"] for request in endpoint.requests for name, a, _ in blocks(request.prompt) if name == "turn"]
        memories = [shown for request in endpoint.requests for name, _, shown in blocks(request.prompt) if name == "memory"]
    calls = len(endpoint.requests)
    assert calls > 3
    assert numbers == [str(turn.no) for turn in LONG]
    assert memories == ["memory before", *(f"memory {no}" for no in range(calls - 1))]
    assert made.text == f"memory {calls - 1}"


async def test_no_prompt_is_larger_than_the_window_whatever_is_told_besides_the_turns():
    def rule(request):
        return summary("m" * 3_900) if "could not be used" in request.prompt else text("not what was asked for")

    given = turns(*(user(f"turn {no}: " + "word " * 20) for no in range(400)))
    notes = {"goal": "g" * 90_000, "hints": ("h" * 90_000,), "failures": ("f" * 90_000,)}
    async with scripted(rule=rule, max_input_tokens=WINDOW) as (endpoint, model):
        await model.summarise(asking(given, memory="x" * 9_000, max_summary_tokens=1_000, **notes))

        largest = max(count_tokens(request.prompt) for request in endpoint.requests)
    assert WINDOW * 0.9 < largest <= WINDOW


async def test_a_memory_longer_than_the_last_window_is_no_echo():
    sizes = iter([400, 800, 800, 800, 800])
    async with scripted(rule=lambda request: summary("m" * 4 * next(sizes)), max_input_tokens=WINDOW) as (endpoint, model):
        made = await model.summarise(asking((*LONG[:9], *turns(user("the end " * 40))), max_summary_tokens=1_000))

        assert len(endpoint.requests) == 2
    assert count_tokens(made.text) == 800


async def test_usage_is_the_sum_over_the_windows():
    async with scripted(summary("m").counting(input_tokens=10, output_tokens=3), max_input_tokens=WINDOW) as (endpoint, model):
        made = await model.summarise(asking(LONG))

    calls = len(endpoint.requests)
    assert (made.usage.input_tokens, made.usage.output_tokens) == (10 * calls, 3 * calls)


async def test_a_turn_larger_than_the_window_is_sent_in_consecutive_marked_parts_all_of_it():
    body = "".join(f"<line {no}>\n" for no in range(10_000))
    given = turns(user("before"), user(body), user("after"))
    async with scripted(summary("m"), max_input_tokens=WINDOW) as (endpoint, model):
        await model.summarise(asking(given))

        parts = [a["part"] for r in endpoint.requests for _, a, _ in blocks(r.prompt) if "part" in a]
        assert sent(endpoint, "turn") == {("turn", "1"): "before", ("turn", "2"): body, ("turn", "3"): "after"}
    assert parts == [f"{no} of {len(parts)}" for no in range(1, len(parts) + 1)]
    assert len(parts) > 5


async def test_a_memory_larger_than_the_window_is_sent_in_parts_too():
    before = "".join(f"fact {no}. " for no in range(3_000))
    async with scripted(summary("m"), max_input_tokens=WINDOW) as (endpoint, model):
        await model.summarise(asking(turns(user("hi")), memory=before))

        first = [body for r in endpoint.requests for name, a, body in blocks(r.prompt) if name == "memory" and "part" in a]
    assert "".join(first) == before


async def test_a_prompt_that_the_server_finds_too_large_is_sent_again_in_smaller_windows():
    def rule(request):
        if count_tokens(request.prompt) > 2_500:
            return failure(400, message="This model's maximum context length is 2500 tokens")
        return summary("m")

    async with scripted(rule=rule, max_input_tokens=16_000) as (endpoint, model):
        await model.summarise(asking(LONG))

        answered = [r for r in endpoint.requests if count_tokens(r.prompt) <= 2_500]
        numbers = [a["no"] for r in answered for name, a, _ in blocks(r.prompt) if name == "turn"]
    assert numbers == [str(turn.no) for turn in LONG]


async def test_a_server_that_finds_every_prompt_too_large_is_asked_a_bounded_number_of_times():
    async with scripted(failure(400, message="maximum context length exceeded"), max_input_tokens=16_000) as (endpoint, model):
        with pytest.raises(ModelRefused, match="max_input_tokens lower"):
            await model.summarise(asking(LONG))

        assert len(endpoint.requests) < 8


@pytest.mark.parametrize("ask", ["summarise", "judge"])
async def test_usage_counts_what_was_answered_before_a_prompt_was_found_too_large(ask):
    counted = [one.counting(input_tokens=100, output_tokens=1) for one in (text("junk"), text("junk"))]
    good = (summary("m") if ask == "summarise" else passing()).counting(input_tokens=10, output_tokens=1)
    async with scripted([counted[0], failure(413), counted[1], failure(413), good], max_input_tokens=16_000) as (endpoint, model):
        made = await getattr(model, ask)(asking(LONG) if ask == "summarise" else judging("S", LONG))

    answered = len(endpoint.requests) - 4
    assert answered > 3
    assert (made.usage.input_tokens, made.usage.output_tokens) == (200 + 10 * answered, 2 + answered)


async def test_a_judge_sees_all_turns_and_one_failure_decides():
    answers = [passing(), failing("lost the port", ["8080"]), failing("lost the name", ["8080", "Ana"]), passing()]
    async with scripted(answers, max_input_tokens=WINDOW) as (endpoint, model):
        judgement = await model.judge(judging("S", LONG, memory="before"))

        assert [number for _, number in sent(endpoint, "turn")] == [str(turn.no) for turn in LONG]
        told = [re.search(r"part (\d+) of (\d+)", request.prompt).groups() for request in endpoint.requests]
    calls = len(told)
    assert told == [(str(no), str(calls)) for no in range(1, calls + 1)]
    assert (judgement.outcome, judgement.reason) == ("fail", "lost the port lost the name")
    assert judgement.missing == ("8080", "Ana")


async def test_a_window_that_cannot_hold_the_summary_to_judge_is_an_error_that_says_so():
    async with scripted(max_input_tokens=WINDOW) as (endpoint, model):
        with pytest.raises(InvalidArgument, match="max_input_tokens"):
            await model.judge(judging("long " * 5_000))

        assert endpoint.requests == []


messages = st.lists(st.text(max_size=3_000).map(user), min_size=1, max_size=8)


@given(messages, st.text(max_size=3_000), st.integers(512, 2_000))
def test_windows_hold_every_character_once_in_order_and_fit(given_messages, memory, most):
    waiting = pieces(memory, turns(*given_messages), count_tokens)

    cut = windows(waiting, most_tokens=most, count=count_tokens)

    assert "".join(piece.text for window in cut for piece in window) == "".join(piece.text for piece in waiting)
    for window in cut:
        assert count_tokens("\n".join(piece.block(Fence()) for piece in window)) <= most


@given(st.text(max_size=500), st.integers(10, 100))
def test_a_clipped_text_fits_and_is_the_beginning_of_what_it_was(text, most):
    shown = clip(text, most, count_tokens)

    assert count_tokens(shown) <= most
    assert text.startswith(shown.removesuffix(" [pgmem: cut here]"))
