"""One request to a chat-completions server, over the ``openai`` package: a Reply or a Fault comes back, never an exception."""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast
from urllib.parse import urlsplit

import openai

from pgmem.domain.asks import Usage
from pgmem.domain.message import storable
from pgmem.llm.client import BoundedClient, UnreadableAnswer
from pgmem.llm.prompts import Prompt
from pgmem.llm.strategies import is_count

_RETRIED = {408, 409, 429}
_SCHEMA_REFUSERS = {400, 404, 415, 422, 500, 501}
_ABOUT_FORMAT = re.compile(r"response[_ ]?format|json[_ ]?(schema|object|mode)|structured[_ ]output|grammar|guided", re.IGNORECASE)
_TOO_LARGE = re.compile(r"context[_ ]?(length|size|window)|maximum context|too many tokens|prompt is too long", re.IGNORECASE)
_NO_MODEL = re.compile(r"model.{0,200}(not[_ ]found|does ?n[o']t exist|not exist)", re.IGNORECASE | re.DOTALL)
_SECRET = re.compile(r"\b(?:sk|pk|key|gsk|hf|xai)[-_][\w-]{6,}|(?<=Bearer )\S+", re.IGNORECASE)
_MOST_TOLD = 300
_MOST_MASKED = 16_384
"""Characters of a text that are looked at for what to tell: far more than are told, so that masking leaves no half of a key."""

_STAND_IN_KEY = "none"
"""What the driver is given for a server that needs no key: it demands one."""

_NO_PATH = "; base_url has no path, and that of most servers ends in /v1"


class Format(IntEnum):
    """How an answer's form is asked for, the strictest first; the prompt describes it in any case."""

    JSON_SCHEMA = 0
    JSON_OBJECT = 1
    PROMPT = 2

    @property
    def next(self) -> Format:
        """The next less strict one; the last is followed by itself."""
        return Format(min(self + 1, Format.PROMPT))


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion.

    Attributes:
        content: what the model wrote; it may be empty.
        refusal: why the model will not answer, or None.
        truncated: whether the server's output limit cut it.
        model: the model that the server says it was.
        usage: what the server counted.
    """

    content: str
    refusal: str | None
    truncated: bool
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why there is no completion.

    Attributes:
        told: what happened, without a secret.
        status: the HTTP status, or None when there was no answer.
        retryable: whether the same request may succeed later.
        usage: what the server counted all the same.
        retry_after_seconds: how long the server asks to wait, or None.
        about_format: the server says that it cannot do the format that was asked for.
        may_be_format: it may be that the server cannot do the format.
        too_large: the server says that the prompt is larger than the model's window.
    """

    told: str
    status: int | None = None
    retryable: bool = True
    usage: Usage = field(default_factory=Usage)
    retry_after_seconds: float | None = None
    about_format: bool = False
    may_be_format: bool = False
    too_large: bool = False


