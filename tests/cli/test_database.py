"""``pgmem db``."""

import asyncio
import re
import subprocess
import sys

import psycopg
import pytest

from pgmem.store import embedded
from tests.cli.conftest import queued
from tests.store.embedded_support import new_home, wait_until


@pytest.fixture
def empty(server):
    """The owner's URL of a database that has no schema of ours."""
    return server.on(server.make_database())


@pytest.fixture
def home(monkeypatch):
    """Where an embedded server may be; no other database is configured."""
    with new_home() as folder:
        monkeypatch.delenv("PGMEM_DATABASE_URL")
        monkeypatch.setenv("PGMEM_HOME", str(folder))
        yield folder


def test_upgrade_makes_the_schema_once_and_says_so(run, empty):
    assert run("db", "current", "--url", empty).stdout == "none\n"

    first = run("db", "upgrade", "--url", empty)
    second = run("db", "upgrade", "--url", empty)

    assert first.exit_code == second.exit_code == 0
    assert "is at version 0002 now (it was empty)" in first.stdout
    assert "grant pgmem_app to" in first.stdout
    assert "is at version 0002 already" in second.stdout
    assert run("db", "current", "--url", empty).stdout == "0002\n"


def test_upgrade_takes_another_schema_and_leaves_roles_alone_when_asked(run, empty):
    result = run("db", "upgrade", "--url", empty, "--schema", "talks", "--no-roles")

    assert result.exit_code == 0
    with psycopg.connect(empty) as owner:
        grants = owner.execute(
            "select count(*) from information_schema.role_table_grants where table_schema = 'talks' and grantee like 'pgmem%'"
        )
        assert grants.fetchone() == (0,)
    assert run("db", "current", "--url", empty, "--schema", "talks").stdout == "0002\n"
    assert run("db", "current", "--url", empty).stdout == "none\n"


def test_upgrade_sql_prints_what_a_dba_can_run(run, empty):
    printed = run("db", "upgrade", "--sql", "--schema", "talks")

    with psycopg.connect(empty, autocommit=True) as owner:
        owner.execute(printed.stdout)
    assert run("db", "current", "--url", empty, "--schema", "talks").stdout == "0002\n"
    assert "create role" not in run("db", "upgrade", "--sql", "--no-roles").stdout


def test_check_says_what_it_found(run, app_url):
    result = run("db", "check")

    assert result.exit_code == 0
    names = ("server", "role", "schema", "queue")
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [[name, "ok:"] for name in names]
    assert "pgmem_app, which does not own the tables" in result.stdout


def test_check_says_how_the_queue_is(run, url, server, own_database):
    none_waits = run("db", "check", "--url", url)
    asyncio.run(queued(url))
    one_waits = run("db", "check", "--url", url)
    server.execute("drop schema pgmem_queue cascade", own_database)
    no_queue = run("db", "check", "--url", url)

    assert "queue   ok: 0 jobs waiting, 0 running, 0 failed; 0 workers at work\n" in none_waits.stdout
    assert re.search(r"queue   ok: 1 job waiting since 20\S+ \S+, 0 running, 0 failed; 0 workers at work\n", one_waits.stdout)
    assert "queue   ok: not usable, which only background='queue' and `pgmem worker` need: there is no queue" in no_queue.stdout
    assert no_queue.exit_code == 0


def test_check_fails_on_a_role_that_owns_the_tables_and_on_a_missing_schema(run, server, own_database, empty):
    owner = run("db", "check", "--url", server.on(own_database))
    nothing = run("db", "check", "--url", empty)

    assert owner.exit_code == nothing.exit_code == 1
    assert "server  NOT OK: " in owner.stdout
    assert "is a superuser or owns the tables" in owner.stdout
    assert "schema  ok: " in owner.stdout
    assert "schema  NOT OK: " in nothing.stdout
    assert "run `pgmem db upgrade`" in nothing.stdout


def test_check_does_not_vouch_for_what_it_was_told_to_accept(run, server, own_database, monkeypatch):
    monkeypatch.setenv("PGMEM_ALLOW_UNSAFE", "1")

    result = run("db", "check", "--url", server.on(own_database))

    assert result.exit_code == 0
    assert "does not own" not in result.stdout
    assert "PGMEM_ALLOW_UNSAFE" in result.stdout


def test_the_url_of_a_configured_server_is_printed_without_its_password(run, monkeypatch):
    monkeypatch.setenv("PGMEM_DATABASE_URL", "postgresql://ann:sesame@db/app")

    assert run("db", "url").stdout == "postgresql://ann@db/app\n"
    assert run("db", "url", "--role", "reader").exit_code == 2


def test_reading_migrates_no_database_of_the_user_s(run, empty):
    result = run("sessions", "--url", empty)

    assert result.exit_code == 1
    assert "run `pgmem db upgrade`" in result.stderr
    assert run("db", "current", "--url", empty).stdout == "none\n"


def test_the_embedded_server_is_made_found_and_stopped(run, home):
    nothing = run("db", "stop")
    assert not home.exists()
    made = run("db", "upgrade")
    current = run("db", "current")
    reader = run("db", "url", "--role", "reader").stdout.strip()
    with psycopg.connect(reader) as connection:
        who = connection.execute("select current_user").fetchone()
    owner = run("db", "url", "--role", "owner").stdout.strip()
    checked = run("db", "check")
    stopped = run("db", "stop")

    assert "no embedded server runs" in nothing.stdout
    assert "is at version 0002 now" in made.stdout
    assert current.stdout == "0002\n"
    assert who == ("pgmem_reader",)
    assert "postgres" in owner
    assert owner != reader
    assert checked.exit_code == 0
    assert stopped.stdout.startswith("stopped the server in ")
    assert embedded.running(home) is None


def test_roles_are_not_optional_on_the_embedded_server(run, home):
    result = run("db", "upgrade", "--no-roles")

    assert result.exit_code == 2
    assert not home.exists()


def test_the_demo_s_server_ends_with_it_unless_it_is_kept(run, home):
    def demo(*options):
        command = [sys.executable, "-m", "pgmem", "demo", *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr

    said = demo("--keep")
    kept = embedded.running(home)
    run("db", "stop")
    demo()

    assert said.splitlines() == [
        "Starting a Postgres of its own; the first time it is made, which takes a few seconds ...",
        "Playing the conversation, a few seconds more ...",
    ]
    assert kept is not None
    wait_until(lambda: embedded.running(home) is None, "the demo's server has ended")
