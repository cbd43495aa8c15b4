"""A model behind the chat-completions API: OpenAI, and all that speaks like it (vLLM, Ollama, llama.cpp)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from pgmem.domain.asks import Judgement, JudgeRequest, Summary, SummaryRequest, Usage
from pgmem.domain.model import Outcome
from pgmem.domain.plans import check_text
from pgmem.domain.policy import LEAST_SUMMARY_TOKENS, MOST_TOKENS, check_number, check_seconds
from pgmem.domain.tokens import TokenCounter
from pgmem.errors import EmptySummary, InvalidArgument, SummaryRefused
from pgmem.llm.answers import Said, read_judgement, read_summary
from pgmem.llm.asker import Answered, Asker
from pgmem.llm.pieces import clip
from pgmem.llm.prompts import JUDGE_VERSION, MOST_NOTES, SUMMARY_VERSION, Prompt, judge_prompt, summary_prompt
from pgmem.llm.strategies import checked_text
from pgmem.llm.unsent import Unsent, Window
from pgmem.llm.wire import Wire

LEAST_INPUT_TOKENS = 4_000
"""The smallest window: the prompt's own words, the memory and a few turns fit in."""

MOST_ATTEMPTS = 100

_SUMMARY_SHARE = 3
_NOTE_SHARE = 32
_COMPLAINT_TOKENS = 100


class OpenAIModel:
    """Writes summaries and judges them, with one model of one server.

    A question takes at most ``retry_attempts`` requests, each of at most ``timeout_seconds``; a request whose ``response_format``
    the server turned away is not counted, and which format works is remembered. Together they take at most ``retry_attempts``
    times ``timeout_seconds`` and the pauses between them, which double from half a second; a ``Retry-After`` that ends later is
    not waited for. A summary or a judgement is one question, or one for each window that its turns need.

    Connections are opened at the first question and kept: ``await model.close()`` when done, or use ``async with``.

    Args:
        name: the model's name at the server.
        base_url: the server, such as ``http://localhost:11434/v1``, without a user, a password or a query; by default
            ``OPENAI_BASE_URL``, else OpenAI's own.
        api_key: the key; by default ``OPENAI_API_KEY``. A server of your own may need none.
        timeout_seconds: the most that one request may take.
        retry_attempts: how many requests a question may take in all; 1 means no second one.
        max_input_tokens: the most that one prompt may hold, by the memory's token counter. The default counter takes four bytes
            for a token: set it a quarter below the model's own window, less what it writes. Ollama cuts a longer prompt silently.
        max_summary_tokens: the most that a summary of this model may hold, when that is less than the policy says.

    Raises:
        InvalidArgument: an argument is of the wrong type or out of range, or there is no key for OpenAI's own server.

    Example:
        >>> OpenAIModel("llama3.2", base_url="http://localhost:11434/v1")
        OpenAIModel('llama3.2 at http://localhost:11434/v1')
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 60,
        retry_attempts: int = 3,
        max_input_tokens: int = 100_000,
        max_summary_tokens: int | None = None,
    ) -> None:
        self.name = check_text("name", name, most=200)
        self._max_input_tokens = check_number("max_input_tokens", max_input_tokens, least=LEAST_INPUT_TOKENS, most=MOST_TOKENS)
        if max_summary_tokens is not None:
            check_number("max_summary_tokens", max_summary_tokens, least=LEAST_SUMMARY_TOKENS, most=MOST_TOKENS)
        self._most_summary_tokens = min(max_summary_tokens or MOST_TOKENS, max_input_tokens // _SUMMARY_SHARE)
        self._note_tokens = max_input_tokens // _NOTE_SHARE
        server = _checked_url(base_url)
        self._asker = Asker(
            wire=Wire(model=name, base_url=server, api_key=_checked_key(api_key, server)),
            attempts=check_number("retry_attempts", retry_attempts, least=1, most=MOST_ATTEMPTS),
            attempt_seconds=check_seconds("timeout_seconds", timeout_seconds),
        )

    def __repr__(self) -> str:
        return f"OpenAIModel({self._asker.wire.place!r})"

    async def __aenter__(self) -> Self:
        """Itself; the connections are closed at the end."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the connections."""
        await self.close()

    async def close(self) -> None:
        """Closes the connections of the running event loop; a later question opens new ones."""
        await self._asker.wire.close()

    async def summarise(self, request: SummaryRequest) -> Summary:
        """The memory that stands for what was known and the request's turns, all of which are sent.

        Turns too many for ``max_input_tokens`` are sent in several questions, each with the memory that the one before made; a
        turn that is larger by itself is sent in consecutive parts, marked as such.

        Raises:
            ModelUnavailable: the server gave no answer.
            ModelRefused: the server turned the request down.
            SummaryRefused: the model will not summarise this.
            ModelAnswerInvalid: the answers could not be read.
            EmptySummary: it wrote nothing, twice.
            SummaryTooLong: it wrote more than ``max_summary_tokens``, twice.
            SummaryEcho: it wrote more than it was given, twice.
        """
        request = self._within_window(request)
        room = self._room(summary_prompt(request, ()), request.count) - request.max_summary_tokens
        unsent = await Unsent.of(request.memory, request.turns, room_tokens=room, count=request.count)
        written = _Written("", self.name, Usage(), 0)
        while unsent.windows:
            written = await unsent.ask(partial(self._write_on, request, written))
        usage = written.usage + unsent.usage
        return Summary(text=written.memory, model=written.model, prompt_version=SUMMARY_VERSION, usage=usage)

    async def judge(self, request: JudgeRequest) -> Judgement:
        """Whether the node's summary can stand for the memory that went in and the turns that it covers.

        What is too much for ``max_input_tokens`` is judged in several questions: one failure is enough, and what is missing is
        told together.

        Raises:
            ModelUnavailable: the server gave no answer.
            ModelRefused: the server or the model turned the request down.
            ModelAnswerInvalid: the answers are no verdict.
            InvalidArgument: the summary alone is larger than the window.
        """
        request = replace(request, goal=self._note(request.goal, request.count))
        room = self._room(judge_prompt(request, (), of=2), request.count)
        unsent = await Unsent.of(request.memory, request.turns, room_tokens=room, count=request.count)
        said: list[Answered[Said]] = []
        while unsent.windows:
            said.append(await unsent.ask(partial(self._judge_window, request, len(said), unsent)))
        return _together(said, unsent.usage)

    async def _write_on(self, request: SummaryRequest, written: _Written, window: Window) -> _Written:
        sources = written.source_tokens + sum(piece.source_tokens for piece in window)
        read = partial(_read, limit=request.max_summary_tokens, source_tokens=sources, count=request.count)
        prompt = summary_prompt(request, window, memory=written.memory)
        answered = await self._asker.ask(prompt, read, declined=SummaryRefused)
        return _Written(answered.answer, answered.model, written.usage + answered.usage, sources)

    async def _judge_window(self, request: JudgeRequest, before: int, unsent: Unsent, window: Window) -> Answered[Said]:
        prompt = judge_prompt(request, window, no=before + 1, of=before + len(unsent.windows))
        return await self._asker.ask(prompt, read_judgement)

    def _within_window(self, request: SummaryRequest) -> SummaryRequest:
        """The request with a limit that leaves room in the window, and notes that do."""
        return replace(
            request,
            goal=self._note(request.goal, request.count),
            hints=tuple(clip(note, self._note_tokens, request.count) for note in request.hints[:MOST_NOTES]),
            failures=tuple(clip(note, self._note_tokens, request.count) for note in request.failures[-MOST_NOTES:]),
            max_summary_tokens=min(request.max_summary_tokens, self._most_summary_tokens),
        )

    def _note(self, text: str | None, count: TokenCounter) -> str | None:
        return None if text is None else clip(text, self._note_tokens, count)

    def _room(self, prompt: Prompt, count: TokenCounter) -> int:
        """The tokens that are left for pieces in a prompt."""
        return self._max_input_tokens - count(prompt.task) - count(prompt.data) - _COMPLAINT_TOKENS


