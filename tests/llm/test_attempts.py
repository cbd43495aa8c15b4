"""How often a model is asked, what is tried again, and which error of ours every failure becomes."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

import pgmem.errors
from pgmem.errors import (
    EmptySummary,
    InvalidArgument,
    ModelAnswerInvalid,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    SummaryEcho,
    SummaryRefused,
    SummaryTooLong,
)
from pgmem.llm import pace
from pgmem.llm.openai_model import OpenAIModel
from pgmem.testing import Answer, empty, failing, failure, half, hanging, malformed, passing, refusal, summary, text
from tests.llm.raw import completion, raw, response
from tests.llm.support import TALK, asking, judging, scripted

KEY = "secret-key-1"
BROKEN = {
    "408": failure(408),
    "409": failure(409),
    "429": failure(429),
    "500": failure(500),
    "503": failure(503),
    "529": failure(529),
    "no JSON": malformed(),
    "half a body": half(),
    "no completion": Answer(body='{"error": {"message": "overloaded"}}'),
    "no choices": Answer(body='{"choices": []}'),
    "odd content": Answer(body='{"choices": [{"message": {"content": 7}}]}'),
    "an empty body": Answer(body=""),
    "deep JSON": Answer(body="[" * 100_000),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_two_failures_and_an_answer_are_three_requests_and_one_summary(broken):
    async with scripted([broken, broken, summary("made")]) as (endpoint, model):
        made = await model.summarise(asking())

        assert len(endpoint.requests) == 3
    assert made.text == "made"


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("attempts", [1, 3])
async def test_so_many_failures_as_attempts_are_so_many_requests_and_unavailable(broken, attempts):
    async with scripted(broken, retry_attempts=attempts) as (endpoint, model):
        with pytest.raises(ModelUnavailable) as caught:
            await model.summarise(asking())

        assert len(endpoint.requests) == attempts
    assert caught.value.retryable
    assert f"attempt {attempts} of {attempts}" in str(caught.value)
    assert caught.value.status == (broken.status if broken.status != 200 else None)


@pytest.mark.parametrize("status", [401, 402, 403, 405, 413])
async def test_what_would_fail_again_is_not_tried_again(status):
    async with scripted(failure(status, message="no such luck")) as (endpoint, model):
        with pytest.raises(ModelRefused, match=f"turned the request down: HTTP {status}: no such luck") as caught:
            await model.summarise(asking())

        assert len(endpoint.requests) == 1
    assert (caught.value.status, caught.value.retryable) == (status, False)


async def test_a_server_that_never_answers_is_left_after_the_timeout_of_each_attempt():
    started = time.monotonic()
    async with scripted(hanging(), timeout_seconds=0.3, retry_attempts=2) as (endpoint, model):
        with pytest.raises(ModelUnavailable, match="no answer within"):
            await model.summarise(asking())

        assert len(endpoint.requests) == 2
    assert time.monotonic() - started < 10


async def test_a_slow_answer_is_followed_by_another_attempt():
    async with scripted([summary("late").after(60), summary("in time")], timeout_seconds=0.5) as (endpoint, model):
        assert (await model.summarise(asking())).text == "in time"

        assert len(endpoint.requests) == 2


async def test_a_server_that_is_not_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    model = OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1", retry_attempts=2)

    with pytest.raises(ModelUnavailable, match="the connection failed"):
        await model.summarise(asking())
    await model.close()


async def test_retry_after_is_waited_for():
    started = time.monotonic()
    async with scripted([failure(429, retry_after_seconds=0.3), summary("made")]) as (_, model):
        await model.summarise(asking())

    assert time.monotonic() - started >= 0.3


async def test_a_retry_after_past_the_deadline_is_told_and_not_waited_for():
    started = time.monotonic()
    told = r"\(attempt 1 of 3; it asks to wait 600 s, longer than what is left\)"
    async with scripted(failure(429, retry_after_seconds=600), timeout_seconds=1) as (endpoint, model):
        with pytest.raises(ModelUnavailable, match=told) as caught:
            await model.summarise(asking())

        assert len(endpoint.requests) == 1
    assert caught.value.retry_after_seconds == 600
    assert time.monotonic() - started < 1


async def test_pauses_double_and_are_spread(monkeypatch):
    waited = []

    async def sleep(seconds):
        waited.append(seconds)

    monkeypatch.setattr(pace, "FIRST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(pace.asyncio, "sleep", sleep)
    paces = pace.Pace(8, 60)
    for _ in range(7):
        paces.spend()
        assert await paces.pause(None)
    paces.spend()

    assert not await paces.pause(None)
    for seconds, most in zip(waited, [0.5, 1, 2, 4, 8, 16, 20], strict=True):
        assert most / 2 <= seconds <= most


@pytest.mark.parametrize("attempts", [0, -1, True, 2.0, "3", None, float("nan"), 10**30])
def test_attempts_are_a_whole_number_from_1(attempts):
    with pytest.raises(InvalidArgument, match=r"retry_attempts is .*: it must be an integer from 1"):
        OpenAIModel("m", api_key="k", retry_attempts=attempts)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout_seconds", 0),
        ("timeout_seconds", -1),
        ("timeout_seconds", float("nan")),
        ("timeout_seconds", float("inf")),
        ("timeout_seconds", True),
        ("timeout_seconds", "60"),
        pytest.param("timeout_seconds", 10**5000, id="timeout_seconds-of 5001 digits"),
        ("max_input_tokens", 100),
        ("max_input_tokens", 1e5),
        ("max_summary_tokens", 0),
        ("max_summary_tokens", True),
        ("base_url", "localhost:11434"),
        ("base_url", "ftp://host/v1"),
        ("base_url", "http://"),
        ("base_url", "http://host:port/v1"),
        ("base_url", "http://[host/v1"),
        ("base_url", 7),
        ("api_key", ""),
        ("api_key", "with space"),
        ("api_key", "clé"),
        ("api_key", "line\nbreak"),
        ("api_key", 7),
    ],
)
def test_an_option_that_cannot_be_used_is_named(option, value):
    with pytest.raises(InvalidArgument, match=option):
        OpenAIModel("m", **{"api_key": "k", option: value})


@pytest.mark.parametrize("name", ["", None, 7, "a\0b", "x" * 300])
def test_a_model_has_a_name(name):
    with pytest.raises(InvalidArgument, match="name"):
        OpenAIModel(name, api_key="k")


def test_openai_needs_a_key_and_a_server_of_ones_own_needs_none(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    with pytest.raises(InvalidArgument, match="OPENAI_API_KEY"):
        OpenAIModel("m")
    OpenAIModel("m", base_url="http://localhost:11434/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    OpenAIModel("m")


# what the model wrote


@pytest.mark.parametrize("nothing", [empty(), text("  \n"), summary(""), summary(" \n\t "), Answer(content=None)])
async def test_an_empty_summary_is_asked_for_once_more_and_then_an_error(nothing):
    async with scripted(nothing) as (endpoint, model):
        with pytest.raises(EmptySummary):
            await model.summarise(asking())

        assert len(endpoint.requests) == 2
        assert "could not be used" in endpoint.requests[1].prompt


async def test_an_over_long_summary_is_asked_for_once_more_saying_so_and_then_an_error():
    async with scripted(summary("long " * 100)) as (endpoint, model):
        with pytest.raises(SummaryTooLong):
            await model.summarise(asking(max_summary_tokens=100))

        assert len(endpoint.requests) == 2
        assert "the summary has 125 tokens and 100 is the most" in endpoint.requests[1].prompt
        assert "could not be used" not in endpoint.requests[0].prompt


async def test_an_echo_is_asked_for_once_more_and_then_an_error():
    async with scripted(summary("echo " * 200)) as (endpoint, model):
        with pytest.raises(SummaryEcho):
            await model.summarise(asking())

        assert len(endpoint.requests) == 2


@pytest.mark.parametrize("bad", [empty(), summary("long " * 100), text("no JSON"), replace(text('{"su'), finish_reason="length")])
async def test_a_bad_answer_and_a_good_one_are_a_summary(bad):
    async with scripted([bad, summary("short")]) as (_, model):
        assert (await model.summarise(asking(max_summary_tokens=100))).text == "short"


@pytest.mark.parametrize("bad", [empty(), summary("long " * 100), text("no JSON")])
async def test_one_attempt_is_one_request_however_the_model_answers(bad):
    async with scripted(bad, retry_attempts=1) as (endpoint, model):
        with pytest.raises((EmptySummary, SummaryTooLong, ModelAnswerInvalid)):
            await model.summarise(asking(max_summary_tokens=100))

        assert len(endpoint.requests) == 1


async def test_an_answer_that_cannot_be_read_is_asked_for_as_often_as_there_are_attempts():
    async with scripted(text("Sure! Here is the summary.")) as (endpoint, model):
        with pytest.raises(ModelAnswerInvalid, match="could not be understood") as caught:
            await model.summarise(asking())

        assert len(endpoint.requests) == 3
    assert caught.value.retryable


async def test_an_answer_that_the_server_cut_off_is_no_summary():
    async with scripted(replace(summary("whole, by chance"), finish_reason="length")) as (_, model):
        with pytest.raises(ModelAnswerInvalid, match="cut off"):
            await model.summarise(asking())


@pytest.mark.parametrize("refused", [refusal("I won't."), replace(text(""), finish_reason="content_filter")])
async def test_a_refusal_is_told_and_not_asked_again(refused):
    async with scripted(refused) as (endpoint, model):
        with pytest.raises(SummaryRefused, match="will not answer"):
            await model.summarise(asking())
        with pytest.raises(ModelRefused):
            await model.judge(judging())

        assert len(endpoint.requests) == 2


async def test_the_models_own_limit_holds_when_it_is_below_the_policys():
    async with scripted(summary("long " * 100), max_summary_tokens=64) as (endpoint, model):
        with pytest.raises(SummaryTooLong, match="64 is the most"):
            await model.summarise(asking())

        assert "at most 64 tokens" in endpoint.requests[0].prompt


async def test_usage_is_summed_over_the_attempts_that_were_answered():
    counted = [answer.counting(input_tokens=100, output_tokens=7) for answer in (empty(), summary("made"))]
    async with scripted([failure(503), *counted]) as (_, model):
        made = await model.summarise(asking())

    assert (made.usage.input_tokens, made.usage.output_tokens) == (200, 14)
    assert (made.model, made.prompt_version) == ("scripted", "summary-1")


async def test_usage_counts_an_answer_without_a_text():
    odd = Answer(body='{"choices": [{"message": {"content": 7}}], "usage": {"prompt_tokens": 100, "completion_tokens": 7}}')
    async with scripted([odd, summary("made").counting(input_tokens=10, output_tokens=1)]) as (_, model):
        made = await model.summarise(asking())

    assert (made.usage.input_tokens, made.usage.output_tokens) == (110, 8)


@pytest.mark.parametrize("usage", ["null", "7", "{}", '{"prompt_tokens": -1, "completion_tokens": 1.5}', '{"prompt_tokens": true}'])
async def test_odd_usage_counts_as_none(usage):
    odd = '{"choices": [{"message": {"content": "{\\"summary\\": \\"made\\"}"}}], "usage": ' + usage + "}"
    async with scripted(Answer(body=odd)) as (_, model):
        made = await model.summarise(asking())

    assert (made.text, made.usage.input_tokens, made.usage.output_tokens) == ("made", 0, 0)


async def test_a_summary_holds_nothing_that_postgres_cannot():
    async with scripted(summary("a\0b\ud800c")) as (_, model):
        assert (await model.summarise(asking())).text == "a\ufffdb\ufffdc"


async def test_turns_with_text_that_utf8_cannot_encode_are_sent():
    given = (replace(TALK[0], message={"role": "user", "content": "split \ud83d emoji \0" + "x" * 300}),)
    async with scripted(summary("made")) as (endpoint, model):
        await model.summarise(asking(given))

        assert "split \ufffd emoji \ufffd" in endpoint.requests[0].prompt


async def test_a_judgement_has_outcome_reason_what_is_missing_and_who_judged():
    answers = [passing("all there"), failing("lost the build", ["4711"]).counting(input_tokens=9, output_tokens=2)]
    async with scripted(answers) as (_, model):
        passed, failed = await model.judge(judging()), await model.judge(judging())

    assert (passed.outcome, passed.reason, passed.missing) == ("pass", "all there", ())
    assert (failed.outcome, failed.reason, failed.missing) == ("fail", "lost the build", ("4711",))
    assert (failed.judge, failed.model, failed.prompt_version) == ("llm", "scripted", "judge-1")
    assert failed.usage.input_tokens == 9


@pytest.mark.parametrize("said", ["PASS but FAIL", "", '{"outcome": "maybe"}', '{"outcome":"pass"}{"outcome":"fail"}'])
async def test_what_is_no_verdict_is_an_error(said):
    async with scripted(text(said)) as (_, model):
        with pytest.raises(ModelAnswerInvalid):
            await model.judge(judging())


# what must never happen


async def test_a_cancelled_question_ends_at_once_as_cancelled():
    asked = asyncio.Event()

    def rule(request):
        asked.set()
        return hanging()

    async with scripted(rule=rule) as (_, model):
        task = asyncio.create_task(model.summarise(asking()))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_an_interrupt_is_not_turned_into_an_error_of_ours(monkeypatch):
    async with scripted() as (_, model):
        monkeypatch.setattr(type(model._asker.wire), "_post", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            await model.summarise(asking())


async def test_whatever_a_driver_raises_is_an_error_of_ours(monkeypatch):
    async def explode(*_):
        raise RuntimeError("Event loop is closed")

    async with scripted() as (_, model):
        monkeypatch.setattr(type(model._asker.wire), "_post", explode)
        with pytest.raises(ModelError, match="RuntimeError: Event loop is closed"):
            await model.summarise(asking())


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_no_key_is_ever_told(status):
    echo = f"Incorrect API key provided: {KEY} or sk-proj-abcdefgh12345678, Bearer {KEY}"
    async with scripted(failure(status, message=echo), retry_attempts=1) as (_, model):
        with pytest.raises(ModelError) as caught:
            await model.summarise(asking())

        shown = f"{caught.value!r} {model!r} {model._asker!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert "Incorrect API key provided: ***" in shown
    assert KEY not in shown
    assert "sk-proj" not in shown


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https//user:hunter2@host", "must be like http"),
        ("https://user:hunter2@host:8443/v1", "holds a user or a password"),
        ("https://hunter2@host/v1", "holds a user or a password"),
        ("https://@host/v1", "holds a user or a password"),
        ("https://host/v1?token=hunter2", "holds a query or a fragment"),
        ("https://host/v1?", "holds a query or a fragment"),
        ("https://host/v1#hunter2", "holds a query or a fragment"),
        ("https://host/v1#", "holds a query or a fragment"),
    ],
)
@pytest.mark.parametrize("given", ["base_url", "OPENAI_BASE_URL"])
def test_a_url_that_holds_more_than_a_place_is_refused_and_not_told(monkeypatch, url, told, given):
    monkeypatch.setenv("OPENAI_BASE_URL", url if given == "OPENAI_BASE_URL" else "")

    with pytest.raises(InvalidArgument, match=f"^{given} .*{told}") as caught:
        OpenAIModel("m", api_key="k", base_url=url if given == "base_url" else None)
    assert "hunter2" not in str(caught.value)


def test_a_server_of_the_environment_is_the_one_that_is_told(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://host:8443/v1")

    assert repr(OpenAIModel("m")) == "OpenAIModel('m at https://host:8443/v1')"
    assert repr(OpenAIModel("m", base_url="http://other/v1")) == "OpenAIModel('m at http://other/v1')"


@pytest.mark.parametrize("path", ["", "/"])
async def test_a_url_without_a_path_is_hinted_at_when_nothing_is_there(path):
    missing = response(b'{"detail": "Not Found"}', 404)
    async with raw(missing, path=path) as (_, model):
        with pytest.raises(ModelRefused, match=r"HTTP 404.*base_url has no path.*/v1$"):
            await model.summarise(asking())


@pytest.mark.parametrize(("path", "said"), [("/v1", "Not Found"), ("", "model 'm' not found")])
async def test_a_404_for_another_reason_has_no_hint(path, said):
    async with raw(response(b'{"error": {"message": "%s"}}' % said.encode(), 404), path=path) as (_, model):
        with pytest.raises(ModelRefused) as caught:
            await model.summarise(asking())

    assert "path" not in str(caught.value)


async def test_the_key_is_sent():
    async with raw(response(completion())) as (server, model):
        await model.summarise(asking())

    assert f"authorization: bearer {KEY}\r\n" in server.heads[0]


async def test_without_a_key_nothing_of_a_servers_words_is_masked(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    said = b'{"error": {"message": "none of the models is loaded, nonetheless"}}'
    async with raw(response(said, 401), api_key=None) as (_, model):
        with pytest.raises(ModelRefused, match="none of the models is loaded, nonetheless"):
            await model.summarise(asking())


@pytest.mark.parametrize("status", [200, 500])
async def test_no_part_of_a_key_is_told_where_a_text_is_clipped(status):
    async with raw(response(b"Z" * 290 + b" " + KEY.encode() + b" is bad", status), retry_attempts=1) as (_, model):
        with pytest.raises(ModelUnavailable) as caught:
            await model.summarise(asking())

    assert "secret" not in str(caught.value)


LONG = {
    "a body that is none": response(b"long " * 1_000_000),
    "a reason": response(b'{"error": {"message": "' + b"long " * 1_000 + b'"}}', 401),
    "a long reason": response(b'{"error": {"message": "' + b"long " * 1_000_000 + b'"}}', 401),
    "a refusal": response(b'{"choices": [{"message": {"refusal": "' + b"long " * 1_000_000 + b'"}}]}'),
    "a broken header": b"HTTP/1.1 " + b"9" * 50_000 + b"\r\n\r\n",
    "a text that is no summary": response(completion('["' + "long " * 1_000_000 + '"]')),
}


@pytest.mark.parametrize("long", LONG.values(), ids=LONG)
async def test_no_error_is_as_long_as_what_a_server_sends(long):
    async with raw(long, retry_attempts=1) as (_, model):
        with pytest.raises(ModelError) as caught:
            await model.summarise(asking())

    assert len(str(caught.value)) < 500


async def test_no_error_is_as_long_as_what_a_driver_raises(monkeypatch):
    async def explode(*_):
        raise RuntimeError("long " * 1_000_000)

    async with scripted() as (_, model):
        monkeypatch.setattr(type(model._asker.wire), "_post", explode)
        with pytest.raises(ModelError) as caught:
            await model.summarise(asking())

    assert len(str(caught.value)) < 500


ODD_WAITS = [
    "Fri, 31 Dec 99999 23:59:59 GMT",
    "Mon, 1 Jan 99999999999999999999 0:0:0 GMT",
    "Fri, 31 Dec 1999 23:59:59 +99999999999999999999",
    "Fri, 00 Jan 0000 00:00:00 GMT",
    "1e309",
    "nan",
    "soon",
    "\u00b2",
    "",
    "9" * 5_000,
]


@pytest.mark.parametrize("told", ODD_WAITS)
async def test_a_retry_after_that_is_no_time_is_as_if_it_was_not_there(told):
    async with raw(response(b"", 429, retry_after=told), response(completion())) as (_, model):
        assert (await model.summarise(asking())).text == "made"

    async with raw(response(b"", 429, retry_after=told), retry_attempts=1) as (_, model):
        with pytest.raises(ModelUnavailable) as caught:
            await model.summarise(asking())
    assert caught.value.status == 429
    assert not caught.value.retry_after_seconds


async def test_a_long_wait_that_is_asked_for_is_told_in_seconds():
    async with raw(response(b"", 429, retry_after="12345678901.5"), retry_attempts=2) as (_, model):
        with pytest.raises(ModelUnavailable, match="asks to wait 12345678902 s, longer"):
            await model.summarise(asking())


async def test_an_answer_that_cannot_be_read_is_not_kept_by_its_error():
    async with scripted(text("no JSON " * 1_000)) as (_, model):
        with pytest.raises(ModelAnswerInvalid) as caught:
            await model.summarise(asking())

    assert all(type(one).__module__ == "pgmem.errors" for one in chain(caught.value))


async def test_a_question_that_has_attempts_but_no_time_left_says_so(monkeypatch):
    async def no_time(*_):
        return False

    monkeypatch.setattr(pace.Pace, "pause", no_time)
    async with scripted(failure(503)) as (_, model):
        with pytest.raises(ModelUnavailable, match=r"\(attempt 1 of 3; no time is left for another\)"):
            await model.summarise(asking())


def chain(error):
    """An error, its causes and its contexts."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize("broken", ["_status_fault", "_told", "_reply"])
