"""What all handles of one Memory share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pgmem.domain.asks import Judge, Summariser
from pgmem.domain.events import Event
from pgmem.domain.model import Role
from pgmem.domain.policy import Policy
from pgmem.domain.tokens import TokenCounter
from pgmem.memory.models import Models
from pgmem.operations.background import Compactions
from pgmem.store.database import Database


@dataclass(frozen=True, slots=True)
class Shared:
    """One Memory's database, settings and work under way.

    Attributes:
        database: where it is kept.
        policy: when to compact.
        summariser: who writes summaries; None when no summary model is set.
        judge: who judges them; ``coverage`` when no judge model is set.
        compactions: those under way.
        models: those that were made for flows.
        count: tokens of a text.
        memory_role: the role of the memory message.
        queued: whether the work of ``compact_async()`` goes into the queue.
        emit: takes the events.
    """

    database: Database
    policy: Policy
    summariser: Summariser | None
    judge: Judge
    compactions: Compactions
    models: Models
    count: TokenCounter
    memory_role: Role
    queued: bool
    emit: Callable[[Event], None]
