"""Compactions off the response path: owned here, one a tree, bounded together, finished or ended before the Memory closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from pgmem.errors import DatabaseUnavailable
from pgmem.operations.compact import CompactionResult

log = logging.getLogger("pgmem")

Work = Callable[[], Coroutine[Any, Any, CompactionResult]]

GRACE_SECONDS = 5.0
"""How long a compaction that is cancelled may take to end."""

MOST_AT_ONCE = 4
"""How many compactions of one Memory ask a model at the same time."""


class CompactionTask:
    """A compaction that goes on whether or not anybody waits for it; await it for its ``CompactionResult``.

    Awaiting raises what the compaction raised. Cancelling the one who awaits does not cancel the compaction.
    """

    def __init__(self, task: asyncio.Task[CompactionResult]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, CompactionResult]:
        """Waits for the end."""
        return asyncio.shield(self._task).__await__()

    @property
    def done(self) -> bool:
        """Whether it ended, in whatever way."""
        return self._task.done()

    @property
    def error(self) -> BaseException | None:
        """What it raised; None while it works, and when it ended well."""
        if not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    def cancel(self) -> None:
        """Ends it; the tree stays as it was or is as it would be after it."""
        self._task.cancel()


class Compactions:
    """The compactions of one Memory that are under way."""

    def __init__(self) -> None:
        self._closed = False
        self._running: dict[tuple[int, str], CompactionTask] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    def start(self, key: tuple[int, str], name: str, work: Work) -> CompactionTask:
        """The compaction of that tree: the one that is under way, or a new one.

        Raises:
            DatabaseUnavailable: the Memory is closed or closing.
        """
        if self._closed:
            raise DatabaseUnavailable("this Memory is closed: use it inside its `async with pgmem.open()`")
        under_way = self._running.get(key)
        if under_way is not None:
            return under_way
        task = asyncio.create_task(self._bounded(work), name=f"pgmem compaction of {name}")
        started = self._running[key] = CompactionTask(task)
        task.add_done_callback(lambda ended: self._forget(key, name, ended))
        return started

    async def close(self, seconds: float) -> None:
        """Waits for all, at most so long, then ends what is left; what was left can be compacted again at any time."""
        self._closed = True
        tasks = [running._task for running in self._running.values()]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        if late:
            names = ", ".join(sorted(task.get_name() for task in late))
            log.warning("left for the next compact(), since it did not end within %g s: %s", seconds, names)
        for task in late:
            task.cancel()
        if late:
            # one whose strategy swallows its cancellation is not waited for
            await asyncio.wait(late, timeout=GRACE_SECONDS)

    async def _bounded(self, work: Work) -> CompactionResult:
        async with self._room:
            return await work()

    def _forget(self, key: tuple[int, str], name: str, ended: asyncio.Task[CompactionResult]) -> None:
        del self._running[key]
        if ended.cancelled():
            log.warning("the compaction of %s was cancelled: compact() goes on where it was", name)
        elif ended.exception() is not None:
            log.error("the compaction of %s failed: %s", name, ended.exception())
