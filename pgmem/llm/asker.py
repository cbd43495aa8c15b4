"""Asks one question until there is an answer of the right form: attempts, formats, what to say when an answer was no good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pgmem.domain.asks import Usage
from pgmem.errors import EmptySummary, ModelAnswerInvalid, ModelError, ModelRefused, ModelUnavailable, SummaryRejected
from pgmem.llm.pace import Pace
from pgmem.llm.prompts import Prompt
from pgmem.llm.wire import Fault, Format, Reply, Wire

_Answer = TypeVar("_Answer")


class PromptTooLarge(ModelRefused):
    """The server says that the prompt is larger than the model's window; the windows must be smaller."""


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
        format: the format that the next question is asked in.
        proven: whether an answer in that format was read.
    """

    wire: Wire
    attempts: int
    attempt_seconds: float
    format: Format = field(default=Format.JSON_SCHEMA, init=False)
    proven: bool = field(default=False, init=False)

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
        question = _Question(self, prompt, Pace(self.attempts, self.attempt_seconds), self.format)
        while True:
            reply = await question.reply()
            if reply.refusal is not None:
                raise declined(f"{self.wire.place} will not answer: {reply.refusal}", status=200)
            try:
                answer = read(_whole(reply))
            except (ModelAnswerInvalid, SummaryRejected) as error:
                question.complain(error)
                continue
            self.format, self.proven = question.form, True
            return Answered(answer, reply.model, question.usage)

    def avoid(self, form: Format) -> None:
        """The next question is asked in a less strict format than this one, which did not work."""
        if self.format <= form:
            self.format, self.proven = form.next, False


@dataclass(slots=True)
class _Question:
    """One question on its way through its attempts."""

    asker: Asker
    prompt: Prompt
    pace: Pace
    form: Format
    usage: Usage = field(default_factory=Usage)
    complaint: str | None = None
    rejected: bool = False

    async def reply(self) -> Reply:
        """The next completion; a format that the server turns away costs no attempt."""
        while True:
            asked, found = self.form, await self._send()
            if isinstance(found, Reply):
                self.pace.spend()
                self.usage += found.usage
                return found
            if self._turned_away(found):
                continue
            self.pace.spend()
            if not found.retryable or not await self.pace.pause(found.retry_after_seconds):
                self._give_up(asked)
                raise self._error(found)

    def complain(self, error: ModelAnswerInvalid | SummaryRejected) -> None:
        """Tells the model next time what was wrong; raises ``error`` when there is no next time."""
        twice = self.rejected and isinstance(error, SummaryRejected)
        self.rejected |= isinstance(error, SummaryRejected)
        if isinstance(error, ModelAnswerInvalid | EmptySummary) and not self.asker.proven:
            self._ask_for_less()  # some servers take a format and then write nothing, or anything
        if not twice and self.pace.left > 0 and self.pace.seconds > 0:
            self.complaint = str(error)
            return
        if isinstance(error, ModelAnswerInvalid):
            raise ModelAnswerInvalid(f"{self.asker.wire.place} could not be understood: {error}", status=200) from None
        raise error

    async def _send(self) -> Reply | Fault:
        return await self.asker.wire.send(self.prompt, form=self.form, complaint=self.complaint, seconds=self.pace.seconds)

    def _turned_away(self, fault: Fault) -> bool:
        if not (fault.about_format or (fault.may_be_format and not self.asker.proven)):
            return False
        self._ask_for_less()
        # a server that fails for any reason says 500 too: that is an attempt, and the next one asks for less
        return fault.about_format or not fault.retryable

    def _ask_for_less(self) -> None:
        self.asker.avoid(self.form)
        self.form = self.form.next

    def _give_up(self, asked: Format) -> None:
        if asked is Format.PROMPT and not self.asker.proven:
            self.asker.format = Format.JSON_SCHEMA  # it was not the format

    def _error(self, fault: Fault) -> ModelError:
        told = f"{self.asker.wire.place} gave no answer: {fault.told}"
        if fault.too_large:
            return PromptTooLarge(f"{told}; set max_input_tokens lower", status=fault.status)
        if not fault.retryable:
            return ModelRefused(told, status=fault.status)
        return ModelUnavailable(
            f"{told} (attempt {self.asker.attempts - self.pace.left} of {self.asker.attempts})",
            status=fault.status,
            retry_after_seconds=fault.retry_after_seconds,
        )


def _whole(reply: Reply) -> str:
    if reply.truncated:
        raise ModelAnswerInvalid("the answer was cut off at the server's output limit: write less")
    return reply.content
