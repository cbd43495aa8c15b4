"""Calls and results: paired as the plain rules pair them, and never parted by a cut."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from pgmem.domain.calls import match, safe_cut
from tests.fuzz.rules import answer_of, whole
from tests.support.talk import assistant, calls, result, user

ids = st.sampled_from(["c1", "c2", "c3"])
messages = st.one_of(
    st.just(user("u")),
    st.just(assistant("a")),
    st.lists(ids, min_size=1, max_size=3, unique=True).map(lambda names: calls(*names)),
    ids.map(result),
)
histories = st.lists(messages, max_size=14)


@settings(max_examples=1000)
@given(histories, st.integers(-2, 16))
def test_a_cut_is_the_largest_that_tears_nothing(history, limit):
    wanted = next((cut for cut in range(min(limit, len(history)), 0, -1) if whole(history, cut)), 0)

    assert safe_cut(history, limit) == wanted


@settings(max_examples=1000)
@given(histories)
def test_every_call_is_paired_with_its_own_result(history):
    found = match(history)

    for start, message in enumerate(history):
        wanted = tuple((call["id"], answer_of(history, start, call["id"])) for call in message.get("tool_calls") or ())
        assert found.results.get(start, ()) == wanted
    answered = {index for answers in found.results.values() for _, index in answers if index is not None}
    assert found.stray == {index for index, message in enumerate(history) if message["role"] == "tool"} - answered


def test_a_cut_at_every_offset_of_parallel_calls_goes_before_them_or_after_all_results():
    for results in range(1, 9):
        names = [f"c{number}" for number in range(results)]
        history = [user("q"), calls(*names), *map(result, names), assistant("done")]
        cuts = {safe_cut(history, limit) for limit in range(len(history) + 1)}
        assert cuts == {0, 1, 2 + results, 3 + results}
