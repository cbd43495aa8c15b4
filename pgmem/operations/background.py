"""Compactions off the response path: owned here, one a tree, bounded together, finished or ended before the Memory closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from pgmem.errors import DatabaseUnavailable, PgmemError
from pgmem.operations.compact import CompactionResult

log = logging.getLogger("pgmem")

Work = Callable[[], Coroutine[Any, Any, CompactionResult]]
Leave = Callable[[], Coroutine[Any, Any, bool]]

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
        self._leave: dict[tuple[int, str], Leave] = {}
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    def start(self, key: tuple[int, str], name: str, work: Work, *, leave: Leave) -> CompactionTask:
        """The compaction of that tree: the one that is under way, or a new one.

        Args:
            key: the tree.
            name: its name, for the log.
            work: what to do.
            leave: leaves it to a worker, when it is not done in time; whether it is still due.

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
        self._leave[key] = leave
        task.add_done_callback(lambda ended: self._forget(key, name, ended))
        return started

    async def close(self, seconds: float, *, has_worker: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Waits for all, at most so long, then ends what is left, and leaves it to a worker if one lives.

        Args:
            seconds: how long.
            has_worker: whether one does.
        """
        self._closed = True
        running = {task._task: self._leave[key] for key, task in self._running.items()}
        if not running:
            return
        try:
            await asyncio.wait(running, timeout=seconds)
        finally:  # also when leaving is cancelled: nothing outlives the Memory
            late = [task for task in running if not task.done()]
            for task in late:
                task.cancel()
            if late:
                log.warning("%d did not end within %g s: %s", len(late), seconds, ", ".join(task.get_name() for task in late))
        if late:
            # one whose strategy swallows its cancellation is not waited for
            await asyncio.wait(late, timeout=GRACE_SECONDS)
            await _left([(task.get_name(), running[task]) for task in late], seconds, has_worker)

    async def _bounded(self, work: Work) -> CompactionResult:
        async with self._room:
            return await work()

    def _forget(self, key: tuple[int, str], name: str, ended: asyncio.Task[CompactionResult]) -> None:
        del self._running[key], self._leave[key]
        if ended.cancelled():
            log.warning("the compaction of %s was cancelled: compact() goes on where it was", name)
        elif ended.exception() is not None:
            log.error("the compaction of %s failed: %s", name, ended.exception())


async def _left(late: list[tuple[str, Leave]], seconds: float, has_worker: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Leaves to a worker what can be left to one in so many seconds, each by itself."""
    left: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            if await has_worker():
                for name, leave in late:
                    with _told(name):
                        left += [name] * await leave()
    except TimeoutError:
        log.warning("no more can be left to a worker: the database does not answer within %g s", seconds)
    except PgmemError as error:
        log.warning("nothing can be left to a worker: %s", error)
    if left:
        log.warning("%d are left for a worker: %s", len(left), ", ".join(left))
    if len(left) < len(late):
        rest = ", ".join(name for name, _ in late if name not in left)
        log.warning("%d are left for the next compact(), if they are still due: %s", len(late) - len(left), rest)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Tells the log what keeps one from being left to a worker."""
    try:
        yield
    except PgmemError as error:
        log.warning("the %s cannot be left to a worker: %s", name, error)
