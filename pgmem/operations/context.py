"""Context: one read, then pure code; moves nothing."""

from __future__ import annotations

import asyncio
from functools import partial

from pgmem.domain.context import Context, compile_context
from pgmem.domain.model import Role
from pgmem.operations.place import Place, read_snapshot


async def build(place: Place, *, system: str | None, budget_tokens: int | None, as_of: int | None, memory_role: Role) -> Context:
    """What the model is sent now, or was when the tree was at fact ``as_of``.

    Raises:
        OverBudget: the smallest context is over ``budget_tokens``.
        InvalidArgument: there is no fact ``as_of``.
    """
    snapshot = await read_snapshot(place, as_of=as_of)
    compiling = partial(compile_context, count=place.count, system=system, budget_tokens=budget_tokens, memory_role=memory_role)
    # shrinking large tool results takes a while: not on the event loop
    return compiling(snapshot) if budget_tokens is None else await asyncio.to_thread(compiling, snapshot)