@pytest.mark.parametrize("status", [200, 429])
async def test_what_goes_wrong_over_an_answer_is_an_error_of_ours_without_the_drivers(monkeypatch, broken, status):
    def explode(*_):
        raise ValueError(KEY)

    async with raw(response(b"", status), retry_attempts=2) as (server, model):
        monkeypatch.setattr(type(model._asker.wire), broken, explode)
        with pytest.raises(ModelUnavailable) as caught:
            await model.summarise(asking())

        assert len(server.heads) == 2
    assert all(type(one).__module__ == "pgmem.errors" for one in chain(caught.value))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("bad", [response(b"[" * 900 + b"]" * 900, 401), response(b"null", 401), response(b"\xff\xfe", 401)])
async def test_an_odd_reason_does_not_hide_the_status(bad):
    async with raw(bad) as (_, model):
        with pytest.raises(ModelRefused, match="HTTP 401") as caught:
            await model.summarise(asking())

    assert caught.value.status == 401


async def test_one_model_object_serves_many_questions_at_once():
    def rule(request):
        return summary(request.prompt.partition("TASK-")[2][:2])

    given = [asking((replace(TALK[0], message={"role": "user", "content": f"TASK-{no}"}),)) for no in range(10, 42)]
    async with scripted(rule=rule) as (_, model):
        made = await asyncio.gather(*map(model.summarise, given))

    assert [one.text for one in made] == [str(no) for no in range(10, 42)]


