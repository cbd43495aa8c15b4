"""The form of an answer is asked for as strictly as the server can; what works is remembered, and costs no attempt."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pgmem.errors import EmptySummary, ModelRefused, ModelUnavailable
from pgmem.testing import Answer, failure, passing, refusal, summary, text
from tests.llm.support import asking, judging, scripted


def formats(endpoint):
    return [request.response_format for request in endpoint.requests]


async def test_a_server_that_can_is_asked_by_schema_alone():
    async with scripted([summary("made"), passing()]) as (endpoint, model):
        await model.summarise(asking())
        await model.judge(judging())

        assert formats(endpoint) == ["json_schema", "json_schema"]
        asked = [request.body["response_format"]["json_schema"] for request in endpoint.requests]
    assert [schema["name"] for schema in asked] == ["summary", "judgement"]
    assert all(schema["strict"] for schema in asked)


@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
async def test_a_server_without_schemas_is_asked_for_an_object_and_that_is_remembered(status):
    given = [summary("one"), summary("two")]
    async with scripted(given, no_json_schema=True, format_status=status, retry_attempts=1) as (endpoint, model):
        assert [(await model.summarise(asking())).text for _ in range(2)] == ["one", "two"]

        assert formats(endpoint) == ["json_schema", "json_object", "json_object"]


@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
async def test_a_server_without_formats_is_asked_by_the_prompt_and_that_is_remembered(status):
    away = {"no_json_schema": True, "no_json_object": True, "format_status": status}
    async with scripted([summary("one"), summary("two")], **away, retry_attempts=1) as (endpoint, model):
        assert [(await model.summarise(asking())).text for _ in range(2)] == ["one", "two"]

        assert formats(endpoint) == ["json_schema", "json_object", None, None]
        assert '{"summary": "' in endpoint.requests[-1].prompt


async def test_a_format_that_was_turned_away_costs_no_attempt():
    given = [failure(503), failure(503), summary("made")]
    async with scripted(given, no_json_schema=True, no_json_object=True) as (endpoint, model):
        assert (await model.summarise(asking())).text == "made"

        assert formats(endpoint) == ["json_schema", "json_object", None, None, None]


async def test_prose_is_asked_again_saying_what_was_wrong():
    async with scripted([text("Here you go: fine."), summary("made")], no_json_schema=True, no_json_object=True) as (
        endpoint,
        model,
    ):
        assert (await model.summarise(asking())).text == "made"

        assert "the answer is not one JSON object" in endpoint.requests[-1].prompt


async def test_a_server_that_takes_a_schema_and_then_writes_nothing_is_asked_for_an_object():
    def rule(request):
        return text("") if request.response_format == "json_schema" else summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        for _ in range(4):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object"] * 2 + ["json_object"] * 2


@pytest.mark.parametrize("status", [400, 404, 422, 500, 501])
async def test_a_format_that_fails_twice_while_a_lesser_one_works_is_not_tried_a_third_time(status):
    def rule(request):
        return failure(status, message="oops") if request.response_format == "json_schema" else summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        for _ in range(4):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object"] * 2 + ["json_object"] * 2


@pytest.mark.parametrize("bad", [failure(500), failure(400, message="bad request"), text("junk"), text("")])
async def test_what_fails_once_does_not_change_the_format_of_the_questions_after(bad):
    async with scripted([bad, summary("made")]) as (endpoint, model):
        for _ in range(3):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object", "json_schema", "json_schema"]


async def test_one_outage_over_many_questions_at_once_does_not_change_the_format_of_those_after():
    at_once = 8

    async def rule(request):
        await endpoint.asked(at_once)
        return failure(500) if endpoint.requests.index(request) < at_once else summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        await asyncio.gather(*(model.summarise(asking()) for _ in range(at_once)))
        await model.summarise(asking())

        assert formats(endpoint) == ["json_schema"] * at_once + ["json_object"] * at_once + ["json_schema"]


@pytest.mark.parametrize(
    ("first", "later"), [(failure(500), "json_schema"), (failure(400, message="no response_format here"), "json_object")]
)
async def test_of_two_questions_at_once_the_slower_one_adds_nothing_to_what_the_other_found(first, later):
    answered = asyncio.Event()

    async def rule(request):
        no = endpoint.requests.index(request)
        if no == 0:
            await endpoint.asked(2)
        if no == 1:
            await answered.wait()
        return (first, failure(500))[no] if no < 2 else summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        quick = asyncio.create_task(model.summarise(asking()))
        await endpoint.asked(1)
        slow = asyncio.create_task(model.summarise(asking()))
        await quick
        answered.set()
        await slow
        await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_schema", "json_object", "json_object", later]


async def test_a_single_attempt_goes_on_below_a_format_in_which_nothing_was_written():
    def rule(request):
        return text("") if request.response_format == "json_schema" else summary("made")

    async with scripted(rule=rule, retry_attempts=1) as (endpoint, model):
        with pytest.raises(EmptySummary):
            await model.summarise(asking())
        await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object"]


@pytest.mark.parametrize(
    "body",
    [
        '{"error": {"message": "\\u0072esponse_format?"}}',
        '{"detail": "no response_format"}',
        '["no response_format"]',
        "json_schema?",
    ],
)
async def test_a_server_may_say_in_any_form_that_it_cannot_do_a_format(body):
    def rule(request):
        return Answer(status=400, body=body) if request.response_format == "json_schema" else summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        for _ in range(2):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object", "json_object"]


async def test_an_outage_longer_than_the_attempts_does_not_change_the_format_of_the_questions_after():
    async with scripted([failure(500), failure(500), summary("made")], retry_attempts=2) as (endpoint, model):
        with pytest.raises(ModelUnavailable):
            await model.summarise(asking())
        for _ in range(3):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object", None, "json_schema", "json_schema"]


async def test_an_answer_that_was_cut_off_says_nothing_about_the_format():
    cut = replace(text('{"summary": "a'), finish_reason="length")
    async with scripted([cut, summary("made")]) as (endpoint, model):
        await model.summarise(asking())
        await model.summarise(asking())

        assert formats(endpoint) == ["json_schema"] * 3


async def test_a_refusal_shows_that_the_format_was_taken():
    refused = [refusal("I won't."), summary("made")]
    async with scripted(refused, no_json_schema=True, no_json_object=True) as (endpoint, model):
        with pytest.raises(ModelRefused):
            await model.summarise(asking())
        await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object", None, None]


async def test_a_500_that_does_not_say_why_is_an_attempt_and_the_next_asks_for_less():
    def rule(request):
        return failure(500, message="Internal Server Error") if request.response_format else summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        assert (await model.summarise(asking())).text == "made"

        assert formats(endpoint) == ["json_schema", "json_object", None]


async def test_a_single_attempt_finds_the_format_over_several_questions():
    def rule(request):
        return failure(500, message="Internal Server Error") if request.response_format else summary("made")

    async with scripted(rule=rule, retry_attempts=1) as (endpoint, model):
        for _ in range(2):
            with pytest.raises(ModelUnavailable):
                await model.summarise(asking())
        assert (await model.summarise(asking())).text == "made"
        assert formats(endpoint) == ["json_schema", "json_object", None]

        for _ in range(2):
            with pytest.raises(ModelUnavailable):
                await model.summarise(asking())
        for _ in range(2):
            await model.summarise(asking())
        assert formats(endpoint)[3:] == ["json_schema", "json_object", None, None]


async def test_an_outage_does_not_leave_the_model_without_a_format():
    async with scripted([failure(500)] * 3 + [summary("made")]) as (endpoint, model):
        with pytest.raises(ModelUnavailable):
            await model.summarise(asking())
        await model.summarise(asking())

        assert formats(endpoint)[-1] == "json_schema"


async def test_a_format_that_worked_is_not_given_up_for_a_500_or_a_400():
    given = [summary("one"), failure(500, message="oops"), summary("two"), failure(400, message="bad request")]
    async with scripted(given) as (endpoint, model):
        for _ in range(2):
            await model.summarise(asking())
        with pytest.raises(ModelRefused):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema"] * 4


async def test_a_format_that_worked_is_given_up_when_the_server_says_so():
    def rule(request):
        if request.response_format == "json_schema" and len(endpoint.requests) > 1:
            return failure(400, message="response_format json_schema is unavailable now")
        return summary("made")

    async with scripted(rule=rule) as (endpoint, model):
        for _ in range(3):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_schema", "json_object", "json_object"]


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_request_that_is_wrong_in_every_format_is_refused_after_each_was_tried_once(status):
    async with scripted(failure(status, message="bad request")) as (endpoint, model):
        with pytest.raises(ModelRefused, match="bad request"):
            await model.summarise(asking())

        assert formats(endpoint) == ["json_schema", "json_object", None]


async def test_a_model_that_is_not_there_is_asked_once():
    async with scripted(failure(404, message='model "llama9" not found, try pulling it first')) as (endpoint, model):
        with pytest.raises(ModelRefused, match="llama9"):
            await model.summarise(asking())

        assert len(endpoint.requests) == 1
