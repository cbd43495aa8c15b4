"""A compaction in the queue: put there for a worker, awaited from here by a notice, and by looking now and then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

from pgmem.domain.model import ON_PATH, Strategy
from pgmem.domain.names import shown
from pgmem.domain.policy import Policy
from pgmem.errors import CompactionLost, DatabaseTimeout, InvalidArgument
from pgmem.operations import audit, policies
from pgmem.operations.compact import KIND, CompactionResult
from pgmem.operations.place import Place
from pgmem.store import job_queue

FIRST_LOOK_SECONDS = 0.05
LONGEST_LOOK_SECONDS = 2.0
"""How long to wait between two looks at a job: it doubles from the first to the longest."""

LONGEST_WAIT_SECONDS = 3600.0
"""How long a job is awaited at most, unless the caller says otherwise."""

_UNDER_WAY = ("todo", "doing")


class QueuedCompaction:
    """A compaction that a worker does; await it for its ``CompactionResult``, or forget it.

    Attributes:
        job_id: the job's number, as `pgmem jobs` lists it; None when nothing was due, so that nothing was queued.
    """

    def __init__(self, place: Place, job_id: int | None, *, after: int, is_committed: bool) -> None:
        self.job_id = job_id
        self._place = place
        self._after = after
        self._was_seen = is_committed

    def __repr__(self) -> str:
        return f"<QueuedCompaction job {self.job_id} of {self._place}>"

    def __await__(self) -> Generator[Any, None, CompactionResult]:
        """Waits for the end, an hour at most."""
        return self.wait().__await__()

    async def wait(self, *, timeout_seconds: float = LONGEST_WAIT_SECONDS) -> CompactionResult:
        """Waits for the end, at most so long; giving up changes nothing for the job. Commit first, if it is part of a transaction.

        Raises:
            DatabaseTimeout: it is not done in that time.
            CompactionLost: the job failed, or was cancelled.
        """
        if type(timeout_seconds) not in (int, float) or not timeout_seconds > 0:
            raise InvalidArgument(f"timeout_seconds is {shown(timeout_seconds)}: it must be a number over 0")
        if self.job_id is None:
            return CompactionResult(None, None, 0)
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                await self._ended_with_successors()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DatabaseTimeout(
                f"job {self.job_id} is not done within {timeout_seconds:g} s: does a `pgmem worker` run? see `pgmem jobs list`",
                retryable=True,
            ) from None
        return await self._result()

    async def status(self) -> str | None:
        """``todo``, ``doing``, ``succeeded``, ``failed``, ``cancelled``, ``aborted``; None when there is no such job.

        That is when nothing was due, when it was done long ago, and before its transaction is committed.
        """
        return None if self.job_id is None else await job_queue.status(self._place.database, self.job_id)

    async def cancel(self) -> bool:
        """Takes it out of the queue, or asks its worker to stop; False when it is over."""
        return self.job_id is not None and await job_queue.cancel(self._place.database, self.job_id)

    async def _ended_with_successors(self) -> None:
        """Waits for the job, and where it gave way to another one of the tree, for that one."""
        while self.job_id is not None:
            try:
                await self._ended(self.job_id)
            except CompactionLost as lost:
                later = await job_queue.successor(self._place.database, lost.job_id) if lost.status == "aborted" else None
                if later is None:
                    raise
                self.job_id = later
            else:
                return

    async def _ended(self, job_id: int) -> None:
        pause = FIRST_LOOK_SECONDS
        async with self._place.database.notices.of(job_id) as notice:
            while not self._is_over(await self.status(), job_id):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(notice.wait(), pause)
                pause = min(2 * pause, LONGEST_LOOK_SECONDS)

    def _is_over(self, status: str | None, job_id: int) -> bool:
        if status is None:
            return self._was_seen
        self._was_seen = True
        if status in _UNDER_WAY:
            return False
        if status == "succeeded":
            return True
        raise CompactionLost(
            f"job {job_id} of {self._place} ended as {status}: the turns stay as they are; "
            "look at the worker's log, then `pgmem jobs retry`",
            job_id=job_id,
            status=str(status),
        )

    async def _result(self) -> CompactionResult:
        """What the worker left since the job was put: the facts say it, whoever ran the job and however often."""
        written = [node async for node in audit.nodes(self._place, after=self._after) if node.kind == KIND]
        standing = [node for node in written if node.status in ON_PATH]
        verdicts = [verdict async for verdict in audit.verdicts(self._place, after=self._after)]
        attempts = sum(node.strategy is Strategy.LLM for node in written)
        return CompactionResult(standing[-1] if standing else None, verdicts[-1] if verdicts else None, attempts)


async def put(place: Place, policy: Policy, *, retry: bool, connection: Any = None) -> QueuedCompaction:
    """Puts a compaction into the queue if the tree is due; one that waits for the same tree already is joined.

    Args:
        place: the tree.
        policy: the settings, kept as a fact of the tree first.
        retry: whether a summary that fails is tried again, and tool_clear ends it; otherwise the turns stay raw.
        connection: the caller's own connection, whose transaction the job becomes part of; None for one of its own.
    """
    job_queue.check_connection(connection)
    kept = await policies.keep(place, policy, retry=retry)
    if not kept.due:
        return QueuedCompaction(place, None, after=kept.last_no, is_committed=True)
    job = job_queue.TreeJob(place.session_id, place.namespace, kept.no, retry)
    job_id = await job_queue.put(place.database, job, connection=connection)
    return QueuedCompaction(place, job_id, after=kept.last_no, is_committed=connection is None)
