"""A worker: takes compactions out of the queue, does them with its own models, and looks after what others left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import procrastinate
from procrastinate import jobs, retry
from procrastinate.job_context import JobContext

from pgmem.domain.policy import check_number, check_seconds
from pgmem.errors import InvalidArgument, ModelError, NoSummaryModel, PgmemError, SummaryFailed
from pgmem.memory import Memory
from pgmem.operations.compact import CompactionResult
from pgmem.store import job_queue, worker_connector
from pgmem.store.job_queue import MOST_RUNS, TASK, TreeJob
from pgmem.store.job_runs import Run
from pgmem.store.worker_connector import LOST
from pgmem.worker.runs import Runs, kinds_of, run_of, told_of
from pgmem.worker.sweeps import Sweeps

log = logging.getLogger("pgmem")

FIRST_AGAIN_SECONDS = 2.0
"""How long after its first error a job is run again; it doubles with each."""

LONGEST_ASKED_SECONDS = 3600.0
"""How long a model's server may ask to wait before the job is run again."""

LONGEST_PAUSE_SECONDS = 30.0
"""How long to wait at most before a worker whose connection broke starts anew."""

NEVER_SECONDS = 86_400.0 * 365

LOOK_SECONDS = 0.5
"""How long to wait between two looks at what is to end."""

IDLE_STOP_SECONDS = 2.0
"""How long procrastinate's worker may take to end with no job under way."""

GRACE_SECONDS = 10.0
"""How long past ``stop_seconds`` jobs that are cancelled may take to end."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker is.

    Attributes:
        working: whether it takes jobs: false before it is connected, when it could not say for ``stalled_seconds`` that it lives,
            so that others take its jobs over, and once it is told to stop.
        running: jobs under way.
        done: runs of jobs that ended well since it started.
        failed: runs of jobs that ended with an error since it started; none that was stopped. A job may have several.
        swept_at: when it last looked after what others left, or None.
    """

    working: bool
    running: int
    done: int
    failed: int
    swept_at: datetime | None


