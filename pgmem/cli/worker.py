"""``pgmem worker``: does the compactions that the queue holds."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pgmem
from pgmem import InvalidArgument
from pgmem.cli.models import KEY_HELP, Asked, BaseUrl, JudgeName, Judges, RequestSeconds, chosen_model, connected
from pgmem.cli.options import Schema, Url
from pgmem.cli.render import complaints, counted, inert
from pgmem.store import job_queue

if TYPE_CHECKING:
    from pgmem.worker import Worker

EXAMPLE = (
    "Examples:\n\n\b\n"
    "  pgmem worker --model gpt-5-mini --judge coverage --judge llm\n"
    "  pgmem worker --model llama3.2 --base-url http://localhost:11434/v1 --concurrency 2 --health-port 8080\n\n"
    f"{KEY_HELP}"
)

_ON_STOP = (signal.SIGTERM, signal.SIGINT)


def worker(
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model that writes summaries; none: tool_clear.", metavar="NAME", show_default=False),
    ] = None,
    base_url: BaseUrl = None,
    timeout: RequestSeconds = None,
    judge: Judges = None,
    judge_model: Annotated[
        str | None, typer.Option(help="The model that llm judges with; --model if not given.", metavar="NAME", show_default=False)
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Jobs at the same time.", metavar="N")] = 4,
    stop_seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="How long jobs under way may take to end after SIGTERM.", metavar="SECONDS")
    ] = 30.0,
    health_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Answer GET /health on this port.", metavar="PORT", show_default=False)
    ] = None,
    health_host: Annotated[
        str | None, typer.Option(help="The address of that port; 127.0.0.1 if not given.", metavar="HOST", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Do the compactions that pgmem.open(background="queue") puts into the queue, of all tenants, until SIGTERM.

    Any number of workers may run, on any machines; each has its own keys. A job of a worker that died is taken over by
    another one, and trees that are due and were never queued are found. After SIGTERM or Ctrl-C a worker takes no more
    jobs and waits for those under way; what is late goes back to the queue, and after a second signal all of it. It
    talks to the database itself and through a pooler of sessions, not through one of transactions.
    """
    # the queue's library takes a while to import: only who uses it waits
    from pgmem.worker import Worker
    from pgmem.worker.endpoint import health_endpoint

    if health_host is not None and (health_port is None or not health_host):
        raise typer.BadParameter("--health-host is the address of --health-port: give both, or leave it out")
    listens = health_host or "127.0.0.1"
    judges = list(dict.fromkeys(judge or [JudgeName.COVERAGE]))
    writes, says = _models(model, judge_model, base_url, timeout, by_model=JudgeName.LLM in judges)
    _log_to_standard_error()

    async def work() -> None:
        async with AsyncExitStack() as stack:
            for asked in (writes,) if says is writes else (writes, says):
                await stack.enter_async_context(connected(asked))
            chain: list[Any] = [says if name is JudgeName.LLM else name.value for name in judges]
            memory = await stack.enter_async_context(pgmem.open(url, schema=schema, summary_model=writes, judge_model=chain))
            await job_queue.check(memory._database)
            working = Worker(memory, concurrency=concurrency, stop_seconds=stop_seconds)
            stop = _Stop(working, stop_seconds)
            for number in _ON_STOP:
                asyncio.get_running_loop().add_signal_handler(number, stop)
            if health_port is not None:
                try:
                    port = stack.enter_context(health_endpoint(working, host=listens, port=health_port))
                except (OSError, UnicodeError) as error:
                    raise InvalidArgument(f"{listens}:{health_port} cannot be listened on ({error}): choose another") from error
                host = f"[{listens}]" if ":" in listens else listens
                complaints().print(inert(f"health at http://{host}:{port}/health"))
            complaints().print(inert(f"{_said(model, judges)}, {concurrency} at a time"))
            complaints().print("the worker waits for jobs; end it with SIGTERM or Ctrl-C")
            await working.run()
            done, failed = working.health.done, working.health.failed
            complaints().print(f"the worker has ended: {counted(done, 'run')} ended well, {failed} with an error")

    asyncio.run(work())


def _models(
    model: str | None, judge_model: str | None, base_url: str | None, timeout: float | None, *, by_model: bool
) -> tuple[Asked | None, Asked | None]:
    """Who writes and who judges; one and the same where both are the same model."""
    if judge_model is not None and not by_model:
        raise typer.BadParameter("--judge-model is for --judge llm: add it, or leave it out")

    says = None
    if by_model:
        judging = model if judge_model is None else judge_model
        says = chosen_model(judging, base_url, timeout, option="--judge llm", wanted=True)
    if says is not None and (model is None or judge_model in (None, model)):
        return None if model is None else says, says
    return chosen_model(model, base_url, timeout, option="a summary model", wanted=model is not None), says


def _log_to_standard_error() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("pgmem").setLevel(logging.INFO)
    # how a job ended is told by the worker, on one line
    logging.getLogger("procrastinate.worker").addFilter(lambda record: getattr(record, "action", None) != "job_error")


def _said(model: str | None, judges: list[JudgeName]) -> str:
    """What the worker is set to."""
    if model is None:
        return "without a summary model (--model) tool_clear makes every node"
    return f"{model} writes the summaries, judged by {' and '.join(judges)}"


class _Stop:
    """What a signal does: the first one has the worker end, the second one at once."""

    def __init__(self, working: Worker, seconds: float) -> None:
        self._working = working
        self._seconds = seconds
        self._is_told = False

    def __call__(self) -> None:
        running = self._working.health.running
        if running and not self._is_told:
            complaints().print(f"no more jobs are taken; {running} under way may take {self._seconds:g} s to end, or stop it again")
        self._working.stop(at_once=self._is_told)
        self._is_told = True
