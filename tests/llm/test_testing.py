"""The scripted model: what it answers, what it keeps, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from pgmem import InvalidArgument
from pgmem.llm.openai_model import OpenAIModel
from pgmem.testing import (
    Answer,
    ScriptedModel,
    ScriptError,
    empty,
    failing,
    failure,
    half,
    hanging,
    malformed,
    passing,
    refusal,
    summary,
    text,
)
from tests.llm.support import asking, judging


async def ask(endpoint, words="hello", **fields):
    async with openai.AsyncOpenAI(api_key="key", base_url=endpoint.base_url, max_retries=0) as client:
        return await client.chat.completions.create(model="any", messages=[{"role": "user", "content": words}], **fields)


async def said(endpoint, words="hello"):
    return (await ask(endpoint, words)).choices[0].message.content


async def test_answers_are_given_in_order_and_the_last_is_repeated():
    async with ScriptedModel([text("one"), text("two")]) as endpoint:
        assert [await said(endpoint) for _ in range(4)] == ["one", "two", "two", "two"]


async def test_one_answer_is_given_always():
    async with ScriptedModel(text("always")) as endpoint:
        assert [await said(endpoint) for _ in range(2)] == ["always", "always"]


async def test_a_rule_chooses_by_what_was_asked_and_leaves_the_rest_to_the_list():
    def rule(request):
        return text("ruled") if "special" in request.prompt else None

    async with ScriptedModel([text("listed")], rule=rule) as endpoint:
        assert await said(endpoint, "special") == "ruled"
        assert await said(endpoint, "plain") == "listed"


async def test_a_test_can_wait_until_it_was_asked():
    async with ScriptedModel(text("fine")) as endpoint:
        asking_twice = asyncio.gather(said(endpoint, "one"), said(endpoint, "two"))
        second = await endpoint.asked(2)
        await asking_twice

        assert second is endpoint.requests[1]


async def test_a_test_that_waits_for_a_request_in_vain_is_told():
    async with ScriptedModel() as endpoint:
        with pytest.raises(ScriptError, match=r"asked 0 times within 0\.01 seconds, not 1"):
            await endpoint.asked(within_seconds=0.01)


async def test_an_async_rule_holds_an_answer_back():
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def rule(request):
        asked.set()
        await may_answer.wait()
        return text("now")

    async with ScriptedModel(rule=rule) as endpoint:
        waiting = asyncio.create_task(said(endpoint))
        await asked.wait()
        assert not waiting.done()
        may_answer.set()

        assert await waiting == "now"


async def test_without_a_script_it_answers_what_pgmem_asks_for():
    async with ScriptedModel() as endpoint, OpenAIModel("m", base_url=endpoint.base_url) as model:
        assert (await model.summarise(asking())).text == "A scripted summary."
        assert (await model.judge(judging())).outcome == "pass"

        assert [request.asks_for for request in endpoint.requests] == ["summary", "judgement"]


async def test_requests_are_kept_with_body_and_headers():
    async with ScriptedModel(text("fine")) as endpoint:
        await ask(endpoint, "hello", temperature=0.5)
        [request] = endpoint.requests

    assert request.body["temperature"] == 0.5
    assert request.messages == [{"role": "user", "content": "hello"}]
    assert request.headers["authorization"] == "Bearer key"
    assert (request.prompt, request.response_format, request.asks_for) == ("hello", None, None)


async def test_usage_is_what_the_script_says_or_the_size_of_both_texts():
    async with ScriptedModel([text("12345678").counting(input_tokens=5, output_tokens=6), text("12345678")]) as endpoint:
        told, counted = (await ask(endpoint)).usage, (await ask(endpoint)).usage

    assert (told.prompt_tokens, told.completion_tokens, told.total_tokens) == (5, 6, 11)
    assert (counted.prompt_tokens, counted.completion_tokens) == (2, 2)


async def test_an_answer_takes_as_long_as_the_script_says():
    async with ScriptedModel(text("late").after(0.2)) as endpoint:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await said(endpoint)

        assert loop.time() - started >= 0.2


async def test_a_failure_has_its_status_and_retry_after():
    async with ScriptedModel(failure(429, retry_after_seconds=7, message="slow down")) as endpoint:
        with pytest.raises(openai.RateLimitError, match="slow down") as caught:
            await ask(endpoint)

    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("answer", [half(), half(text("x" * 1000))])
async def test_half_an_answer_breaks_the_connection(answer):
    async with ScriptedModel(answer) as endpoint:
        with pytest.raises(openai.APIConnectionError):
            await ask(endpoint)


async def test_a_malformed_body_is_no_json():
    async with ScriptedModel(malformed()) as endpoint:
        with pytest.raises(json.JSONDecodeError):
            await ask(endpoint)


async def test_nothing_and_refusals_are_completions():
    async with ScriptedModel([empty(), refusal("no")]) as endpoint:
        nothing, refused = await ask(endpoint), await ask(endpoint)

    assert nothing.choices[0].message.content == ""
    assert (refused.choices[0].message.content, refused.choices[0].message.refusal) == (None, "no")


async def test_a_hanging_request_ends_with_the_client_or_with_the_endpoint():
    async with ScriptedModel(hanging()) as endpoint:
        leaving, waiting = asyncio.create_task(ask(endpoint)), asyncio.create_task(ask(endpoint))
        await endpoint.asked(2)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
    with pytest.raises(openai.APIConnectionError):
        await waiting


async def test_formats_that_it_cannot_do_are_turned_away_and_use_up_no_answer():
    async with ScriptedModel([text("fine")], no_json_schema=True, no_json_object=True, format_status=422) as endpoint:
        for kind in ("json_schema", "json_object"):
            with pytest.raises(openai.UnprocessableEntityError, match=kind):
                await ask(endpoint, response_format={"type": kind, "json_schema": {"name": "n", "schema": {}}})

        assert await said(endpoint) == "fine"
        assert len(endpoint.requests) == 3


async def test_its_models_are_listed():
    async with ScriptedModel() as endpoint, openai.AsyncOpenAI(api_key="key", base_url=endpoint.base_url) as client:
        assert [model.id async for model in client.models.list()] == ["scripted"]

        assert endpoint.requests == []


async def test_another_path_is_not_found():
    async with ScriptedModel() as endpoint, openai.AsyncOpenAI(api_key="key", base_url=endpoint.base_url) as client:
        with pytest.raises(openai.NotFoundError, match="POST /v1/embeddings"):
            await client.embeddings.create(model="m", input="x")


async def test_an_error_in_the_rule_reaches_the_test():
    def rule(request):
        raise LookupError("the test is wrong")

    with pytest.raises(ScriptError, match="the test is wrong") as caught:
        async with ScriptedModel(rule=rule) as endpoint:
            await asyncio.gather(ask(endpoint), return_exceptions=True)
    assert isinstance(caught.value.__cause__, LookupError)


async def test_an_error_in_the_rule_is_told_though_the_test_failed_of_it():
    with pytest.raises(ScriptError, match="it must give an Answer"):
        async with ScriptedModel(rule=lambda request: "text") as endpoint:
            await ask(endpoint)


async def test_a_rule_that_fails_is_asked_once():
    def rule(request):
        raise LookupError

    with pytest.raises(ScriptError):
        async with ScriptedModel(rule=rule) as endpoint, OpenAIModel("m", base_url=endpoint.base_url) as model:
            await model.summarise(asking())
    assert len(endpoint.requests) == 1


async def test_it_leaves_no_task_and_no_port_behind():
    before = asyncio.all_tasks()
    async with ScriptedModel(hanging()) as endpoint:
        url = endpoint.base_url
        waiting = asyncio.create_task(ask(endpoint))
        await endpoint.asked()
    await asyncio.gather(waiting, return_exceptions=True)

    assert asyncio.all_tasks() == before
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))
    with pytest.raises(ScriptError, match="does not run"):
        _ = endpoint.base_url


async def test_bytes_that_are_no_request_are_survived():
    async with ScriptedModel(text("fine")) as endpoint:
        port = int(endpoint.base_url.rpartition(":")[2].partition("/")[0])
        post = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: "
        for sent in (b"", b"hello", b"x" * 2**21, post + b"9\r\n\r\n{", post + b"2\r\n\r\n[]", post + b"-1\r\n\r\n"):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            writer.close()
            await writer.wait_closed()

        assert await said(endpoint) == "fine"


async def test_many_requests_at_once_are_answered():
    async with ScriptedModel(rule=lambda request: text(request.prompt).after(0.05)) as endpoint:
        words = [f"word {no}" for no in range(50)]

        assert await asyncio.gather(*(said(endpoint, word) for word in words)) == words


def test_helpers_make_answers():
    assert json.loads(summary("s").content) == {"summary": "s"}
    assert json.loads(passing("p").content)["outcome"] == "pass"
    assert json.loads(failing("f", ["m"]).content) == {"reason": "f", "missing": ["m"], "outcome": "fail"}
    assert isinstance(half(), Answer)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: text(3), r"content is 3: give a text"),
        (lambda: summary(3), r"content is 3: give a text"),
        (lambda: passing(None), r"reason is None: give a text"),
        (lambda: failing(3), r"reason is 3: give a text"),
        (lambda: failing("r", "abc"), r"missing is 'abc': give a list of texts"),
        (lambda: failing("r", [1]), r"missing\[0\] is 1: give a text"),
        (lambda: failing("r", None), r"missing is None: give a list of texts"),
        (lambda: refusal(3), r"refusal is 3: give a text"),
        (lambda: failure("500"), r"status is '500': it must be an integer from 200 to 599"),
        (lambda: failure(True), r"status is True"),
        (lambda: failure(100), r"status is 100"),
        (lambda: failure(message=3), r"message is 3: give a text"),
        (lambda: failure(429, retry_after_seconds="7"), r"retry_after_seconds is '7': give a number of seconds, 0 or more"),
        (lambda: half("text"), r"answer is 'text': give an Answer, such as summary\('text'\)"),
        (lambda: text("t").after(-1), r"delay_seconds is -1: give a number of seconds, 0 or more"),
        (lambda: text("t").after(float("nan")), r"delay_seconds is nan"),
        (lambda: text("t").after("1"), r"delay_seconds is '1'"),
        (lambda: text("t").counting(input_tokens=-1, output_tokens=0), r"input_tokens is -1"),
        (lambda: text("t").counting(input_tokens=1, output_tokens="2"), r"output_tokens is '2'"),
        (lambda: Answer(content="t", usage={"input_tokens": 1}), r"usage is of type dict: give a pgmem.Usage"),
        (lambda: Answer(content="t", finish_reason=None), r"finish_reason is None: give a text"),
        (lambda: Answer(body=b"{}"), r"body is b'{}': give a text"),
        (lambda: ScriptedModel("text"), r"answers is 'text': give an Answer, such as summary\('text'\), or a list of them"),
        (lambda: ScriptedModel(["zzz"]), r"answers\[0\] is 'zzz': give an Answer, such as summary\('zzz'\)"),
        (lambda: ScriptedModel([text("t"), text]), r"answers\[1\] is <function text.*>: give an Answer, such as summary\('"),
        (lambda: ScriptedModel(None), r"answers is None: give an Answer, such as summary\('"),
        (lambda: ScriptedModel(rule="text"), r"rule is 'text': give a function"),
        (lambda: ScriptedModel(format_status="500"), r"format_status is '500'"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_where_it_is_written(make, reason):
    with pytest.raises(InvalidArgument, match=f"^{reason}"):
        make()


async def test_an_answer_put_into_the_list_later_that_is_none_reaches_the_test():
    endpoint = ScriptedModel()
    endpoint.answers.append("zzz")

    with pytest.raises(ScriptError, match=r"answers\[0\] is 'zzz': give an Answer"):
        async with endpoint:
            await ask(endpoint)


async def test_waiting_for_no_request_is_refused():
    async with ScriptedModel() as endpoint:
        with pytest.raises(InvalidArgument, match="times is 0"):
            await endpoint.asked(0)
