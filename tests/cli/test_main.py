"""The app as a whole: help, version, errors, Ctrl-C and pipes."""

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

from pgmem.cli.main import app
from tests.cli.conftest import talk
from tests.store.embedded_support import wait_until

COMMANDS = [
    *(("db", name) for name in ("upgrade", "check", "current", "url", "stop")),
    *(("jobs", name) for name in ("list", "retry", "cancel")),
    *((name,) for name in ("worker", "replay", "demo", "sessions", "tree", "context", "turns", "stages", "verify")),
    *((name,) for name in ("compress", "maintain", "revise")),
]
GROUPS = ("db", "jobs")
PGMEM = [sys.executable, "-m", "pgmem"]


def test_the_version_is_that_of_the_release(run):
    result = run("--version")

    assert (result.exit_code, result.stdout) == (0, f"pgmem {version('pgmem-mage')}\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_teaches_with_a_paragraph_and_an_example(run, command):
    result = run(*command, "--help")

    assert result.exit_code == 0
    assert "Example" in result.stdout
    assert f"pgmem {' '.join(command)}" in result.stdout.rsplit("Example", 1)[1]
    assert len(result.stdout.split("Options:")[0].split()) > 12


def test_no_command_has_gone_untested_here():
    group = typer.main.get_command(app)
    found = {(name,) for name in group.commands if name not in GROUPS}
    found |= {(name, below) for name in GROUPS for below in group.commands[name].commands}

    assert found == set(COMMANDS)


@pytest.mark.parametrize("group", [(), *((name,) for name in GROUPS)], ids=["pgmem", *GROUPS])
def test_the_list_of_commands_cuts_no_summary(run, group):
    listed = run(*group, "--help").stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()

    below = {command[len(group)] for command in COMMANDS if command[: len(group)] == group}
    assert {line.split()[0] for line in listed} == below
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


def test_an_error_is_a_sentence_on_standard_error_and_exit_code_1(run):
    result = run("sessions", "--url", "postgresql://ann:sesame@127.0.0.1:1/none")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stdout == ""
    assert "Traceback" not in result.output
    assert "sesame" not in result.output


def test_a_wrong_setting_is_an_error_that_names_it(run, monkeypatch):
    monkeypatch.setenv("PGMEM_POOL_SIZE", "many")

    result = run("sessions")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: PGMEM_POOL_SIZE is 'many'")


def test_an_unknown_command_is_a_usage_error(run):
    assert run("nonsense").exit_code == 2


def test_ctrl_c_ends_a_replay_with_130_and_a_word(app_url, write):
    file = write(*[talk(400)] * 50)
    dump = file.with_name("contexts.jsonl")
    environment = os.environ | {"PGMEM_DATABASE_URL": app_url}
    process = subprocess.Popen(
        [*PGMEM, "replay", file, "--dump", dump], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: dump.exists() and dump.stat().st_size, "the replay writes")

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)

    # on a slow machine it tells how far it is before
    assert (process.returncode, stdout, stderr.splitlines()[-1]) == (130, "", "stopped")
    assert all(json.loads(line)["messages"] for line in dump.read_text().splitlines())


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_traceback(app_url, live, options):
    async def act(session):
        await session.add_turns([{"role": "user", "content": "x" * 500} for _ in range(3000)])

    environment = os.environ | {"PGMEM_DATABASE_URL": app_url}
    process = subprocess.Popen(
        [*PGMEM, "turns", live(act), *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline()
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=20)

    assert stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["sessions"], ["sessions", "--json"], ["--help"], ["--version"]], ids=" ".join)
def test_output_that_finds_no_room_is_a_sentence_and_exit_code_1(app_url, live, arguments):
    async def act(session):
        pass

    live(act)
    environment = os.environ | {"PGMEM_DATABASE_URL": app_url}
    with Path("/dev/full").open("w") as full:
        found = subprocess.run([*PGMEM, *arguments], env=environment, stdout=full, stderr=subprocess.PIPE, text=True)

    assert found.returncode == 1
    assert found.stderr.startswith("error: the output cannot be written (No space left on device)")
    assert found.stderr.count("\n") == 1


def test_output_that_the_terminal_s_encoding_lacks_is_escaped(app_url, live):
    async def act(session):
        await session.add_turn("user", "ünïcode \ud83d")

    environment = os.environ | {"PGMEM_DATABASE_URL": app_url, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    found = subprocess.run([*PGMEM, "turns", live(act)], env=environment, capture_output=True, check=True)

    assert rb"\xfcn\xefcode \ud83d" in found.stdout
