"""Every error that pgmem raises, as one tree.

::

    PgmemError
    ├── InvalidArgument (also a ValueError)   the call itself is wrong; nothing was sent
    │   ├── InvalidMessage                    a message that no provider would take, or that cannot be kept
    │   │   ├── UnknownRole
    │   │   └── TurnTooLarge
    │   └── SummaryRejected                   a summary that no node is made of
    │       ├── EmptySummary
    │       ├── SummaryTooLong
    │       └── SummaryEcho
    ├── SessionNotFound                       asked for with ``create=False``
    ├── NodeNotFound
    ├── NotOnActiveLine                       a point to go back to that was left behind
    ├── NoSummaryModel                        an explicit compress with nothing to make its summary
    ├── ModelError                            what a model or the way to it said; ``retryable`` tells
    │   ├── ModelUnavailable
    │   ├── ModelRefused
    │   │   └── SummaryRefused
    │   └── ModelAnswerInvalid
    ├── SummaryFailed                         the strategy gave no summary; nothing was written
    ├── CompactionLost                        a job of the queue failed, or was cancelled
    ├── JudgeFailed                           the judge gave no verdict; the node stays as it was
    ├── TreeMovedOn                           the tree is not as the caller last saw it; nothing was written
    │   ├── StaleTree
    │   └── BranchAbandoned
    ├── FlowError                             a flow over stages cannot go on as it is
    │   ├── FlowNotReady (also a RuntimeError)
    │   ├── UnknownStep
    │   └── StaleFlow
    ├── IdempotencyConflict                   the key is known, with another message
    ├── TooManyPinned
    ├── OverBudget                            what must be shown is larger than ``budget_tokens``
    ├── DatabaseError                         what Postgres or the way to it said; ``retryable`` tells
    │   ├── DatabaseUnavailable
    │   ├── DatabaseTimeout
    │   └── DatabaseFull
    └── SetupError                            the place where memory should live is not ready
        ├── InvalidSettings
        ├── SchemaMismatch
        ├── UnsafeDatabase
        ├── PostgresNotFound
        └── EmbeddedServerError

Messages hold what was asked, what was found and what to do; never a password.
"""

from __future__ import annotations

from typing import Any


class PgmemError(Exception):
    """Anything that pgmem raises on purpose; it can be copied and pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # BaseException's calls the class with ``args`` alone, which lacks the arguments that go by name only
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[PgmemError], args: tuple[Any, ...]) -> PgmemError:
    return kind.__new__(kind, *args)


class InvalidArgument(PgmemError, ValueError):
    """An argument is of the wrong type, out of range or malformed; nothing was written."""


class InvalidMessage(InvalidArgument):
    """A message cannot be stored.

    Attributes:
        path: where in the message the fault is, such as ``$.tool_calls[0].id``.
    """

    def __init__(self, message: str, *, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class UnknownRole(InvalidMessage):
    """The role is none of system, user, assistant and tool."""


class TurnTooLarge(InvalidMessage):
    """The message is larger than ``max_turn_bytes``; split it or keep the body elsewhere."""


class SummaryRejected(InvalidArgument):
    """A summary cannot stand for its turns: no node is made of it."""


class EmptySummary(SummaryRejected):
    """A summary is empty or only white space."""


class SummaryTooLong(SummaryRejected):
    """A summary is over the policy's ``max_summary_tokens``."""


class SummaryEcho(SummaryRejected):
    """A summary is longer than the memory and the turns that it was made from."""


class SessionNotFound(PgmemError):
    """No session of this tenant has the key, and ``create=False``."""


class NodeNotFound(PgmemError):
    """The tree has no node of that position."""


class NotOnActiveLine(PgmemError):
    """The node or the turn was left behind, or never was: there is no way back to it."""


class SummaryFailed(PgmemError):
    """The strategy raised, took too long, or answered with what cannot be a summary; nothing was written."""


class CompactionLost(PgmemError):
    """A compaction in the queue failed, was cancelled, or its transaction was rolled back; the turns stay as they are.

    Attributes:
        job_id: the job.
        status: how it ended: ``failed``, ``cancelled``, ``aborted``, or ``gone`` where it is not in the queue.
    """

    def __init__(self, message: str, *, job_id: int, status: str) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.status = status


