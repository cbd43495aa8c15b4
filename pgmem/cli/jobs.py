"""``pgmem jobs``: what the queue holds, and what to do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

import pgmem
from pgmem.cli.options import AsJson, Schema, Url
from pgmem.cli.render import complaints, console, json_line, one_line, put, table, write_line
from pgmem.store import job_queue
from pgmem.store.database import Database
from pgmem.store.job_queue import Job

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, retry and cancel what the queue holds.")

JobId = Annotated[int, typer.Argument(metavar="JOB", min=1, max=2**63 - 1, help="The job's number; `pgmem jobs list` shows it.")]


class JobStatus(StrEnum):
    """How far a job is."""

    TODO = "todo"
    DOING = "doing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABORTED = "aborted"


@app.command(name="list", epilog="Example: pgmem jobs list --status failed", short_help="List jobs, the newest first.")
def list_(
    status: Annotated[JobStatus | None, typer.Option(help="Only those.", show_default=False)] = None,
    most: Annotated[int, typer.Option(min=1, max=100_000, help="The most that are shown.", metavar="N")] = 50,
    as_json: AsJson = False,
    url: Url = None,
    schema: Schema = None,
) -> None:
    """List the queue's jobs, the newest first, of all tenants.

    todo waits, doing runs, succeeded is done and forgotten after a day; failed was run as often as it may be, and waits
    for `pgmem jobs retry`.
    """

    async def show(database: Database) -> None:
        rows = table("job", "status", "runs", "tenant", "session", "namespace", "queued at", "moved at")
        for job in await job_queue.listed(database, status=status.value if status else None, most=most):
            if as_json:
                write_line(json_line(_json(job)))
            else:
                rows.add_row(*_cells(job))
        if not as_json:
            put(console(), rows)

    _run(show, url, schema)


@app.command(epilog="Example: pgmem jobs retry 17", short_help="Queue a failed job again.")
def retry(job: JobId, url: Url = None, schema: Schema = None) -> None:
    """Queue a failed job again, or one whose worker died, at once.

    Exits with 1 when it is neither.
    """

    async def act(database: Database) -> None:
        waits = await job_queue.retry(database, job)
        if waits is None:
            complaints().print(f"job {job} is not queued again: it did not fail, and no worker died of it")
        elif waits != job:
            complaints().print(f"job {job} is not queued again, since job {waits} of the same tree waits")
        if waits != job:
            raise typer.Exit(1)
        write_line(f"job {job} waits again")

    _run(act, url, schema)


@app.command(epilog="Example: pgmem jobs cancel 17", short_help="Take a job out of the queue.")
def cancel(job: JobId, url: Url = None, schema: Schema = None) -> None:
    """Take a job that waits out of the queue, or have the worker that runs it stop.

    The turns stay as they are. Exits with 1 when it does neither.
    """

    async def act(database: Database) -> None:
        if not await job_queue.cancel(database, job):
            complaints().print(f"job {job} neither waits nor runs")
            raise typer.Exit(1)
        write_line(f"job {job} is cancelled")

    _run(act, url, schema)


def _run(act: Callable[[Database], Awaitable[None]], url: str | None, schema: str | None) -> None:
    async def opened() -> None:
        async with pgmem.open(url, schema=schema) as memory:
            await job_queue.check(memory._database)
            await act(memory._database)

    asyncio.run(opened())


def _cells(job: Job) -> tuple[Text, ...]:
    queued, moved = (f"{at:%Y-%m-%d %H:%M:%S%z}" if at else "" for at in (job.queued_at, job.moved_at))
    words = (str(job.id), job.status, str(job.attempts), job.tenant, job.session, job.namespace, queued, moved)
    return tuple(Text(one_line(word or "")) for word in words)


def _json(job: Job) -> dict[str, object]:
    times = ("scheduled_at", "queued_at", "moved_at")
    return {name: value.isoformat() if name in times and value else value for name, value in job._asdict().items()}
