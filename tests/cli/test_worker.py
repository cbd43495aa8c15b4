"""``pgmem worker``: what it is told, by every command line that the pages show, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import pgmem
from pgmem.cli.worker import EXAMPLE
from pgmem.testing import ScriptedModel
from tests.cli.conftest import queued
from tests.docs.markdown import PAGES, blocks
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^ *\$? ?pgmem worker ([^\n]*)$", re.MULTILINE)
DOCUMENTED = sorted(
    {
        *COMMAND.findall(EXAMPLE),
        *(line for page in PAGES for block in blocks(page, "console") for line in COMMAND.findall(block.body)),
        *(
            re.sub(r"\$\{SUMMARY_MODEL:\+(.*?)\$SUMMARY_MODEL\}", rf"\1{model}" if model else "", line)
            for line in re.findall(r"command: pgmem worker (.*)", (ROOT / "docker-compose.yml").read_text())
            for model in ("", "gpt-5-mini")
        ),
    }
)


@asynccontextmanager
async def started(url: str, *words: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """``pgmem worker``, killed at the end if it is still there."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pgmem", "worker", "--url", url, *words),
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
        | {"PYTHONPATH": str(ROOT)}
        | environment,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def said_until(process: asyncio.subprocess.Process, words: str) -> str:
    """What it says up to the line with these words."""
    said = ""
    async with asyncio.timeout(30):
        while words not in said:
            line = (await process.stderr.readline()).decode()
            assert line, f"it ended with {await process.wait()}: {said}"
            said += line
    return said


async def ended(process: asyncio.subprocess.Process) -> tuple[int, str]:
    """Its exit code, and what it says after SIGTERM."""
    process.send_signal(signal.SIGTERM)
    said = (await asyncio.wait_for(process.stderr.read(), 30)).decode()
    return await process.wait(), said


def read(address):
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_there_are_command_lines_with_and_without_a_judge_of_its_own():
    assert len(DOCUMENTED) >= 6
    assert any("--model" in line and "--judge" not in line for line in DOCUMENTED)
    assert any("--judge llm" in line for line in DOCUMENTED)


@pytest.mark.parametrize("line", DOCUMENTED)
async def test_every_command_line_in_the_pages_starts_a_worker(url, line):
    async with ScriptedModel() as endpoint:
        words = shlex.split(re.sub(r"--health-port \d+", "--health-port 0", line))
        if "--base-url" in words:
            words[words.index("--base-url") + 1] = endpoint.base_url
        environment = {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": endpoint.base_url}
        async with started(url, *words, **environment) as process:
            said = await said_until(process, "the worker waits for jobs")
            code, _ = await ended(process)

    assert code == 0
    assert ("a summary model" in said) == ("--model" not in words)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("--model", "m"), {("m", "summary")}),
        (("--model", "m", "--judge", "coverage", "--judge", "llm"), {("m", "summary"), ("m", "judgement")}),
        (("--model", "m", "--judge", "llm", "--judge-model", "j"), {("m", "summary"), ("j", "judgement")}),
        (("--judge", "llm", "--judge-model", "j"), set()),
        ((), set()),
    ],
)
async def test_the_models_that_are_named_write_and_judge(url, words, asked):
    await queued(url, "k")
    async with ScriptedModel() as endpoint, pgmem.open(url) as memory:
        session = await memory.session("k")
        given = ("--base-url", endpoint.base_url) if words else ()
        async with started(url, *words, *given) as process:
            await until(lambda: is_compressed(session), "the worker has done it")
            code, said = await ended(process)
        requests = {(request.body["model"], request.asks_for) for request in endpoint.requests}

    assert (code, requests) == (0, asked)
    assert "Traceback" not in said


async def is_compressed(session):
    return any(node.status == "compressed" or node.strategy == "tool_clear" for node in await session.path())