@dataclass(slots=True, kw_only=True)
class Wire:
    """The way to one model of one server.

    Attributes:
        model: the model's name at the server.
        base_url: where the server is; None for OpenAI's own.
        api_key: the key; None for a server that needs none.
    """

    model: str
    base_url: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    # connections belong to the event loop that opened them
    _clients: dict[asyncio.AbstractEventLoop, openai.AsyncOpenAI] = field(default_factory=dict, init=False, repr=False)
    _making: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def place(self) -> str:
        """The model and the server, for messages: without a password or a query."""
        if self.base_url is None:
            return self.model
        parts = urlsplit(self.base_url)
        return f"{self.model} at {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def send(self, prompt: Prompt, *, form: Format, complaint: str | None, seconds: float) -> Reply | Fault:
        """Asks once.

        Args:
            prompt: what to ask.
            form: how the answer's form is asked for.
            complaint: why the answer before was not used, or None.
            seconds: the most that it may take.
        """
        answer = await self._answer(prompt, form, complaint, seconds)
        try:
            return self._reply(answer) if isinstance(answer, bytes) else self._fault(answer, form, seconds)
        except Exception as error:  # no way that an answer can be odd is known to lead here
            return Fault(told=f"the answer could not be worked out: {type(error).__name__}")

    async def close(self) -> None:
        """Closes the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def _answer(self, prompt: Prompt, form: Format, complaint: str | None, seconds: float) -> bytes | Exception:
        """The body of an answer, or what the driver raised; a value, so that no error of ours has it as its context."""
        try:
            client = await self._client()
            async with asyncio.timeout(seconds):
                return await self._post(client, prompt.messages(complaint), _response_format(form, prompt))
        except Exception as error:  # whatever a driver raises, it is no error of pgmem's
            return error

    async def _post(self, client: openai.AsyncOpenAI, messages: list[dict[str, str]], response_format: Mapping[str, Any]) -> bytes:
        answer = await client.chat.completions.with_raw_response.create(
            model=self.model, messages=cast(Any, messages), **response_format
        )
        return bytes(answer.http_response.content)

    async def _client(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if loop in self._clients:
            return self._clients[loop]
        # off the event loop: reading the certificates takes a tenth of a second
        return await asyncio.to_thread(self._made, loop)

    def _made(self, loop: asyncio.AbstractEventLoop) -> openai.AsyncOpenAI:
        with self._making:
            for ended in [one for one in self._clients if one.is_closed()]:
                del self._clients[ended]
            if loop not in self._clients:
                # the deadline, the attempts and the limit of an answer are ours
                self._clients[loop] = openai.AsyncOpenAI(
                    api_key=self.api_key or _STAND_IN_KEY,
                    base_url=self.base_url,
                    timeout=None,
                    max_retries=0,
                    http_client=BoundedClient(),
                )
            return self._clients[loop]

    def _fault(self, error: Exception, form: Format, seconds: float) -> Fault:
        match error:
            case TimeoutError() | openai.APITimeoutError():
                return Fault(told=f"no answer within {seconds:.3g} seconds")
            case UnreadableAnswer():
                return Fault(told=str(error))
            case openai.APIStatusError():
                return self._status_fault(error, form)
            case openai.APIConnectionError():
                return Fault(told=self._told(f"the connection failed: {error.__cause__ or error}"))
            case _:
                return Fault(told=self._told(f"{type(error).__name__}: {error}"), retryable=False)

    def _status_fault(self, error: openai.APIStatusError, form: Format) -> Fault:
        status, text = error.status_code, f"{_said(error)} {error.response.text}"
        no_model = bool(_NO_MODEL.search(text))
        too_large = status == 413 or (status in _SCHEMA_REFUSERS and bool(_TOO_LARGE.search(text)))
        formatted = form is not Format.PROMPT and status in _SCHEMA_REFUSERS and not too_large
        return Fault(
            told=self._told(f"HTTP {status}: {_said(error)}") + self._hint(status, no_model=no_model),
            status=status,
            retryable=(status in _RETRIED or status >= 500) and not too_large,
            retry_after_seconds=_retry_after(error.response.headers),
            about_format=formatted and bool(_ABOUT_FORMAT.search(text)),
            may_be_format=formatted and not no_model,
            too_large=too_large,
        )

    def _hint(self, status: int, *, no_model: bool) -> str:
        pathless = self.base_url is not None and not urlsplit(self.base_url).path.strip("/")
        return _NO_PATH if status == 404 and pathless and not no_model else ""

    def _reply(self, body: bytes) -> Reply | Fault:
        try:
            answer = json.loads(body)
            choice = answer["choices"][0]
            message = choice["message"]
            content, refusal = message.get("content"), message.get("refusal")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            shown = self._masked(body[:_MOST_MASKED].decode(errors="replace"))
            return Fault(told=_clipped(f"the answer is no chat completion: {shown!r}"))
        usage = _usage(answer.get("usage"))
        if not isinstance(content, str | None):
            return Fault(told=f"the answer's content is of type {type(content).__name__}, not a text", usage=usage)
        reason = choice.get("finish_reason")
        if reason == "content_filter" and not refusal:
            refusal = "stopped by the content filter"
        model = answer.get("model")
        return Reply(
            content=content or "",
            refusal=self._told(str(refusal)) if refusal else None,
            truncated=reason == "length",
            model=storable(model[:200]) if isinstance(model, str) and model else self.model,
            usage=usage,
        )

    def _told(self, text: str) -> str:
        return _clipped(self._masked(text))

    def _masked(self, text: str) -> str:
        """The beginning of ``text`` without a key."""
        text = storable(text[:_MOST_MASKED])
        return _SECRET.sub("***", text.replace(self.api_key, "***") if self.api_key else text)


def _clipped(told: str) -> str:
    return told if len(told) <= _MOST_TOLD else told[:_MOST_TOLD] + "..."


def _response_format(form: Format, prompt: Prompt) -> dict[str, Any]:
    match form:
        case Format.JSON_SCHEMA:
            described = {"name": prompt.name, "schema": prompt.schema, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": described}}
        case Format.JSON_OBJECT:
            return {"response_format": {"type": "json_object"}}
        case Format.PROMPT:
            return {}


def _said(error: openai.APIStatusError) -> str:
    said = error.body.get("message") if isinstance(error.body, dict) else None
    return said if isinstance(said, str) and said else error.message


def _usage(counted: object) -> Usage:
    if not isinstance(counted, dict):
        return Usage()
    tokens = [counted.get(name) for name in ("prompt_tokens", "completion_tokens")]
    read, wrote = (number if is_count(number) else 0 for number in tokens)
    return Usage(input_tokens=int(read or 0), output_tokens=int(wrote or 0))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a ``Retry-After`` header, a number or a date."""
    told = headers.get("retry-after")
    if told is None:
        return None
    try:
        seconds = float(told)
    except ValueError:
        seconds = _seconds_until(told)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(told: str) -> float:
    """How far away a date is; NaN when it is none, or out of range."""
    try:
        date = email.utils.parsedate_tz(told)
        return email.utils.mktime_tz(date) - time.time() if date else math.nan
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return math.nan
