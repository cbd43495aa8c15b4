"""``pgmem jobs``."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import queued

ROOT = Path(__file__).parents[2]


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
    assert ended.stderr == "job 77 is not there: it is forgotten, or never was\n"


def test_without_a_queue_the_error_says_what_to_run(run, url, server, own_database):
    server.execute("drop schema pgmem_queue cascade", own_database)

    ended = at(run, url, "jobs", "list")

    assert ended.exit_code == 1
    assert "there is no queue in schema 'pgmem_queue': run `pgmem db upgrade`" in ended.stderr


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


def test_all_that_have_failed_are_queued_again_or_cancelled_by_one_command(run, url, server, own_database):
    for key in ("a", "b", "c"):
        asyncio.run(queued(url, key))
    server.execute("update pgmem_queue.procrastinate_jobs set status = 'failed' where id < 3", own_database)

    nothing_named = at(run, url, "jobs", "retry")
    both_named = at(run, url, "jobs", "retry", "1", "--failed")
    retried = at(run, url, "jobs", "retry", "--failed")
    server.execute("update pgmem_queue.procrastinate_jobs set status = 'failed' where id < 3", own_database)
    cancelled = at(run, url, "jobs", "cancel", "--failed")
    some = at(run, url, "jobs", "cancel", "1", "3", "99")
    none = at(run, url, "jobs", "retry", "--failed")

    assert (nothing_named.exit_code, both_named.exit_code) == (2, 2)
    assert "name the jobs, or give --failed" in nothing_named.stderr
    assert sorted(retried.stdout.splitlines()) == ["job 1 waits again", "job 2 waits again"]
    assert sorted(cancelled.stdout.splitlines()) == ["job 1 is cancelled", "job 2 is cancelled"]
    assert (none.exit_code, none.stdout) == (0, "no job has failed\n")
    assert (some.exit_code, some.stdout) == (1, "job 3 is cancelled\n")
    assert some.stderr.splitlines() == [
        "job 1 was cancelled before",
        "job 99 is not there: it is forgotten, or never was",
    ]


def test_a_job_that_is_run_is_listed_with_its_worker_and_not_retried_while_that_lives(run, url, server, own_database):
    asyncio.run(queued(url, "k"))
    server.execute(
        "insert into pgmem_queue.procrastinate_workers default values;"
        "update pgmem_queue.procrastinate_jobs set status = 'doing', worker_id = 1,"
        ' args = args || \'{"error": "SummaryFailed"}\'',
        own_database,
    )

    retried = at(run, url, "jobs", "retry", "1")
    (job,) = [json.loads(line) for line in at(run, url, "jobs", "list", "--json").stdout.splitlines()]
    listed = " ".join(at(run, url, "jobs", "list").stdout.split())
    asked = at(run, url, "jobs", "cancel", "1")
    server.execute("delete from pgmem_queue.procrastinate_workers", own_database)
    gone = " ".join(at(run, url, "jobs", "list").stdout.split())

    assert (retried.exit_code, retried.stderr) == (
        1,
        "job 1 is running: it is to stop, or its worker gave a sign of life in the last 60 s; wait that long or cancel it\n",
    )
    assert job["heard_at"] is not None
    assert job["error"] is None
    assert "worker heard" in listed
    assert asked.stdout == "job 1 is asked to stop\n"
    assert "its worker is gone" in gone


def test_a_job_that_waits_for_its_next_run_says_why_and_when(run, url, server, own_database):
    asyncio.run(queued(url, "k"))
    server.execute(
        "update pgmem_queue.procrastinate_jobs set attempts = 2, scheduled_at = now() + interval '1 hour',"
        ' args = args || \'{"error": "SummaryFailed: ModelUnavailable"}\'',
        own_database,
    )

    (job,) = [json.loads(line) for line in at(run, url, "jobs", "list", "--json").stdout.splitlines()]
    listed = at(run, url, "jobs", "list", "--status", "todo").stdout

    assert (job["attempts"], job["error"]) == (2, "SummaryFailed: ModelUnavailable")
    assert job["next_run_at"] > job["queued_at"] == job["moved_at"]
    assert "next run" in " ".join(listed.split())


def test_a_job_that_waits_for_its_next_run_is_run_at_once_when_it_is_retried(run, url, server, own_database):
    asyncio.run(queued(url, "k"))
    server.execute("update pgmem_queue.procrastinate_jobs set attempts = 2, scheduled_at = now() + interval '1 hour'", own_database)

    retried = at(run, url, "jobs", "retry", "1")
    (job,) = [json.loads(line) for line in at(run, url, "jobs", "list", "--json").stdout.splitlines()]
    again = at(run, url, "jobs", "retry", "1")

    assert (retried.exit_code, retried.stdout) == (0, "job 1 waits again\n")
    assert (job["status"], job["attempts"]) == ("todo", 2)
    assert datetime.fromisoformat(job["next_run_at"]) <= datetime.now(UTC)
    assert (again.exit_code, again.stderr) == (1, "job 1 waits for a worker already\n")


@pytest.mark.parametrize("at_time", ["infinity", "-infinity", "20000-01-01", "4000-01-01 BC"])
def test_a_job_of_a_time_that_cannot_be_shown_hides_no_other(run, url, server, own_database, at_time):
    asyncio.run(queued(url, "a"))
    asyncio.run(queued(url, "b"))
    server.execute(f"update pgmem_queue.procrastinate_jobs set scheduled_at = '{at_time}' where id = 1", own_database)

    listed = at(run, url, "jobs", "list", "--json")

    assert listed.exit_code == 0
    assert [(job["id"], job["next_run_at"]) for job in map(json.loads, listed.stdout.splitlines())] == [(2, None), (1, None)]
