"""A model for tests: a real HTTP server on this machine that answers what the test says, and keeps what it was asked.

It speaks ``POST /v1/chat/completions`` and ``GET /v1/models``, so any client of that API can talk to it.

Example:
    >>> import asyncio, pgmem
    >>> from pgmem.testing import ScriptedModel, summary
    >>> async def main():
    ...     async with ScriptedModel([summary("The deploy waits for Ana.")]) as endpoint:
    ...         model = pgmem.OpenAIModel("scripted", base_url=endpoint.base_url)
    ...         ...  # use the model
    ...         return [request.asks_for for request in endpoint.requests]
    >>> asyncio.run(main())
    []
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from pgmem.domain.asks import Usage
from pgmem.domain.names import shown
from pgmem.domain.policy import check_number
from pgmem.domain.tokens import count_tokens
from pgmem.errors import InvalidArgument
from pgmem.llm.prompts import asks_for
from pgmem.llm.strategies import MOST_COUNTED

__all__ = [
    "Answer",
    "ScriptError",
    "ScriptedModel",
    "ScriptedRequest",
    "empty",
    "failing",
    "failure",
    "half",
    "hanging",
    "malformed",
    "passing",
    "refusal",
    "summary",
    "text",
]

MODEL = "scripted"
"""The name that ``GET /v1/models`` lists; any other works as well."""

SCRIPT_ERROR_STATUS = 418
"""What the endpoint answers when the test's own script failed: no real server says it, and no client tries it again."""


_LEAST_STATUS, _MOST_STATUS = 200, 599
_MOST_TIMES = 1_000_000


class ScriptError(AssertionError):
    """The test's rule raised, or gave something that is no Answer; raised where the ``async with`` ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the endpoint does with one request; the functions below make the usual ones.

    Attributes:
        content: what the model writes, or None.
        refusal: why the model will not answer, or None.
        finish_reason: why it stopped writing: ``stop``, ``length`` or ``content_filter``.
        usage: what the server counts; by default both texts at four bytes a token.
        status: the HTTP status.
        retry_after_seconds: the ``Retry-After`` header, or None.
        delay_seconds: how long the answer takes.
        body: the whole body, in place of a completion.
        cut: whether the connection breaks after half of the body.
        hangs: whether there is never an answer.

    Raises:
        InvalidArgument: a value is of the wrong type or out of range.
    """

    content: str | None = None
    refusal: str | None = None
    finish_reason: str = "stop"
    usage: Usage | None = None
    status: int = 200
    retry_after_seconds: float | None = None
    delay_seconds: float = 0.0
    body: str | None = None
    cut: bool = False
    hangs: bool = False

    def __post_init__(self) -> None:
        """Checks every value: a script that cannot be played is refused where it is written."""
        _check_text("finish_reason", self.finish_reason)
        for name, value in (("content", self.content), ("refusal", self.refusal), ("body", self.body)):
            if value is not None:
                _check_text(name, value)
        check_number("status", self.status, least=_LEAST_STATUS, most=_MOST_STATUS)
        _check_seconds("delay_seconds", self.delay_seconds)
        if self.retry_after_seconds is not None:
            _check_seconds("retry_after_seconds", self.retry_after_seconds)
        if self.usage is not None:
            _check_usage(self.usage)

    def after(self, seconds: float) -> Answer:
        """The same, that late."""
        return replace(self, delay_seconds=seconds)

    def counting(self, *, input_tokens: int, output_tokens: int) -> Answer:
        """The same, with that usage."""
        return replace(self, usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens))


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    """What the endpoint was asked.

    Attributes:
        body: the JSON body.
        headers: the HTTP headers, their names in lower case.
    """

    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages."""
        return list(self.body.get("messages") or [])

    @property
    def prompt(self) -> str:
        """The text of all messages."""
        return "\n".join(str(message.get("content")) for message in self.messages)

    @property
    def response_format(self) -> str | None:
        """``json_schema``, ``json_object``, or None when none was asked for."""
        asked = self.body.get("response_format") or {}
        return asked.get("type")

    @property
    def asks_for(self) -> str | None:
        """``summary`` or ``judgement`` when pgmem asks; None for any other request."""
        return asks_for(str(self.messages[0].get("content"))) if self.messages else None


Rule = Callable[[ScriptedRequest], "Answer | Awaitable[Answer | None] | None"]
"""Chooses an answer, now or when it is awaited; None leaves it to the list."""


def text(content: str) -> Answer:
    """The model writes that, whatever was asked for."""
    return Answer(content=content)


def summary(content: str) -> Answer:
    """A summary, in the form that pgmem asks for."""
    return text(json.dumps({"summary": _check_text("content", content)}))


def passing(reason: str = "everything is there") -> Answer:
    """A judgement: pass."""
    return text(json.dumps({"reason": _check_text("reason", reason), "missing": [], "outcome": "pass"}))


def failing(reason: str, missing: Sequence[str] = ()) -> Answer:
    """A judgement: fail.

    Args:
        reason: why.
        missing: a list of texts, what the summary lacks.
    """
    _check_text("reason", reason)
    if isinstance(missing, str | bytes) or not isinstance(missing, Sequence):
        raise InvalidArgument(f"missing is {shown(missing)}: give a list of texts")
    items = [_check_text(f"missing[{at}]", item) for at, item in enumerate(missing)]
    return text(json.dumps({"reason": reason, "missing": items, "outcome": "fail"}))


def refusal(reason: str = "I cannot help with that.") -> Answer:
    """The model will not answer."""
    return Answer(refusal=reason)


def empty() -> Answer:
    """The model writes nothing."""
    return text("")


def failure(status: int = 500, *, retry_after_seconds: float | None = None, message: str = "scripted failure") -> Answer:
    """The server fails with that status."""
    _check_text("message", message)
    body = json.dumps({"error": {"message": message, "type": "scripted", "param": None, "code": None}})
    return Answer(status=status, retry_after_seconds=retry_after_seconds, body=body)


def malformed() -> Answer:
    """The server's body is no JSON."""
    return Answer(body='{"choices": [{"message": {"content": ')


