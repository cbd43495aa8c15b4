"""``pgmem jobs``: what the queue holds, and what to do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
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

JobIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="JOB", min=1, max=2**63 - 1, help="Their numbers; `pgmem jobs list` shows them.", show_default=False),
]
Failed = Annotated[bool, typer.Option("--failed", help="All jobs that have failed.")]

MOST_FAILED = 100_000

_STATES = {
    None: "is not there: it is forgotten, or never was",
    "todo": "waits for a worker already",
    "doing": "is running",
    "succeeded": "is done",
    "failed": "has failed",
    "cancelled": "was cancelled before",
    "aborted": "is over: it gave way to the next one of its tree",
}


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

    todo waits, doing runs, succeeded is done. failed was run as often as it may be, or cannot be done: mend the cause, then
    `pgmem jobs retry`. cancelled was taken out; aborted gave way to the next job of its tree. A job that ended is forgotten
    after a day, and a failure once a later job of the tree is there.
    """

    async def show(database: Database) -> None:
        rows = table("job", "status", "runs", "tenant", "session", "namespace", "queued at", "moved at", "note")
        for job in await job_queue.listed(database, status=status.value if status else None, most=most):
            if as_json:
                write_line(json_line(_json(job)))
            else:
                rows.add_row(*_cells(job))
        if not as_json:
            put(console(), rows)

    _run(show, url, schema)


@app.command(epilog="Examples: pgmem jobs retry 17 18; pgmem jobs retry --failed", short_help="Queue failed jobs again.")
def retry(jobs: JobIds = None, failed: Failed = False, url: Url = None, schema: Schema = None) -> None:
    """Queue jobs again that have failed, or whose worker gave no sign of life for a minute.

    One that waits for its next run is run now. Exits with 1 when one of them is none of these, or when another job of its
    tree waits.
    """
    _each(jobs, failed, _retry, url, schema)


@app.command(epilog="Examples: pgmem jobs cancel 17; pgmem jobs cancel --failed", short_help="Take jobs out of the queue.")
def cancel(jobs: JobIds = None, failed: Failed = False, url: Url = None, schema: Schema = None) -> None:
    """Take jobs that wait or have failed out of the queue, or have the worker that runs one stop.

    The turns stay as they are. Exits with 1 when one of them is over.
    """
    _each(jobs, failed, _cancel, url, schema)


async def _retry(database: Database, job: int) -> bool:
    waits = await job_queue.retry(database, job)
    if waits == job:
        write_line(f"job {job} waits again")
        return True
    if waits is not None:
        complaints().print(f"job {job} is not queued again, since job {waits} of the same tree waits")
        return False
    status = await job_queue.status(database, job)
    if status == "doing":
        seconds = job_queue.ALIVE_SECONDS
        complaints().print(
            f"job {job} is running: it is to stop, or its worker gave a sign of life in the last {seconds:g} s; "
            "wait that long or cancel it"
        )
    else:
        complaints().print(f"job {job} {_STATES[status]}")
    return False


async def _cancel(database: Database, job: int) -> bool:
    was = await job_queue.cancel(database, job)
    if was is not None:
        write_line(f"job {job} is asked to stop" if was == "doing" else f"job {job} is cancelled")
        return True
    status = await job_queue.status(database, job)
    complaints().print(f"job {job} {_STATES[status]}")
    return False


def _each(
    jobs: list[int] | None, failed: bool, act: Callable[[Database, int], Awaitable[bool]], url: str | None, schema: str | None
) -> None:
    if bool(jobs) == failed:
        raise typer.BadParameter("name the jobs, or give --failed for all that have failed")

    async def do(database: Database) -> None:
        found = [job.id for job in await job_queue.listed(database, status="failed", most=MOST_FAILED)] if failed else jobs or []
        if not found:
            write_line("no job has failed")
        if not all([await act(database, job) for job in found]):
            raise typer.Exit(1)

    _run(do, url, schema)


def _run(act: Callable[[Database], Awaitable[None]], url: str | None, schema: str | None) -> None:
    async def opened() -> None:
        async with pgmem.open(url, schema=schema) as memory:
            await job_queue.check(memory._database)
            await act(memory._database)

    asyncio.run(opened())


def _cells(job: Job) -> tuple[Text, ...]:
    queued, moved = (_time(at) for at in (job.queued_at, job.moved_at))
    words = (str(job.id), job.status, str(job.attempts), job.tenant, job.session, job.namespace, queued, moved, _note(job))
    return tuple(Text(one_line(word or "")) for word in words)


def _note(job: Job) -> str:
    """Why it failed, when it is run next, when its worker was last heard of."""
    notes = [job.error] if job.error else []
    if job.next_run_at is not None and job.next_run_at > datetime.now(UTC):
        notes.append(f"next run {_time(job.next_run_at)}")
    if job.status == "doing":
        notes.append(f"worker heard {_time(job.heard_at)}" if job.heard_at else "its worker is gone")
    return ", ".join(notes)


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S%z}" if at else ""


def _json(job: Job) -> dict[str, object]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in job._asdict().items()}
