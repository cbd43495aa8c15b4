"""Waiting for what another task, another process or the server does, with a deadline for every wait."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

LOOK_SECONDS = 0.02


async def until(
    happens: Callable[[], object], what: str, *, within_seconds: float = 30.0, look_seconds: float = LOOK_SECONDS
) -> None:
    """Asks again and again; fails when it is not so within that time.

    Args:
        happens: a function or an async one; what it asks for lets other tasks go on.
        what: what is waited for, in words.
        within_seconds: how long.
        look_seconds: the pause between two looks.
    """
    try:
        async with asyncio.timeout(within_seconds):
            while True:
                found = happens()
                if await found if inspect.isawaitable(found) else found:
                    return
                await asyncio.sleep(look_seconds)
    except TimeoutError:
        raise AssertionError(f"waited {within_seconds:g} s in vain until {what}") from None
