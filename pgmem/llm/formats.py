"""Which format a server can do: found out by asking, and given up for good only when it is sure."""

from __future__ import annotations

from dataclasses import dataclass, field

from pgmem.llm.wire import Format

_SURE = 2
"""Failures that settle it: a single one may have been an outage, or a model's bad moment."""


@dataclass(slots=True)
class Formats:
    """What is known of one server.

    A format is given up when a less strict one was answered instead, and either the server had said that it cannot do it, or that
    was so in two questions, the second begun after the first was answered. One that has ever worked is given up only by what the
    server says.
    """

    _failures: dict[Format, int] = field(default_factory=dict)
    _worked: set[Format] = field(default_factory=set)
    # of the last question, when nothing was answered in any format
    _open: dict[Format, int] = field(default_factory=dict)

    def question(self) -> Descent:
        """The formats of one question."""
        return Descent(self, dict(self._failures), dict(self._open))

    def worked(self, form: Format) -> bool:
        """Whether an answer in it was ever read."""
        return form in self._worked

    def answered(self, form: Format, failures: dict[Format, int]) -> None:
        """An answer was read in ``form``, after these ``failures`` of stricter ones."""
        self._worked.add(form)
        self._failures |= {one: max(times, self._failures.get(one, 0)) for one, times in failures.items()}
        self._open = {}

    def unanswered(self, failures: dict[Format, int]) -> None:
        """Nothing was answered: the next question goes on below these formats, which may be why."""
        self._open = failures


@dataclass(slots=True)
class Descent:
    """The formats of one question, from the strictest that the server may be able to do.

    Attributes:
        form: the format to ask in.
    """

    _formats: Formats
    _before: dict[Format, int]
    _failures: dict[Format, int]
    form: Format = field(default=Format.JSON_SCHEMA, init=False)

    def __post_init__(self) -> None:
        """Begins below what is given up, and below what failed in the question before."""
        while self._is_out(self.form):
            self.form = self.form.next

    def less(self, *, said: bool) -> bool:
        """Goes on in a less strict format; False when there is none, or no reason to.

        Args:
            said: whether the server says that it cannot do this one.
        """
        if self.form is Format.PROMPT or (self._formats.worked(self.form) and not said):
            return False
        self._failures[self.form] = _SURE if said else self._before.get(self.form, 0) + 1
        while self._is_out(self.form):
            self.form = self.form.next
        return True

    def answered(self) -> None:
        """An answer in ``form`` was read."""
        self._formats.answered(self.form, self._failures)

    def unanswered(self, asked: Format) -> None:
        """The question failed, last in the format ``asked``: when that was none, it was not the format."""
        self._formats.unanswered({} if asked is Format.PROMPT else self._failures)

    def _is_out(self, form: Format) -> bool:
        return form is not Format.PROMPT and (form in self._failures or self._before.get(form, 0) >= _SURE)
