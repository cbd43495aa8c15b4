"""A compaction in the queue: put there for a worker, awaited from here by a notice, and by looking now and then."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

from pgmem.domain.model import ON_PATH, Strategy
from pgmem.domain.policy import Policy, check_seconds
from pgmem.errors import CompactionLost, DatabaseError, DatabaseTimeout, InvalidArgument
from pgmem.operations import audit, policies
from pgmem.operations.compact import KIND, CompactionResult
from pgmem.operations.place import Place
from pgmem.store import caller_connection, job_queue

log = logging.getLogger("pgmem")

FIRST_LOOK_SECONDS = 0.05
LONGEST_LOOK_SECONDS = 2.0
"""How long to wait between two looks at a job: it doubles from the first to the longest."""

LONGEST_WAIT_SECONDS = 3600.0
"""How long a job is awaited at most, unless the caller says otherwise."""

_UNDER_WAY = ("todo", "doing")

_LOST = {
    "failed": "failed: the turns stay as they are; look at the worker's log, then `pgmem jobs retry`",
    "aborted": "gave way to another one that is gone: the turns stay as they are; compact_async() puts another one",
    "cancelled": "was cancelled: the turns stay as they are; compact_async() puts another one",
    None: "is not in the queue: its transaction was rolled back, or somebody deleted it; compact_async() puts another one",
}


_Read = TypeVar("_Read")


class QueuedCompaction:
    """A compaction that a worker does; await it for its ``CompactionResult``, or forget it.

    Attributes:
        job_id: the job's number, as `pgmem jobs` lists it; None when nothing was due, so that nothing was queued.
    """

    def __init__(self, place: Place, job_id: int | None, *, after: int, xact: int | None = None) -> None:
        self.job_id = job_id
        self._place = place
        self._after = after
        self._xact = xact
        self._gone_by: set[int] = set()
        self._put_by = None if xact is None else asyncio.current_task()
        self._done: CompactionResult | None = CompactionResult(None, None, 0) if job_id is None else None

    def __repr__(self) -> str:
        return f"<QueuedCompaction job {self.job_id} of {self._place}>"

    def __await__(self) -> Generator[Any, None, CompactionResult]:
        """Waits for the end, an hour at most."""
        return self.wait().__await__()

    async def wait(self, *, timeout_seconds: float = LONGEST_WAIT_SECONDS) -> CompactionResult:
        """Waits for the end, at most so long, also while the database is away; giving up changes nothing for the job.

        Args:
            timeout_seconds: how long, at most a day.

        Raises:
            DatabaseTimeout: it is not done in that time.
            CompactionLost: the job failed, was cancelled, or its transaction was rolled back.
            InvalidArgument: its transaction is yours to commit first.
        """
        check_seconds("timeout_seconds", timeout_seconds)
        if self._done is None:
            try:
                async with asyncio.timeout(timeout_seconds) as deadline:
                    await self._ended_with_successors()
                    self._done = await self._outlasting(self._result)
            except TimeoutError:
                if not deadline.expired():
                    raise
                raise DatabaseTimeout(self._late(timeout_seconds), retryable=True) from None
        return self._done

    async def status(self) -> str | None:
        """``todo``, ``doing``, ``succeeded``, ``failed``, ``cancelled``, ``aborted``; None when there is no such job.

        That is when nothing was due, when it was done long ago, and before its transaction is committed. Where the job gave way to
        another one of the tree it is the status of that one.
        """
        while (job_id := self.job_id) is not None:
            found = await job_queue.status(self._place.database, job_id)
            if found != "aborted" or not await self._gave_way(job_id):
                return found
        return None

    async def cancel(self) -> bool:
        """Takes it out of the queue, or asks its worker to stop; False when it is over."""
        while (job_id := self.job_id) is not None:
            if await job_queue.cancel(self._place.database, job_id) is not None:
                return True
            if not await self._gave_way(job_id):
                return False
        return False

    async def _gave_way(self, job_id: int) -> bool:
        """Whether a job gave way to another one of the tree, which this stands for from then on."""
        heir = await job_queue.successor(self._place.database, job_id)
        if self.job_id != job_id:  # somebody else who looks at it has found that out
            return True
        if heir is None or heir in self._gone_by:
            return False
        self._gone_by.add(job_id)
        self.job_id = heir
        return True

    async def _ended_with_successors(self) -> None:
        """Waits for the job, and where it gave way to another one of the tree, for that one."""
        while (job_id := self.job_id) is not None:
            try:
                await self._ended(job_id)
            except CompactionLost:
                if not await self._outlasting(partial(self._gave_way, job_id)):
                    raise
            else:
                return

    async def _ended(self, job_id: int) -> None:
        pause = FIRST_LOOK_SECONDS
        async with self._place.database.notices.of(job_id) as notice:
            while not await self._is_over(job_id):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(notice.wait(), pause)
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    async def _is_over(self, job_id: int) -> bool:
        look = partial(job_queue.looked_at, self._place.database, job_id, xact=self._xact)
        status, xact = await self._outlasting(look)
        if status is None and xact == "in progress":
            if self._put_by is asyncio.current_task():
                raise InvalidArgument(f"the transaction that job {job_id} was put in is open: commit it, then await the job")
            return False
        if status is None and self._xact is not None:
            self._xact = None  # it is over, which may have been after the look at the job
            return False
        self._xact = None
        if status in _UNDER_WAY:
            return False
        if status == "succeeded":
            return True
        raise CompactionLost(
            f"job {job_id} of {self._place} {_LOST[status]}",
            job_id=job_id,
            status=status or "gone",
        )

    async def _outlasting(self, read: Callable[[], Awaitable[_Read]]) -> _Read:
        """What is read, once the database is there: the job does not end when it is away."""
        while True:
            try:
                return await read()
            except DatabaseError as error:
                if not error.retryable:
                    raise
                log.info("job %d could not be looked at, the next look comes soon: %s", self.job_id, error)
            await asyncio.sleep(LONGEST_LOOK_SECONDS)

    def _late(self, seconds: float) -> str:
        if self._xact is not None:
            return f"the transaction that job {self.job_id} was put in was not committed within {seconds:g} s"
        return f"job {self.job_id} is not done within {seconds:g} s: does a `pgmem worker` run? see `pgmem jobs list`"

    async def _result(self) -> CompactionResult:
        """What the worker left since the job was put: the facts say it, whoever ran the job and however often."""
        written = [node async for node in audit.nodes(self._place, after=self._after) if node.kind == KIND]
        standing = [node for node in written if node.status in ON_PATH]
        verdicts = [verdict async for verdict in audit.verdicts(self._place, after=self._after)]
        attempts = sum(node.strategy is Strategy.LLM for node in written)
        return CompactionResult(standing[-1] if standing else None, verdicts[-1] if verdicts else None, attempts)


async def put(
    place: Place, policy: Policy, *, retry: bool, connection: Any = None, patience: str | None = None
) -> QueuedCompaction:
    """Puts a compaction into the queue if the tree is due; one that waits for the same tree already is joined.

    Args:
        place: the tree.
        policy: the settings, kept as a fact of the tree first.
        retry: whether a summary that fails is tried again, and tool_clear ends it; otherwise the turns stay raw.
        connection: the caller's own connection, whose transaction the job becomes part of; None for one of its own.
        patience: how long to wait for an open transaction that put a job of the same tree; None for as long as a statement may.
    """
    caller_connection.check_connection(connection)
    kept = await policies.keep(place, policy, retry=retry)
    if not kept.due:
        return QueuedCompaction(place, None, after=kept.last_no)
    database, job = place.database, job_queue.TreeJob(place.session_id, place.namespace, kept.no, retry, kept.last_no)
    if connection is None:
        return QueuedCompaction(place, await job_queue.put(database, job, patience=patience), after=kept.last_no)
    job_id, xact = await caller_connection.put(connection, database, job, key=place.session, made_at=place.made_at)
    return QueuedCompaction(place, job_id, after=kept.last_no, xact=xact)
