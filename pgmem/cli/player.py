"""Plays a conversation as an agent would live it: turn by turn, a context before each of its own messages."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pgmem import (
    Context,
    ModelAnswerInvalid,
    Node,
    OverBudget,
    Session,
    SummaryFailed,
    SummaryRefused,
    SummaryRejected,
)
from pgmem.cli.conversations import Conversation
from pgmem.cli.figures import Figures, timed
from pgmem.cli.messages import tokens_of
from pgmem.domain.model import Role
from pgmem.domain.tokens import count_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One assistant message that is about to be added.

    Attributes:
        index: its position in the conversation's messages.
        context: what the model would have been sent for it; None when that was over the budget.
        sent_tokens: the context without the caller's prompt.
        full_tokens: the history before it without the caller's prompt.
    """

    index: int
    context: Context | None
    sent_tokens: int
    full_tokens: int


async def play(
    session: Session, conversation: Conversation, *, figures: Figures, budget_tokens: int | None = None
) -> AsyncIterator[Step]:
    """Adds the conversation to an empty session, compacting by the memory's policy; yields before each assistant message.

    A context that is over the budget is counted and left out, and so is a compaction in which the model gave no summary that
    can stand; the conversation goes on.

    Args:
        session: a fresh one.
        conversation: what is played.
        figures: takes what is measured.
        budget_tokens: the most that a context may hold, the system prompt included.

    Raises:
        SummaryFailed: the model cannot be asked at all.
    """
    figures.conversations += 1
    full_tokens = 0
    for index, message in conversation.turns():
        if message["role"] == Role.ASSISTANT:
            yield await _step(session, conversation, index, full_tokens, figures, budget_tokens)
        with timed(figures.append_seconds):
            await session.add_turns([message])
        figures.turns += 1
        full_tokens += tokens_of(message)
        await _compact(session, figures)


async def _step(
    session: Session, conversation: Conversation, index: int, full_tokens: int, figures: Figures, budget_tokens: int | None
) -> Step:
    try:
        with timed(figures.context_seconds):
            context = await session.context(conversation.system, budget_tokens=budget_tokens)
    except OverBudget:
        figures.over_budget += 1
        return Step(index, None, 0, full_tokens)
    sent_tokens = context.tokens - count_tokens(conversation.system or "")
    figures.add_context(sent_tokens=sent_tokens, full_tokens=full_tokens)
    return Step(index, context, sent_tokens, full_tokens)


async def _compact(session: Session, figures: Figures) -> None:
    began = time.perf_counter()
    if await _compacted(session, figures) is not None:
        figures.nodes += 1
        figures.compact_seconds.append(time.perf_counter() - began)


async def _compacted(session: Session, figures: Figures) -> Node | None:
    try:
        return await session.compact()
    except SummaryFailed as error:
        # what is about these turns may go well for others; a server that is not there will not
        if not isinstance(error.__cause__, SummaryRejected | SummaryRefused | ModelAnswerInvalid):
            raise
        figures.add_no_summary(error.__cause__)
        return None