def test_a_model_object_outlives_an_event_loop():
    async def once(model, endpoint_answers):
        from pgmem.testing import ScriptedModel

        async with ScriptedModel(endpoint_answers) as endpoint:
            model._asker.wire.base_url = endpoint.base_url
            return (await model.summarise(asking())).text

    model = OpenAIModel("m", base_url="http://127.0.0.1/v1")

    assert [asyncio.run(once(model, [summary(word)])) for word in ("one", "two")] == ["one", "two"]


def test_a_model_object_keeps_no_connections_of_loops_that_have_ended():
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", retry_attempts=1)

    async def ask():
        with pytest.raises(ModelUnavailable):
            await model.summarise(asking())

    for _ in range(5):
        asyncio.run(ask())

    assert len(model._asker.wire._clients) == 1


async def test_the_connections_of_a_loop_that_goes_on_are_kept():
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", retry_attempts=1)
    clients = []

    async def ask():
        with pytest.raises(ModelUnavailable):
            await model.summarise(asking())
        clients.append(model._asker.wire._clients[asyncio.get_running_loop()])

    await ask()
    await asyncio.to_thread(asyncio.run, ask())
    await ask()

    assert clients[0] is clients[2] is not clients[1]
    await model.close()


def test_the_model_errors_are_drawn_in_the_tree():
    for error in (ModelError, ModelUnavailable, ModelRefused, SummaryRefused, ModelAnswerInvalid, SummaryEcho):
        assert error.__name__ in pgmem.errors.__doc__