@dataclass(frozen=True, slots=True)
class _Written:
    """How far a summary is."""

    memory: str
    model: str
    usage: Usage
    source_tokens: int


def _read(content: str, *, limit: int, source_tokens: int, count: TokenCounter) -> str:
    if not content.strip():
        raise EmptySummary("the answer is empty")
    return checked_text(read_summary(content), limit=limit, source_tokens=source_tokens, count=count)


def _together(said: Sequence[Answered[Said]], besides: Usage) -> Judgement:
    """One judgement of those of all windows; what was counted ``besides`` them counts."""
    outcome = Outcome.FAIL if any(one.answer[0] is Outcome.FAIL for one in said) else Outcome.PASS
    deciding = [one.answer for one in said if one.answer[0] is outcome]
    reasons = dict.fromkeys(reason for _, reason, _ in deciding if reason)
    return Judgement(
        outcome=outcome,
        reason=" ".join(reasons) or None,
        missing=tuple(dict.fromkeys(item for _, _, missing in deciding for item in missing)),
        judge="llm",
        model=said[-1].model,
        prompt_version=JUDGE_VERSION,
        usage=sum((one.usage for one in said), besides),
    )


def _checked_url(value: Any) -> str | None:
    name, given = ("base_url", value) if value is not None else ("OPENAI_BASE_URL", os.environ.get("OPENAI_BASE_URL") or None)
    if given is None:
        return None
    try:
        parts = urlsplit(check_text(name, given, most=2_000))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and given.isprintable() and (parts.port or 1) > 0
    except ValueError:
        usable = False
    # it is never repeated: it may hold a password
    if not usable:
        raise InvalidArgument(f"{name} cannot be used: it must be like http://localhost:11434/v1")
    if "@" in parts.netloc:
        raise InvalidArgument(f"{name} holds a user or a password, which logs would show: leave it out, and give a key as api_key=")
    if "?" in given or "#" in given:
        raise InvalidArgument(
            f"{name} holds a query or a fragment, which no request can keep: end it with the path, as in /v1, "
            "and give a key as api_key="
        )
    return str(given)


def _checked_key(value: Any, server: str | None) -> str | None:
    if value is None:
        value = os.environ.get("OPENAI_API_KEY") or None
    if value is None and server is not None:
        return None  # a server of one's own may need none
    if value is None:
        raise InvalidArgument("there is no key for OpenAI: set OPENAI_API_KEY or pass api_key=, or base_url= for a server of yours")
    if not (isinstance(value, str) and value and value.isascii() and value.isprintable() and " " not in value):
        raise InvalidArgument("api_key cannot be used: it must be a text of printable ASCII characters without spaces")
    return str(value)