async def test_a_worker_does_what_is_queued_tells_its_health_and_ends_on_sigterm(url):
    async with ScriptedModel() as endpoint, pgmem.open(url) as memory:
        task = await queued(url, "k")
        session = await memory.session("k")
        words = ["--model", "m", "--base-url", endpoint.base_url, "--judge", "llm", "--health-port", "0"]
        async with started(url, *words) as process:
            address = re.search(r"http://\S+/health", await said_until(process, "/health"))[0]
            await until(lambda: is_compressed(session), "the worker has done it")
            status, health = await asyncio.to_thread(read, address)
            nowhere, _ = await asyncio.to_thread(read, address.replace("/health", "/other"))
            code, said = await ended(process)

    assert task.job_id == 1
    assert (status, health["working"], nowhere, code) == (200, True, 404, 0)
    assert {request.asks_for for request in endpoint.requests} == {"summary", "judgement"}
    assert "m writes the summaries, judged by llm, 4 at a time" in said
    assert re.search(r"job 1 of session 'k', namespace 'main': node 10 stands for turns 1 to 6, pass by llm, \d+\.\d s\n", said)
    assert said.count("asking m at ") == 1
    assert "HTTP Request" not in said
    assert "the worker has ended: 1 run ended well, 0 with an error" in said


async def test_a_job_that_fails_is_a_line_of_the_log_and_no_traceback(url):
    async with ScriptedModel(rule=lambda request: pgmem.testing.failure(401)) as endpoint:
        task = await queued(url, "k")
        async with started(url, "--model", "m", "--base-url", endpoint.base_url) as process:
            said = await said_until(process, "job 1 of session 'k', namespace 'main': ")
            async with pgmem.open(url, background="queue") as memory:
                await until(lambda: is_failed(memory, task), "the job has failed")
            code, rest = await ended(process)

    assert code == 0
    assert "ModelRefused" in said
    assert "Traceback" not in said + rest
    assert "the worker has ended: 0 runs ended well, 1 with an error" in rest


async def is_failed(memory, task):
    return await pgmem.store.job_queue.status(memory._database, task.job_id) == "failed"


async def test_a_worker_that_is_told_to_end_says_for_what_it_waits(url):
    asked = asyncio.Event()

    async def slow(request):
        asked.set()
        await asyncio.sleep(1)

    async with ScriptedModel(rule=slow) as endpoint:
        await queued(url, "k")
        async with started(url, "--model", "m", "--base-url", endpoint.base_url) as process:
            await asyncio.wait_for(asked.wait(), 30)
            code, said = await ended(process)

    assert code == 0
    assert "no more jobs are taken; 1 under way may take 30 s to end, or stop it again" in said
    assert "the worker has ended: 1 run ended well, 0 with an error" in said


async def test_a_second_signal_ends_it_at_once_and_the_job_waits_again(url):
    asked = asyncio.Event()

    async def hangs(request):
        asked.set()
        await asyncio.sleep(60)

    async with ScriptedModel(rule=hangs) as endpoint, pgmem.open(url, background="queue") as memory:
        task = await queued(url, "k")
        async with started(url, "--model", "m", "--base-url", endpoint.base_url) as process:
            await asyncio.wait_for(asked.wait(), 30)
            process.send_signal(signal.SIGINT)
            await said_until(process, "under way may take 30 s to end, or stop it again")
            code, said = await asyncio.wait_for(ended(process), 15)
        status = await pgmem.store.job_queue.status(memory._database, task.job_id)

    assert (code, status) == (0, "todo")
    assert "the worker has ended: 0 runs ended well, 0 with an error" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--judge", "llm"), "--judge llm needs a model"),
        (("--base-url", "http://127.0.0.1:9/v1"), "are for a summary model"),
        (("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--judge-model", "j"), "--judge-model is for --judge llm"),
        (("--concurrency", "0"), "concurrency"),
        (("--health-port", "70000"), "health-port"),
        (("--health-host", "0.0.0.0"), "--health-host is the address of --health-port"),
        (("--health-host", "", "--health-port", "0"), "--health-host is the address of --health-port"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, url, words, says):
    refused = run("worker", "--url", url, *words)

    assert refused.exit_code == 2
    assert says in refused.stderr
