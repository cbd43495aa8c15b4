"""``pgmem worker`` and ``pgmem jobs``."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import pgmem
from pgmem.testing import ScriptedModel
from tests.support.talk import assistant, user

ROOT = Path(__file__).parents[2]


@pytest.fixture
def url(server, own_database) -> str:
    return server.on(own_database, "pgmem_app")


async def queued(url, key="[b]k\x1b", count=8):
    """A job for a session that is due."""
    async with pgmem.open(url, background="queue", policy=pgmem.Policy(threshold=6, keep_recent=2)) as memory:
        session = await memory.session(key)
        await session.add_turns([(user, assistant)[number % 2](f"turn {number} says words.") for number in range(count)])
        return await session.compact_async()


def at(run, url, *words):
    return run(*words, "--url", url)


def test_jobs_are_listed_cancelled_and_not_retried_while_they_wait(run, url):
    asyncio.run(queued(url))

    listed = at(run, url, "jobs", "list").stdout
    (job,) = [json.loads(line) for line in at(run, url, "jobs", "list", "--json").stdout.splitlines()]
    retried = at(run, url, "jobs", "retry", "1")
    cancelled = at(run, url, "jobs", "cancel", "1")
    again = at(run, url, "jobs", "cancel", "1")
    todo = at(run, url, "jobs", "list", "--status", "todo", "--json")

    assert "[b]k\\x1b" in listed
    assert (job["id"], job["status"], job["session"], job["namespace"], job["attempts"]) == (1, "todo", "[b]k\x1b", "main", 0)
    assert (retried.exit_code, cancelled.stdout, again.exit_code, todo.stdout) == (1, "job 1 is cancelled\n", 1, "")


@pytest.mark.parametrize("command", ["retry", "cancel"])
def test_a_job_that_is_not_there_is_an_error_in_words(run, url, command):
    ended = at(run, url, "jobs", command, "77")

    assert ended.exit_code == 1
    assert "job 77" in ended.stderr


def test_without_a_queue_the_error_says_what_to_run(run, url, server, own_database):
    server.execute("drop schema pgmem_queue cascade", own_database)

    ended = at(run, url, "jobs", "list")

    assert ended.exit_code == 1
    assert "there is no queue in schema 'pgmem_queue': run `pgmem db upgrade`" in ended.stderr


def read(address):
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def test_a_worker_does_what_is_queued_tells_its_health_and_ends_on_sigterm(url):
    async with ScriptedModel() as endpoint:
        task = await queued(url, "k")
        words = ["worker", "--url", url, "--model", "m", "--base-url", endpoint.base_url, "--judge", "llm", "--health-port", "0"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pgmem", *words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE
        )
        try:
            address = re.search(r"http://\S+", (await process.stderr.readline()).decode())[0]
            async with pgmem.open(url, background="queue") as memory:
                session = await memory.session("k")
                while not await session.path() or (await session.path())[0].status != "compressed":  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            status, health = await asyncio.to_thread(read, address)
            nowhere, _ = await asyncio.to_thread(read, address.replace("/health", "/other"))
            process.send_signal(signal.SIGTERM)
            said = (await asyncio.wait_for(process.stderr.read(), 30)).decode()
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert task.job_id == 1
    assert (status, health["working"], nowhere, code) == (200, True, 404, 0)
    assert {request.asks_for for request in endpoint.requests} == {"summary", "judgement"}
    assert "node 10 stands for turns 1 to 6, pass by llm" in said
    assert "the worker has ended: 1 done, 0 failed" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--judge", "llm"), "--judge llm needs a model"),
        (("--base-url", "http://127.0.0.1:9/v1"), "are for a summary model"),
        (("--concurrency", "0"), "concurrency"),
        (("--health-port", "70000"), "health-port"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, url, words, says):
    ended = at(run, url, "worker", *words)

    assert ended.exit_code == 2
    assert says in ended.stderr


def test_a_failed_job_is_retried_once_and_not_beside_one_that_waits(run, url, server, own_database):
    asyncio.run(queued(url))
    server.execute("update pgmem_queue.procrastinate_jobs set status = 'doing'", own_database)
    server.execute("update pgmem_queue.procrastinate_jobs set status = 'failed', attempts = 8", own_database)
    asyncio.run(queued(url, count=1))

    beside = at(run, url, "jobs", "retry", "1")
    at(run, url, "jobs", "cancel", "2")
    alone = at(run, url, "jobs", "retry", "1")
    again = at(run, url, "jobs", "retry", "1")
    (job,) = [json.loads(line) for line in at(run, url, "jobs", "list", "--status", "todo", "--json").stdout.splitlines()]

    assert (beside.exit_code, beside.stderr) == (1, "job 1 is not queued again, since job 2 of the same tree waits\n")
    assert (alone.exit_code, alone.stdout) == (0, "job 1 waits again\n")
    assert again.exit_code == 1
    assert (job["id"], job["attempts"]) == (1, 8)


def test_a_database_that_is_away_is_not_taken_for_a_job_that_waits(run):
    ended = at(run, "postgresql://nobody@127.0.0.1:9/none", "jobs", "retry", "1")

    assert ended.exit_code == 1
    assert "no connection can be made" in ended.stderr
    assert "waits" not in ended.stderr