def half(answer: Answer | None = None) -> Answer:
    """The connection breaks after half of an answer, a summary by default."""
    whole = summary("half of this is lost") if answer is None else _check_answer("answer", answer)
    return replace(whole, cut=True)


def hanging() -> Answer:
    """The server takes the request and never answers."""
    return Answer(hangs=True)


class ScriptedModel:
    """The endpoint; it runs inside ``async with``, on a free port of 127.0.0.1.

    Args:
        answers: what it answers, in order; the last one is repeated. Without any it answers a summary or a pass, as asked.
        rule: looks at each request first; the list answers what the rule gives None for. It may be an async function, so that a
            test can hold an answer back until something has happened.
        no_json_schema: whether it turns ``response_format`` ``json_schema`` away, which uses up no answer.
        no_json_object: the same for ``json_object``.
        format_status: what it says then.

    Attributes:
        answers: the answers that are left; a test may change them.
        requests: what it was asked to complete, oldest first.

    Raises:
        InvalidArgument: the script cannot be played: ``answers`` or ``rule`` is of the wrong type.
        ScriptError: at the end of ``async with``: the rule raised, or gave no Answer.
    """

    def __init__(
        self,
        answers: Answer | Sequence[Answer] = (),
        *,
        rule: Rule | None = None,
        no_json_schema: bool = False,
        no_json_object: bool = False,
        format_status: int = 500,
    ) -> None:
        self.answers = _check_answers(answers)
        self.requests: list[ScriptedRequest] = []
        self._rule = _check_rule(rule)
        self._turned_away = {"json_schema"} if no_json_schema else set()
        self._turned_away |= {"json_object"} if no_json_object else set()
        self._format_status = check_number("format_status", format_status, least=_LEAST_STATUS, most=_MOST_STATUS)
        self._came = asyncio.Condition()
        self._errors: list[Exception] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def base_url(self) -> str:
        """Where it listens, as a client's ``base_url``.

        Raises:
            ScriptError: it does not run.
        """
        if self._server is None:
            raise ScriptError("the scripted model does not run: use it inside async with")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def asked(self, times: int = 1, *, within_seconds: float = 30.0) -> ScriptedRequest:
        """Waits until it was asked so often, and gives the newest of these requests; a test needs no sleep.

        Raises:
            InvalidArgument: ``times`` is no whole number from 1.
            ScriptError: it was not asked so often within that time.
        """
        check_number("times", times, least=1, most=_MOST_TIMES)
        try:
            async with asyncio.timeout(within_seconds), self._came:
                await self._came.wait_for(lambda: len(self.requests) >= times)
        except TimeoutError:
            raise ScriptError(f"asked {len(self.requests)} times within {within_seconds:g} seconds, not {times}") from None
        return self.requests[times - 1]

    async def __aenter__(self) -> Self:
        """Starts to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=2**20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Breaks every connection, stops, and raises what the rule raised."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await self._stop_tasks()
            await server.wait_closed()
        if self._errors and (error is None or isinstance(error, Exception)):
            raise ScriptError(f"the script of the scripted model failed: {self._errors[0]!r}") from self._errors[0]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="pgmem.testing request")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request on one connection."""
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                answer, shown = await self._answer(*await _read_request(reader))
                if not await _client_leaves(reader, None if answer.hangs else answer.delay_seconds):
                    writer.write(_head(answer, shown) + shown[: len(shown) // 2 if answer.cut else None])
                    await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, target: str, headers: dict[str, str], content: bytes) -> tuple[Answer, bytes]:
        """The answer to a request, and its body."""
        if target == "GET /v1/models":
            models = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "pgmem"}]}
            return Answer(), json.dumps(models).encode()
        if target != "POST /v1/chat/completions":
            answer = failure(404, message=f"there is no {target} here")
            return answer, _body(answer, None)
        body = _json_object(content)
        if body is None:
            answer = failure(400, message="the body is not one JSON object")
            return answer, _body(answer, None)
        request = ScriptedRequest(body, headers)
        async with self._came:
            self.requests.append(request)
            self._came.notify_all()
        answer = await self._chosen(request)
        return answer, _body(answer, request)

    async def _chosen(self, request: ScriptedRequest) -> Answer:
        asked = request.response_format
        if asked in self._turned_away:
            return failure(self._format_status, message=f"response_format {asked} is not supported")
        try:
            return await self._by_rule(request) or self._by_list(request)
        except Exception as error:  # shown to the test where its async with ends
            self._errors.append(error)
            return failure(SCRIPT_ERROR_STATUS, message=f"the test's script failed: {error!r}")

    async def _by_rule(self, request: ScriptedRequest) -> Answer | None:
        found = self._rule(request) if self._rule is not None else None
        answer = await found if inspect.isawaitable(found) else found
        if not isinstance(answer, Answer | None):
            raise TypeError(f"the rule gave a {type(answer).__name__}: it must give an Answer or None")
        return answer

    def _by_list(self, request: ScriptedRequest) -> Answer:
        if not self.answers:
            return passing() if request.asks_for == "judgement" else summary("A scripted summary.")
        _check_answer("answers[0]", self.answers[0])  # a test may have changed the list
        return self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)