class Worker:
    """Does the compactions of a queue, of all tenants, with the models of the Memory that it is given.

    A job names a tree and its stored settings; the keys and the models are the worker's own. When a worker dies, others take its
    jobs over once it has been silent for ``stalled_seconds``; if it was only asleep and comes back, what it worked out is
    refused where somebody else was faster.

    Args:
        memory: what ``pgmem.open()`` gave, with the summary model and the judge to use.
        concurrency: how many jobs it does at once.
        stop_seconds: how long jobs under way may take to end after ``stop()``; then they go back to the queue.
        sweep_seconds: how often it looks for jobs of workers that died, and for trees that nobody queued.
        quiet_seconds: how long a tree must have been left alone before it counts as forgotten.
        beat_seconds: how often it says that it lives.
        stalled_seconds: after what silence a worker counts as dead.

    Example:
        >>> async def main():
        ...     async with pgmem.open(summary_model=summarise) as memory:
        ...         worker = pgmem.Worker(memory)
        ...         running = asyncio.create_task(worker.run())
        ...         ...  # until it is time to end
        ...         worker.stop()
        ...         await running
        >>> import asyncio, pgmem
        >>> async def summarise(request):
        ...     return "what was said"
        >>> asyncio.run(main())
    """

    def __init__(
        self,
        memory: Memory,
        *,
        concurrency: int = 4,
        stop_seconds: float = 30.0,
        sweep_seconds: float = 15.0,
        quiet_seconds: float = 60.0,
        beat_seconds: float = 10.0,
        stalled_seconds: float = 30.0,
    ) -> None:
        if not isinstance(memory, Memory):
            raise InvalidArgument(f"memory is of type {type(memory).__name__}: give what pgmem.open() gave")
        self._memory = memory
        self._database = memory._database
        self._concurrency = check_number("concurrency", concurrency, least=1, most=1000)
        self._stop_seconds = check_seconds("stop_seconds", stop_seconds)
        self._sweep_seconds = check_seconds("sweep_seconds", sweep_seconds)
        self._beat_seconds = check_seconds("beat_seconds", beat_seconds)
        self._stalled_seconds = check_seconds("stalled_seconds", stalled_seconds)
        if self._beat_seconds >= self._stalled_seconds:
            raise InvalidArgument(
                f"beat_seconds is {beat_seconds:g} and stalled_seconds {stalled_seconds:g}: beats must be closer than that"
            )
        self._was_run = False
        self._stopping, self._ended = asyncio.Event(), asyncio.Event()
        self._runs: Runs | None = None
        self._done = self._failed = 0
        self._under_way: dict[Run, asyncio.Task[Any]] = {}
        self._is_putting_back = False
        self._swept_at: datetime | None = None
        self._fatal: BaseException | None = None
        self._sweeps = Sweeps(
            self._database, quiet_seconds=check_seconds("quiet_seconds", quiet_seconds), stalled_seconds=self._stalled_seconds
        )

    @property
    def health(self) -> Health:
        """How it is now."""
        return Health(
            working=self._is_heard and not self._stopping.is_set(),
            running=len(self._under_way),
            done=self._done,
            failed=self._failed,
            swept_at=self._swept_at,
        )

    @property
    def _is_heard(self) -> bool:
        runs = self._runs
        return runs is not None and runs.worker_id is not None and time.monotonic() - runs.heard_at < self._stalled_seconds

    def stop(self, *, at_once: bool = False) -> None:
        """Has ``run()`` take no more jobs and end; call it in the worker's own event loop.

        Args:
            at_once: whether jobs under way go back to the queue now, and not only when ``stop_seconds`` are over.
        """
        self._stopping.set()
        if at_once:
            self._put_back()

    def _put_back(self) -> None:
        """Cancels the jobs under way, which wait again then."""
        self._is_putting_back = True
        for task in self._under_way.values():
            task.cancel()

    async def run(self) -> None:
        """Works until ``stop()``, or until ``pgmem.open()`` is left; a lost connection is waited out.

        Raises:
            InvalidArgument: it was run before.
            SchemaMismatch: there is no queue, or one that this release cannot use.
            KeyboardInterrupt, SystemExit: a strategy or a judge raised it.
        """
        if self._was_run:
            raise InvalidArgument("this worker was run before: make another one")
        self._was_run = True
        with self._memory._leaving_after(self._end):
            try:
                await self._until_stopped(job_queue.check(self._database))
                await self._run_on()
            finally:
                self._ended.set()
        if self._fatal is not None:
            raise self._fatal

    async def _until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work, unless the worker is told to stop before it is done."""
        doing = asyncio.create_task(work, name="pgmem worker start")
        stopping = asyncio.create_task(self._stopping.wait(), name="pgmem worker stop")
        doing.add_done_callback(_let_go)
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
        finally:
            await _cancelled(doing, stopping)

    async def _end(self) -> None:
        self.stop()
        try:
            await self._ended.wait()
        except asyncio.CancelledError:  # nothing of the worker outlives its Memory
            self.stop(at_once=True)
            await asyncio.wait_for(self._ended.wait(), GRACE_SECONDS)
            raise

    async def _run_on(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                await self._connected_run()
            except (*LOST, PgmemError) as error:
                log.warning("the worker lost its connection: %s", told_of(error))
            if self._stopping.is_set():
                return
            failures = 0 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else failures + 1
            pause = min(2.0**failures, LONGEST_PAUSE_SECONDS)
            log.warning("the worker starts again in %g s", pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _connected_run(self) -> None:
        connector = worker_connector.Connector(self._database)
        app = procrastinate.App(connector=connector)
        app.job_manager = runs = Runs(self._database, connector, self._stopping)
        self._is_putting_back = False
        app.task(name=TASK, queue=self._database.queue, retry=_Again(), pass_context=True)(self._do)
        try:
            await self._until_stopped(connector.open_async())
            if not self._stopping.is_set():
                await self._take_jobs(app, runs)
        finally:
            await connector.close_async()

    async def _take_jobs(self, app: procrastinate.App, runs: Runs) -> None:
        jobs_done = asyncio.create_task(
            app.run_worker_async(
                queues=[self._database.queue],
                concurrency=self._concurrency,
                shutdown_graceful_timeout=self._stop_seconds,
                install_signal_handlers=False,
                update_heartbeat_interval=NEVER_SECONDS,  # its beats end when it is told to stop
                stalled_worker_timeout=self._stalled_seconds,
                fetch_job_polling_interval=min(5.0, self._sweep_seconds),
                abort_job_polling_interval=min(5.0, self._sweep_seconds),
            ),
            name="pgmem worker jobs",
        )
        swept = asyncio.create_task(self._sweep_for_ever(runs), name="pgmem worker sweeps")
        stopping = asyncio.create_task(self._stopping.wait(), name="pgmem worker stop")
        beating = asyncio.create_task(runs.beat(self._beat_seconds), name="pgmem worker beats")
        silent = asyncio.create_task(runs.silence(self._stalled_seconds), name="pgmem worker silence")
        for task in (jobs_done, swept, stopping, beating, silent):
            task.add_done_callback(_let_go)
        self._runs = runs
        log.info("the worker is connected and takes jobs")
        try:
            ended, _ = await asyncio.wait((jobs_done, stopping, silent), return_when=asyncio.FIRST_COMPLETED)
            if silent in ended:
                log.warning("no more jobs are taken: nobody heard of the worker for %g s", self._stalled_seconds)
            elif jobs_done in ended:
                log.warning("no more jobs are taken: %s", told_of(jobs_done.exception()) or "the connection was lost")
        finally:
            self._runs = None
            try:
                await self._end_jobs(jobs_done, runs)
            finally:
                await _cancelled(swept, stopping, silent, beating)

    async def _end_jobs(self, jobs_done: asyncio.Task[None], runs: Runs) -> None:
        """Has procrastinate's worker take no more jobs, and wait for those under way; what is late is put back.

        Where it is stuck in a statement, with nothing under way or past its time, it is cancelled again; a second cancellation of
        this one has it all end at once.
        """
        began = idle_since = time.monotonic()
        jobs_done.cancel()
        while not jobs_done.done() and (now := time.monotonic()) < began + self._stop_seconds + GRACE_SECONDS:
            if self._under_way or runs.ending:
                idle_since = now
            if now > began + self._stop_seconds + GRACE_SECONDS / 2:
                self._put_back()
                jobs_done.cancel()
            elif now > idle_since + IDLE_STOP_SECONDS:
                jobs_done.cancel()
            try:
                await asyncio.wait((jobs_done,), timeout=LOOK_SECONDS)
            except asyncio.CancelledError:
                self._put_back()
                await asyncio.wait((*self._under_way.values(), jobs_done), timeout=GRACE_SECONDS / 2)
                raise
        if not jobs_done.done():
            log.warning("jobs did not end within %g s and are left behind", self._stop_seconds + GRACE_SECONDS)

    async def _do(self, context: JobContext, told: object) -> None:
        run, name = run_of(context.job), f"job {context.job.id}"
        began = time.monotonic()
        self._under_way[run] = cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            job = TreeJob.of(told)
            tree = await self._memory._queued_tree(job)
            name = f"{name} of {tree._place}"
            done = await tree._compact_queued(job.policy, retry=job.retry)
        except BaseException as raised:
            error = raised
            if isinstance(raised, asyncio.CancelledError):
                if self._is_putting_back or context.abort_reason() is not None:
                    log.info("%s: it was stopped", name)
                    raise
                error = SummaryFailed("the strategy or the judge cancelled itself: nothing was written, try again")
            elif not isinstance(raised, Exception):  # KeyboardInterrupt, SystemExit: not of the job, but for the process
                self._fatal = raised
                self.stop()
            self._failed += 1
            cast("Runs", context.app.job_manager).errors[run] = kinds_of(error)
            log.warning("%s: %s", name, told_of(error))
            raise error from error.__cause__
        finally:
            del self._under_way[run]
        self._done += 1
        log.info("%s: %s, %.1f s", name, _told(done), time.monotonic() - began)

    async def _sweep_for_ever(self, runs: Runs) -> None:
        while self._runs is runs:
            if await self._sweeps.sweep(runs, self._under_way.keys()):
                self._swept_at = datetime.now(UTC)
            await asyncio.sleep(self._sweep_seconds)


class _Again(retry.BaseRetryStrategy):
    """Whether a job may be run again, and when: after a stop at once, after an error that may pass later and later."""

    def get_retry_decision(self, *, exception: BaseException, job: jobs.Job) -> retry.RetryDecision | None:
        if not isinstance(exception, Exception):  # it was stopped
            return retry.RetryDecision(retry_in={"seconds": 0})
        cause = exception.__cause__
        if not (cause.retryable if isinstance(cause, ModelError) else _may_pass(exception)):
            return None
        seconds = FIRST_AGAIN_SECONDS * 2 ** (job.attempts % MOST_RUNS)
        if isinstance(cause, ModelError) and cause.retry_after_seconds is not None:
            seconds = max(seconds, min(cause.retry_after_seconds, LONGEST_ASKED_SECONDS))
        return retry.RetryDecision(retry_in={"seconds": seconds})


def _may_pass(error: Exception) -> bool:
    return isinstance(error, PgmemError) and not isinstance(error, InvalidArgument | NoSummaryModel)


def _let_go(ended: asyncio.Task[Any]) -> None:
    """Takes note of what a task raised: who waits for it has told the log, or it was cancelled."""
    if not ended.cancelled():
        ended.exception()


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancels the tasks, again and again where a library swallows it."""
    late: Collection[asyncio.Task[Any]] = tasks
    for _ in range(round(GRACE_SECONDS / LOOK_SECONDS)):
        for task in late:
            task.cancel()
        _, late = await asyncio.wait(late, timeout=LOOK_SECONDS)
        if not late:
            return
    log.warning("%s did not end within %g s and is left behind", ", ".join(task.get_name() for task in late), GRACE_SECONDS)


def _told(done: CompactionResult) -> str:
    node, verdict = done.node, done.verdict
    if node is None:
        return "nothing to do" if done.attempts == 0 else f"no summary stood after {done.attempts}"
    said = f"node {node.no} stands for turns {node.first_no} to {node.last_no}"
    if verdict is None:
        return said
    if verdict.node != node.no:
        return f"{said}, by {node.strategy}, after node {verdict.node} failed by {verdict.judge}"
    return f"{said}, {verdict.outcome} by {verdict.judge}"
