"""``pgmem worker``: does the compactions that the queue holds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from contextlib import AsyncExitStack
from typing import Annotated, Any

import typer

import pgmem
from pgmem import InvalidArgument
from pgmem.cli.models import KEY_HELP, BaseUrl, JudgeName, Judges, RequestSeconds, chosen_model, connected
from pgmem.cli.options import Schema, Url
from pgmem.cli.render import complaints, inert

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
    health_host: Annotated[str, typer.Option(help="The address of that port.", metavar="HOST")] = "127.0.0.1",
    url: Url = None,
    schema: Schema = None,
) -> None:
    """Do the compactions that pgmem.open(background="queue") puts into the queue, of all tenants, until SIGTERM.

    Any number of workers may run, on any machines; each has its own keys. A job of a worker that died is taken over by
    another one, and so are trees that are due and were never queued. After SIGTERM or Ctrl-C a worker takes no more
    jobs and waits for those under way; what is late goes back to the queue. It talks to the database itself and through
    a pooler of sessions, not through one of transactions.
    """
    # the queue's library takes a while to import: only who uses it waits
    from pgmem.worker import Worker
    from pgmem.worker.endpoint import health_endpoint

    judges = judge or [JudgeName.COVERAGE]
    by_model = JudgeName.LLM in judges
    writes = chosen_model(model, base_url, timeout, option="a summary model", wanted=model is not None)
    says = chosen_model(judge_model or model, base_url, timeout, option="--judge llm", wanted=by_model)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("procrastinate").setLevel(logging.WARNING)

    async def work() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(connected(writes))
            await stack.enter_async_context(connected(says))
            chain: list[Any] = [says if name is JudgeName.LLM else name.value for name in judges]
            memory = await stack.enter_async_context(pgmem.open(url, schema=schema, summary_model=writes, judge_model=chain))
            working = Worker(memory, concurrency=concurrency, stop_seconds=stop_seconds)
            loop = asyncio.get_running_loop()
            for number in _ON_STOP:
                loop.add_signal_handler(number, working.stop)
            if health_port is not None:
                try:
                    port = stack.enter_context(health_endpoint(working, host=health_host, port=health_port))
                except OSError as error:
                    raise InvalidArgument(f"{health_host}:{health_port} cannot be listened on ({error}): choose another") from error
                complaints().print(inert(f"health at http://{health_host}:{port}/health"))
            complaints().print("the worker waits for jobs; end it with SIGTERM or Ctrl-C")
            with contextlib.suppress(asyncio.CancelledError):
                await working.run()
            complaints().print(f"the worker has ended: {working.health.done} done, {working.health.failed} failed")

    asyncio.run(work())
