"""The memory of LLM agents, kept in your own Postgres: every turn for ever, a bounded context, nothing forgotten."""

from typing import TYPE_CHECKING, Any

from pgmem.domain.asks import Judge, Judgement, JudgeRequest, Summariser, Summary, SummaryRequest, Usage
from pgmem.domain.context import Context
from pgmem.domain.events import (
    AttemptsExhausted,
    CompactionCommitted,
    CompactionConflicted,
    CompactionFailed,
    CompactionSkipped,
    CompactionStarted,
    Erased,
    Event,
    Judged,
    JudgementFailed,
    Revised,
    SkipReason,
)
from pgmem.domain.model import (
    Branch,
    Cause,
    Hint,
    Message,
    Node,
    NodeStatus,
    Outcome,
    Role,
    Stage,
    Strategy,
    Turn,
    TurnStatus,
    Verdict,
)
from pgmem.domain.policy import Policy
from pgmem.domain.tokens import TokenCounter, count_tokens
from pgmem.errors import (
    BranchAbandoned,
    CompactionLost,
    DatabaseError,
    DatabaseFull,
    DatabaseTimeout,
    DatabaseUnavailable,
    EmbeddedServerError,
    EmptySummary,
    FlowError,
    FlowNotReady,
    IdempotencyConflict,
    InvalidArgument,
    InvalidMessage,
    InvalidSettings,
    JudgeFailed,
    ModelAnswerInvalid,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NodeNotFound,
    NoSummaryModel,
    NotOnActiveLine,
    OverBudget,
    PgmemError,
    PostgresNotFound,
    SchemaMismatch,
    SessionNotFound,
    SetupError,
    StaleFlow,
    StaleTree,
    SummaryEcho,
    SummaryFailed,
    SummaryRefused,
    SummaryRejected,
    SummaryTooLong,
    TooManyPinned,
    TreeMovedOn,
    TurnTooLarge,
    UnknownRole,
    UnknownStep,
    UnsafeDatabase,
)
from pgmem.flow import Exchange, Flow, StageMemory, Step
from pgmem.memory import Memory, Namespace, Session, open  # noqa: A004 - the name is the interface: pgmem.open()
from pgmem.operations.background import CompactionTask
from pgmem.operations.compact import CompactionResult
from pgmem.operations.queued import QueuedCompaction
from pgmem.operations.sessions import ModelUsage

if TYPE_CHECKING:
    from pgmem.llm.openai_model import OpenAIModel
    from pgmem.worker import Health, Worker

__all__ = [
    "AttemptsExhausted",
    "Branch",
    "BranchAbandoned",
    "Cause",
    "CompactionCommitted",
    "CompactionConflicted",
    "CompactionFailed",
    "CompactionLost",
    "CompactionResult",
    "CompactionSkipped",
    "CompactionStarted",
    "CompactionTask",
    "Context",
    "DatabaseError",
    "DatabaseFull",
    "DatabaseTimeout",
    "DatabaseUnavailable",
    "EmbeddedServerError",
    "EmptySummary",
    "Erased",
    "Event",
    "Exchange",
    "Flow",
    "FlowError",
    "FlowNotReady",
    "Health",
    "Hint",
    "IdempotencyConflict",
    "InvalidArgument",
    "InvalidMessage",
    "InvalidSettings",
    "Judge",
    "JudgeFailed",
    "JudgeRequest",
    "Judged",
    "Judgement",
    "JudgementFailed",
    "Memory",
    "Message",
    "ModelAnswerInvalid",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "ModelUsage",
    "Namespace",
    "NoSummaryModel",
    "Node",
    "NodeNotFound",
    "NodeStatus",
    "NotOnActiveLine",
    "OpenAIModel",
    "Outcome",
    "OverBudget",
    "PgmemError",
    "Policy",
    "PostgresNotFound",
    "QueuedCompaction",
    "Revised",
    "Role",
    "SchemaMismatch",
    "Session",
    "SessionNotFound",
    "SetupError",
    "SkipReason",
    "Stage",
    "StageMemory",
    "StaleFlow",
    "StaleTree",
    "Step",
    "Strategy",
    "Summariser",
    "Summary",
    "SummaryEcho",
    "SummaryFailed",
    "SummaryRefused",
    "SummaryRejected",
    "SummaryRequest",
    "SummaryTooLong",
    "TokenCounter",
    "TooManyPinned",
    "TreeMovedOn",
    "Turn",
    "TurnStatus",
    "TurnTooLarge",
    "UnknownRole",
    "UnknownStep",
    "UnsafeDatabase",
    "Usage",
    "Verdict",
    "Worker",
    "count_tokens",
    "open",
]


def __getattr__(name: str) -> Any:
    # the client of OpenAI's API takes half a second to import: only who uses it waits
    if name == "OpenAIModel":
        from pgmem.llm.openai_model import OpenAIModel

        return OpenAIModel
    # and the queue's library a fifth of one
    if name in ("Health", "Worker"):
        from pgmem import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
