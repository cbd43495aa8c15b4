"""What every summary must keep to, whoever made it, and who may judge."""

from __future__ import annotations

import pytest

from pgmem.domain.asks import Judgement, Summary, Usage
from pgmem.domain.model import Outcome
from pgmem.errors import EmptySummary, InvalidArgument, SummaryEcho, SummaryRejected, SummaryTooLong
from pgmem.llm.judges import judge_of
from pgmem.llm.strategies import checked, summariser_of
from tests.llm.support import asking, judging, turns, user

SHORT, LONG = asking(turns(user("hi"))), asking(turns(user("word " * 100)))


def test_a_text_and_a_summary_are_summaries():
    whole = Summary(text="fine", model="m", prompt_version="p", usage=Usage(input_tokens=1, output_tokens=2))

    assert checked("fine", SHORT) == Summary(text="fine")
    assert checked(whole, SHORT) == whole


@pytest.mark.parametrize("text", ["", " \n\t", "\u2003"])
def test_a_summary_that_says_nothing_is_empty(text):
    with pytest.raises(EmptySummary):
        checked(text, SHORT)


def test_a_summary_may_have_as_many_tokens_as_the_request_says_and_no_more():
    request = asking(LONG.turns, max_summary_tokens=100)

    assert checked("x" * 400, request).text == "x" * 400
    with pytest.raises(SummaryTooLong, match="101 tokens and 100"):
        checked("x" * 401, request)


def test_the_counter_of_the_request_decides():
    with pytest.raises(SummaryTooLong):
        checked("one two three", asking(max_summary_tokens=2, count=lambda text: len(text.split())))


def test_a_summary_longer_than_the_memory_and_the_turns_is_an_echo():
    sources = LONG.turns[0].tokens

    assert checked("x" * 4 * sources, LONG)
    with pytest.raises(SummaryEcho):
        checked("x" * 4 * (sources + 1), LONG)
    assert checked("x" * 4 * (sources + 1), asking(LONG.turns, memory="more"))


def test_a_summary_of_very_little_may_be_longer():
    assert checked("The user said hi.", SHORT)


def test_what_postgres_cannot_hold_becomes_a_replacement_character():
    made = checked(Summary(text="a\0b\ud800", model="m\0", prompt_version="p\0"), SHORT)

    assert (made.text, made.model, made.prompt_version) == ("a\ufffdb\ufffd", "m\ufffd", "p\ufffd")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"bytes",
        7,
        ["text"],
        {"summary": "text"},
        Summary(text=None),
        Summary(text=b"text"),
        Summary(text="text", model=7),
        Summary(text="text", prompt_version=7),
        Summary(text="text", usage={"input_tokens": 1}),
        Summary(text="text", usage=Usage(input_tokens=-1)),
        Summary(text="text", usage=Usage(input_tokens=1.5)),
        Summary(text="text", usage=Usage(output_tokens=True)),
        Summary(text="text", usage=Usage(output_tokens=10**30)),
    ],
)
def test_anything_else_is_an_error_that_names_it(answer):
    with pytest.raises(InvalidArgument) as caught:
        checked(answer, SHORT)

    assert not isinstance(caught.value, SummaryRejected)


async def test_a_strategy_is_a_model_or_an_async_function_or_none():
    async def own(request):
        return "text"

    class Model:
        async def summarise(self, request):
            return "by a model"

    assert summariser_of(None) is None
    assert summariser_of(own) is own
    assert await summariser_of(Model())(SHORT) == "by a model"
    for wrong in ("gpt-4o", 7, Model):
        with pytest.raises(InvalidArgument, match="summary_model is of type"):
            summariser_of(wrong)


async def test_a_judge_is_coverage_or_a_model_or_an_async_function():
    async def own(request):
        return Judgement(outcome=Outcome.PASS, judge="own")

    class Model:
        async def judge(self, request):
            return Judgement(outcome=Outcome.FAIL, judge="model")

    assert (await judge_of(None)(judging())).judge == "coverage"
    assert (await judge_of("coverage")(judging())).judge == "coverage"
    assert (await judge_of(Model())(judging())).judge == "model"
    assert judge_of(own) is own
    for wrong in ("gpt-4o", 7, Model, [], ["coverage", 7]):
        with pytest.raises(InvalidArgument, match="the judge is "):
            judge_of(wrong)


async def test_of_several_judges_the_first_to_fail_decides_and_no_other_is_asked():
    asked = []

    def judge(name, outcome):
        async def ask(request):
            asked.append(name)
            return Judgement(outcome=outcome, judge=name)

        return ask

    failing = judge_of([judge("a", Outcome.PASS), judge("b", Outcome.FAIL), judge("c", Outcome.PASS)])
    passing = judge_of((judge("d", Outcome.PASS), judge("e", Outcome.PASS)))

    assert (await failing(judging())).judge == "b"
    assert (await passing(judging())).judge == "d, e"
    assert asked == ["a", "b", "d", "e"]


@pytest.mark.parametrize("said", [None, {"outcome": "fail"}, Judgement(outcome="FAIL"), Judgement(outcome=None)])
async def test_what_is_no_judgement_is_never_passed_over_for_the_next_judge(said):
    async def odd(request):
        return said

    async def passes(request):
        return Judgement(outcome=Outcome.PASS)

    with pytest.raises(InvalidArgument):
        await judge_of([odd, passes])(judging())


async def test_the_usage_of_every_judge_that_was_asked_is_summed():
    def judge(*usage):
        async def ask(request):
            return Judgement(outcome=Outcome.PASS, usage=Usage(input_tokens=usage[0], output_tokens=usage[1]) if usage else None)

        return ask

    assert (await judge_of([judge(1000, 10), judge(), judge(5, 1)])(judging())).usage == Usage(input_tokens=1005, output_tokens=11)
    assert (await judge_of([judge(), judge()])(judging())).usage is None