def _check_answers(value: Any) -> list[Answer]:
    if isinstance(value, Answer):
        return [value]
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidArgument(f"answers is {shown(value)}: give {_an_answer(value)}, or a list of them")
    return [_check_answer(f"answers[{at}]", item) for at, item in enumerate(value)]


def _check_answer(name: str, value: Any) -> Answer:
    if not isinstance(value, Answer):
        raise InvalidArgument(f"{name} is {shown(value)}: give {_an_answer(value)}")
    return value


def _an_answer(value: Any) -> str:
    return f"an Answer, such as summary({shown(value if isinstance(value, str) else 'a text')})"


def _check_rule(value: Any) -> Rule | None:
    if value is not None and not callable(value):
        raise InvalidArgument(f"rule is {shown(value)}: give a function from a request to an Answer or None")
    rule: Rule | None = value
    return rule


def _check_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {shown(value)}: give a text")
    return value


def _check_seconds(name: str, value: Any) -> None:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise InvalidArgument(f"{name} is {shown(value)}: give a number of seconds, 0 or more")


def _check_usage(usage: Any) -> None:
    if not isinstance(usage, Usage):
        raise InvalidArgument(f"usage is of type {type(usage).__name__}: give a pgmem.Usage")
    for name in ("input_tokens", "output_tokens"):
        check_number(name, getattr(usage, name), least=0, most=MOST_COUNTED)


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """The method and path, the headers, the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    named = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in named}
    length = headers.get("content-length", "")
    content = await reader.readexactly(int(length) if length.isdecimal() else 0)
    return head[0].rpartition(" ")[0].partition("?")[0], headers, content


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


async def _client_leaves(reader: asyncio.StreamReader, seconds: float | None) -> bool:
    """Whether the client closes the connection within that time, or ever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await reader.read(1)
            return True
    return False


def _head(answer: Answer, body: bytes) -> bytes:
    waits = [] if answer.retry_after_seconds is None else [f"retry-after: {answer.retry_after_seconds:g}"]
    lines = [f"HTTP/1.1 {answer.status} Scripted", "content-type: application/json", f"content-length: {len(body)}", *waits]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode()


def _body(answer: Answer, request: ScriptedRequest | None) -> bytes:
    if answer.body is not None or request is None:
        return (answer.body or "").encode()
    usage = answer.usage or Usage(input_tokens=count_tokens(request.prompt), output_tokens=count_tokens(answer.content or ""))
    message = {"role": "assistant", "content": answer.content, "refusal": answer.refusal}
    completion = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": request.body.get("model", MODEL),
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}],
        "usage": {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }
    return json.dumps(completion).encode()