class JudgeFailed(PgmemError):
    """The judge raised, took too long, or could not be understood: that is no verdict.

    Attributes:
        node: the node that was to be judged; it stays as it was.
    """

    def __init__(self, message: str, *, node: int) -> None:
        super().__init__(message)
        self.node = node


class NoSummaryModel(PgmemError):
    """A summary was asked for, and there is neither a text nor a model for it."""


class ModelError(PgmemError):
    """A model gave nothing that can be used; nothing was written.

    Attributes:
        status: the HTTP status of the last answer, or None when there was none.
        retryable: whether the same call may succeed later.
        retry_after_seconds: how long the server asked to wait, or None.
    """

    retryable = False

    def __init__(self, message: str, *, status: int | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class ModelUnavailable(ModelError):
    """No attempt got an answer: the server failed, is overloaded, cannot be reached or took too long."""

    retryable = True


class ModelRefused(ModelError):
    """The server turned the request down, or the model will not answer it; asking again changes nothing."""


class SummaryRefused(ModelRefused):
    """The model will not summarise these turns."""


class ModelAnswerInvalid(ModelError):
    """The model answered, but not in the form that was asked for."""

    retryable = True


class TreeMovedOn(PgmemError):
    """The tree changed under the caller; nothing was written."""


class StaleTree(TreeMovedOn):
    """The tree's version is not the one that the plan was made for; read again and retry."""


class BranchAbandoned(TreeMovedOn):
    """The line that the caller last saw was left behind; call ``context()`` to see the new one.

    Attributes:
        seen: the branch that the caller last saw.
        current: the tree's branch now.
    """

    def __init__(self, message: str, *, seen: int, current: int) -> None:
        super().__init__(message)
        self.seen = seen
        self.current = current


class FlowError(PgmemError):
    """A flow over stages cannot go on as it is."""


class FlowNotReady(FlowError, RuntimeError):
    """A flow, a step or an exchange was used before or after the time when it can be; the message names the missing call."""


class UnknownStep(FlowError):
    """The flow was left in a step that it does not have any more."""


class StaleFlow(FlowError):
    """Somebody else saved the flow since it was started; start a new one."""


class IdempotencyConflict(PgmemError):
    """The idempotency key is stored with another message.

    Attributes:
        key: the idempotency key.
        no: the stored turn's position, or None when only part of a batch is known.
    """

    def __init__(self, message: str, *, key: str, no: int | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.no = no


class TooManyPinned(PgmemError):
    """The tree shows as many pinned turns as it may."""


class OverBudget(PgmemError):
    """What must be shown does not fit.

    Attributes:
        needed_tokens: the smallest that this context can be made.
        budget_tokens: what was asked for.
    """

    def __init__(self, message: str, *, needed_tokens: int, budget_tokens: int) -> None:
        super().__init__(message)
        self.needed_tokens = needed_tokens
        self.budget_tokens = budget_tokens


class DatabaseError(PgmemError):
    """Postgres refused or failed.

    Attributes:
        sqlstate: the five characters of Postgres, or None when it never answered.
        retryable: whether the same call may succeed later. A write whose outcome is not known is safe to repeat
            when it carries an idempotency key.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.retryable = retryable


class DatabaseUnavailable(DatabaseError):
    """The server cannot be reached, or it closed the connection."""


class DatabaseTimeout(DatabaseError):
    """A deadline passed: waiting for a connection, a lock or an answer."""


class DatabaseFull(DatabaseError):
    """The server is out of disk, memory or connections."""


class SetupError(PgmemError):
    """The database or the machine is not ready for pgmem; the message says which step is missing."""


class InvalidSettings(SetupError, ValueError):
    """A ``PGMEM_*`` variable or an option of ``open()`` cannot be used."""


class SchemaMismatch(SetupError):
    """The schema is missing, older or newer than this release can use."""


class UnsafeDatabase(SetupError):
    """The server or the role would not keep what pgmem promises."""


class PostgresNotFound(SetupError):
    """There is no Postgres to start; the message lists every place that was looked at."""


class EmbeddedServerError(SetupError):
    """The embedded server cannot be started or used."""
