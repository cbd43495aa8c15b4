"""Asks one question until there is an answer of the right form: attempts, formats, what to say when an answer was no good."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pgmem.domain.asks import Usage
from pgmem.errors import EmptySummary, ModelAnswerInvalid, ModelError, ModelRefused, ModelUnavailable, SummaryRejected
from pgmem.llm.formats import Descent, Formats
from pgmem.llm.pace import Pace
from pgmem.llm.prompts import Prompt
from pgmem.llm.wire import Fault, Reply, Wire

_Answer = TypeVar("_Answer")


class PromptTooLarge(ModelRefused):
    """The server says that the prompt is larger than the model's window; the windows must be smaller.

    Attributes:
        usage: what the server counted for attempts that it answered before.
    """

    def __init__(self, message: str, *, status: int | None, usage: Usage) -> None:
        super().__init__(message, status=status)
        self.usage = usage


class _CutOff(ModelAnswerInvalid):
    """The answer ended at the server's output limit, which says nothing about the format."""


@dataclass(frozen=True, slots=True)
class Answered(Generic[_Answer]):
    """An answer that was read.

    Attributes:
        answer: what the reader made of it.
        model: the model that wrote it.
        usage: what the server counted, over all attempts that it answered.
    """

    answer: _Answer
    model: str
    usage: Usage


@dataclass(slots=True, kw_only=True)
class Asker:
    """Asks one model, and remembers which format its server can do.

    Attributes:
        wire: the way to the model.
        attempts: requests that one question may take; one whose format the server turned away is not counted.
        attempt_seconds: the most that one request may take; a question takes ``attempts`` times as long at most.
        formats: what is known of the formats.
    """

    wire: Wire
    attempts: int
    attempt_seconds: float
    formats: Formats = field(default_factory=Formats, init=False)

    async def ask(
        self, prompt: Prompt, read: Callable[[str], _Answer], *, declined: type[ModelRefused] = ModelRefused
    ) -> Answered[_Answer]:
        """The answer, as ``read`` understands it.

        Args:
            prompt: what to ask.
            read: makes an answer of what the model wrote; raises ``ModelAnswerInvalid``, which is asked again while attempts are
                left, or ``SummaryRejected``, which is asked again once; both times the model is told why.
            declined: what to raise when the model will not answer.

        Raises:
            ModelUnavailable: no attempt got an answer.
            ModelRefused: the server turned the request down, or the model declined.
            ModelAnswerInvalid: no answer could be read.
            SummaryRejected: the answer was rejected twice, or there was no attempt left.
        """
        question = _Question(self, prompt, Pace(self.attempts, self.attempt_seconds), self.formats.question())
        while True:
            reply = await question.reply()
            if reply.refusal is not None:
                question.descent.answered()
                raise declined(f"{self.wire.place} will not answer: {reply.refusal}", status=200)
            try:
                answer = read(_whole(reply))
            except (ModelAnswerInvalid, SummaryRejected) as error:
                question.complain(error)
                continue
            question.descent.answered()
            return Answered(answer, reply.model, question.usage)


@dataclass(slots=True)
class _Question:
    """One question on its way through its attempts."""

    asker: Asker
    prompt: Prompt
    pace: Pace
    descent: Descent
    usage: Usage = field(default_factory=Usage)
    complaint: str | None = None
    rejected: bool = False

    async def reply(self) -> Reply:
        """The next completion; a format that the server turns away costs no attempt."""
        while True:
            asked, found = self.descent.form, await self._send()
            self.usage += found.usage
            if isinstance(found, Reply):
                self.pace.spend()
                return found
            if self._turned_away(found):
                continue
            self.pace.spend()
            if not found.retryable or not await self.pace.pause(found.retry_after_seconds):
                self.descent.unanswered(asked)
                raise self._error(found)

    def complain(self, error: ModelAnswerInvalid | SummaryRejected) -> None:
        """Tells the model next time what was wrong; raises ``error`` when there is no next time."""
        asked = self.descent.form
        twice = self.rejected and isinstance(error, SummaryRejected)
        self.rejected |= isinstance(error, SummaryRejected)
        if isinstance(error, ModelAnswerInvalid | EmptySummary) and not isinstance(error, _CutOff):
            self.descent.less(said=False)  # some servers take a format and then write nothing, or anything
        if not twice and self.pace.left > 0 and self.pace.seconds > 0:
            self.complaint = str(error)
            return
        self.descent.unanswered(asked)
        if isinstance(error, ModelAnswerInvalid):
            raise ModelAnswerInvalid(f"{self.asker.wire.place} could not be understood: {error}", status=200) from None
        raise error

    async def _send(self) -> Reply | Fault:
        return await self.asker.wire.send(self.prompt, form=self.descent.form, complaint=self.complaint, seconds=self.pace.seconds)

    def _turned_away(self, fault: Fault) -> bool:
        if not (fault.about_format or fault.may_be_format) or not self.descent.less(said=fault.about_format):
            return False
        # a server that fails for any reason says 500 too: that is an attempt, and the next one asks for less
        return fault.about_format or not fault.retryable

    def _error(self, fault: Fault) -> ModelError:
        failed = "gave no answer" if fault.retryable or fault.status is None else "turned the request down"
        told = f"{self.asker.wire.place} {failed}: {fault.told}"
        if fault.too_large:
            return PromptTooLarge(f"{told}; set max_input_tokens lower", status=fault.status, usage=self.usage)
        if not fault.retryable:
            return ModelRefused(told, status=fault.status)
        return ModelUnavailable(
            f"{told} ({self._stopped(fault)})", status=fault.status, retry_after_seconds=fault.retry_after_seconds
        )

    def _stopped(self, fault: Fault) -> str:
        """Why there is no other attempt."""
        attempt = f"attempt {self.asker.attempts - self.pace.left} of {self.asker.attempts}"
        if self.pace.left <= 0:
            return attempt
        if fault.retry_after_seconds is None:
            return f"{attempt}; no time is left for another"
        return f"{attempt}; it asks to wait {math.ceil(fault.retry_after_seconds)} s, longer than what is left"


def _whole(reply: Reply) -> str:
    if reply.truncated:
        raise _CutOff("the answer was cut off at the server's output limit: write less")
    return reply.content
