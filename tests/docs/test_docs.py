"""The documentation says what is so: its code runs, its output is what comes out, its names and links are there."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import dataclasses
import doctest
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.main import get_command

import pgmem
from pgmem import errors, testing
from pgmem.cli.main import app
from pgmem.settings import Settings
from tests.docs import generate
from tests.docs.markdown import PAGES, ROOT, Block, anchors, blocks, name_of, without_code
from tests.flow.support import flow_of, step
from tests.support.talk import assistant, calls, result, user

NOT_RUN = {
    "README.md": 1,
    "docs/howto/deploy.md": 2,
    "docs/howto/providers.md": 1,
    "docs/howto/stages.md": 1,
    "docs/howto/summaries-by-a-model.md": 1,
    "docs/howto/test-your-agent.md": 1,
}
"""How many blocks of a page are marked as not run."""

THEN = "2026-06-01 14:05:00+00"
"""The time that the audit's page asks for; the tests put one in its place at which something was there."""

SIZES = re.compile(r"\d[\d,]*(?= tokens)")
"""What a better way to shorten changes, and no behaviour."""


def pages_with(language: str) -> list[Any]:
    return [pytest.param(page, id=name_of(page)) for page in PAGES if blocks(page, language)]


@pytest.fixture
def environment(server, own_database, monkeypatch: pytest.MonkeyPatch) -> str:
    """An own migrated database that PGMEM_DATABASE_URL names, for the application's role."""
    for name in [name for name in os.environ if name.startswith("PGMEM_")]:
        monkeypatch.delenv(name)
    url = server.on(own_database, "pgmem_app")
    monkeypatch.setenv("PGMEM_DATABASE_URL", url)
    return url


# Python


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs_in_order_and_prints_what_the_page_says(page: Path, environment):
    names: dict[str, Any] = {"__name__": "__main__", "pgmem": pgmem, "asyncio": asyncio, "json": json}

    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        opened = pgmem.open()
        names["memory"] = runner.run(opened.__aenter__())
        stack.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
        names["session"] = runner.run(names["memory"].session("user-42"))
        for block in blocks(page, "python"):
            if block.runs:
                printed = run(block, names, runner)
                if block.prints is not None:
                    assert SIZES.sub("N", printed) == SIZES.sub("N", block.prints), str(block)


def run(block: Block, names: dict[str, Any], runner: asyncio.Runner) -> str:
    """What the block prints; its `await`s may stand at the top, as in a function of the reader's."""
    code = compile("\n" * (block.line - 1) + block.body, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, names))
        else:
            exec(code, names)
    return output.getvalue()


def test_the_readme_shows_the_example_as_it_is():
    (marked,) = [block for block in blocks(ROOT / "README.md", "python") if block.mark == "same as examples/agent_loop.py"]

    assert marked.body == (ROOT / "examples" / "agent_loop.py").read_text(encoding="utf-8")


def test_few_blocks_are_not_run_and_each_says_why():
    marked = [block for page in PAGES for language in ("python", "sql") for block in blocks(page, language) if not block.runs]

    assert {page: sum(block.page == page for block in marked) for page in {block.page for block in marked}} == NOT_RUN
    assert [str(block) for block in marked if not re.fullmatch(r"not run: .+", block.mark)] == []


@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_runs(example: str, environment):
    # this checkout's pgmem, wherever the installed one is
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_the_examples_in_docstrings_are_right(environment):
    found = 0
    for module in pkgutil.walk_packages(pgmem.__path__, "pgmem."):
        if not module.name.endswith("__main__"):
            report = doctest.testmod(importlib.import_module(module.name))
            assert report.failed == 0, module.name
            found += report.attempted

    assert found > 10


# SQL


async def fails(request: pgmem.JudgeRequest) -> pgmem.Judgement:
    return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="Says nothing.", missing=("A-1042", "é"))


@pytest.fixture(scope="module")
def content(server, template) -> tuple[str, datetime]:
    """A database with all that the audit's pages ask for, and a time in the middle of it."""
    name = server.make_database(template)

    async def fill() -> datetime:
        async with pgmem.open(server.on(name, "pgmem_app"), background="queue") as memory:
            for key in ("parts-shop", "user-42"):
                session = await memory.session(key)
                await session.add_turns([user("Forget this: é\0"), calls("a"), result("a", "A-1042")])
                await session.erase(actor="ada")
                await session.add_turns([user("Which?"), calls("b"), result("b", "A-1042"), assistant("A-1042.")])
                await session.compress(strategy="tool_clear", label="parts")
                await session.add_turns([user("And now?")])
                then = datetime.now(UTC)
                await session.add_turns([assistant("Later."), user("Even later.")])
                await session.context()
                await session.compress(summary="They talked.", cumulative=True)
                await session.maintain(judge=fails)
                await session.revise(after_turn=11, note="Do not wait.", actor="ada")
                await flow_of(step("Explore"))(session).start()
                await session.compact_async()  # which keeps the policy
            waits = await memory.session("queued")
            await waits.add_turns([user("One."), user("Two.")])
            await waits.compact_async(threshold=2, keep_recent=1)
        return then

    return name, asyncio.run(fill())


@pytest.mark.parametrize("page", pages_with("sql"))
def test_the_sql_of_a_page_runs_and_finds_something(page: Path, server, content):
    database, then = content

    for block in blocks(page, "sql"):
        if block.mark == "as owner":
            run_as_owner(block, server.on(database))
        elif block.runs:
            with psycopg.connect(server.on(database, "pgmem_reader")) as connection:
                found = connection.execute(audited(block, key="user-42", then=then)).fetchall()
            assert found, str(block)


def audited(block: Block, *, key: str, then: datetime) -> str:
    return block.body.replace(THEN, then.isoformat()).replace("'user-42'", f"'{key}'")


def run_as_owner(block: Block, url: str) -> None:
    """Runs the block and takes it back: roles belong to the whole server."""
    body = re.sub(r"^(begin|commit);\n", "", block.body, flags=re.MULTILINE)
    with psycopg.connect(url) as connection:
        # what the pages before have made
        for role in {"agent", "my_app"} - set(re.findall(r"create role (\w+)", body)):
            connection.execute(f"create role {role}")
        connection.execute(body)
        connection.rollback()


@pytest.mark.parametrize("moment", ["in the middle", "at the end"])
async def test_the_sql_for_a_moment_shows_what_the_context_did(server, content, moment):
    database, then = content
    then = then if moment == "in the middle" else datetime.now(UTC)
    newest, shown = [block for block in blocks(ROOT / "docs/howto/audit-by-sql.md", "sql") if THEN in block.body]

    with psycopg.connect(server.on(database, "pgmem_reader")) as connection:
        ((no,),) = connection.execute(audited(newest, key="user-42", then=then)).fetchall()
        rows = connection.execute(audited(shown, key="user-42", then=then)).fetchall()
    async with pgmem.open(server.on(database, "pgmem_app")) as memory:
        context = await (await memory.session("user-42")).context(as_of=no)

    assert [(role, said) for _, role, said in rows] == [
        ("memory", context.nodes[-1].summary),
        *((message["role"], message["content"]) for message in context.messages[1 + bool(context.hints) :]),
    ]


TAMPERINGS = {
    "nothing": ("select 1", None),
    "a turn's text": ("update pgmem.turns set content = 'forged' where no = 5", 5),
    "a turn's branch": ("update pgmem.turns set branch = 0 where no = 6", 6),
    "a turn's raw text": ("update pgmem.turns set raw = null where no = 1", 1),
    "a turn that is gone": ("delete from pgmem.turns where no = 7", 7),
    "a node's summary": ("update pgmem.nodes set summary = 'forged' where no = 9", 9),
    "an erase that is undone": ("update pgmem.branches set left_to = null where no = 4", 4),
    "a verdict that is turned": ("update pgmem.verdicts set outcome = 'pass' where no = 14", 14),
    "a note": ("update pgmem.branches set note = 'forged' where no = 16", 16),
    "a policy": ("update pgmem.policies set policy = '{}' where no = 17", 17),
    "a time": ("update pgmem.turns set created_at = created_at + '1s' where no = 12", 12),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
async def test_the_chain_in_sql_names_the_first_fact_that_is_not_as_it_was_stored(server, content, tampering):
    statement, first_bad = TAMPERINGS[tampering]
    (block,) = [block for block in blocks(ROOT / "docs/howto/audit-by-sql.md", "sql") if block.mark == "chain"]
    database = server.make_database(content[0])

    with psycopg.connect(server.on(database), autocommit=True) as owner:
        for table in ("turns", "nodes", "verdicts", "branches", "policies"):
            owner.execute(f"alter table pgmem.{table} disable trigger all")
        owner.execute(statement)
    with psycopg.connect(server.on(database, "pgmem_app")) as connection:
        ((facts, first_not_as_stored),) = connection.execute(block.body).fetchall()

    assert (facts, first_not_as_stored) == (17, first_bad)


# The command line


COMMAND = re.compile(r"(?:^\$ |\$\()(pgmem [^|&;)>\n]*)", re.MULTILINE)


def test_every_command_line_in_the_pages_can_be_parsed():
    found = [(str(block), line) for page in PAGES for block in blocks(page, "console") for line in COMMAND.findall(block.body)]

    assert len(found) > 15
    for place, line in found:
        parse(shlex.split(line)[1:], place)


def parse(arguments: list[str], place: str) -> None:
    command: Any = get_command(app)
    name = "pgmem"
    while hasattr(command, "commands"):
        assert arguments[0] in command.commands, f"{place}: there is no command {arguments[0]}"
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, list(arguments))


def test_every_make_target_in_the_pages_is_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    lines = "".join(block.body for page in PAGES for block in blocks(page, "console"))
    asked = set(re.findall(r"^\$ make (\w+)", lines, flags=re.MULTILINE))

    assert asked <= targets
    assert "demo" in asked


# The reference


@pytest.mark.parametrize("name", ["api.md", "cli.md", "events.md", "schema.md"])
def test_a_generated_page_is_current(name: str, server, database):
    page = generate.pages(server.on(database))[name]

    assert (generate.REFERENCE / name).read_text(encoding="utf-8") == page, "run: .venv/bin/python -m tests.docs.generate"


def test_every_public_name_is_in_the_reference():
    pages = {name: (generate.REFERENCE / name).read_text(encoding="utf-8") for name in ("api.md", "errors.md", "events.md")}
    reference = "\n".join(pages.values())
    members = [
        f"{kind.__name__}.{name}"
        for kind in (
            pgmem.Memory,
            pgmem.Session,
            pgmem.Namespace,
            pgmem.Context,
            pgmem.CompactionTask,
            pgmem.QueuedCompaction,
            pgmem.Worker,
            pgmem.OpenAIModel,
            testing.ScriptedModel,
            testing.Answer,
        )
        for name, found in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, property))
    ]
    wanted = [
        *(name for name in pgmem.__all__ if name not in ("open", "count_tokens")),
        *members,
        *(name if inspect.isclass(getattr(testing, name)) else f"testing.{name}" for name in testing.__all__),
        "pgmem.open",
        "pgmem.count_tokens",
    ]

    assert [name for name in wanted if f"`{name}`" not in reference] == []


def test_every_field_of_a_value_is_in_the_reference():
    reference = (generate.REFERENCE / "api.md").read_text(encoding="utf-8")
    values = (
        pgmem.Policy,
        pgmem.Turn,
        pgmem.Node,
        pgmem.Verdict,
        pgmem.Branch,
        pgmem.Hint,
        pgmem.Context,
        pgmem.CompactionResult,
        pgmem.Health,
        pgmem.ModelUsage,
        pgmem.SummaryRequest,
        pgmem.Summary,
        pgmem.JudgeRequest,
        pgmem.Judgement,
        pgmem.Usage,
        testing.Answer,
        testing.ScriptedRequest,
    )

    assert [field.name for kind in values for field in dataclasses.fields(kind) if f"- `{field.name}`:" not in reference] == []


def test_every_error_has_its_row_and_the_tree_is_the_code_s():
    page = (generate.REFERENCE / "errors.md").read_text(encoding="utf-8")
    known = {name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, errors.PgmemError)}
    rows = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    tree = inspect.cleandoc(errors.__doc__.split("::")[1].rpartition("Messages hold")[0]).replace("``", "`").strip()

    assert sorted(rows) == sorted(known)
    assert tree in page
    assert known <= set(pgmem.__all__)


@pytest.mark.parametrize("page", ["README.md", "docs/reference/settings.md"])
def test_every_setting_is_there_with_its_default(page: str):
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(PGMEM_\w+)` \| ([^|]+) \|", text, flags=re.MULTILINE))
    code = (ROOT / "pgmem" / "settings.py").read_text(encoding="utf-8")

    assert set(rows) == set(re.findall(r"PGMEM_[A-Z_]+[A-Z]", code))
    for field in dataclasses.fields(Settings):
        if field.default is not None:
            shown = rows[f"PGMEM_{field.name.upper()}"].strip("`")
            assert shown == (str(int(field.default)) if not isinstance(field.default, str) else field.default)


# The pages


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_relative_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)]+)\)", without_code(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            assert to.exists(), f"{name_of(page)}: {target}"
            assert not anchor or anchor in anchors(to), f"{name_of(page)}: {target}"


def test_the_index_leads_to_every_page():
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    below = {
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs") and page.name != "index.md"
    }

    assert below <= linked


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if page.parent.name == "decisions"])
def test_a_decision_has_its_context_its_decision_and_its_consequence(page: Path):
    headings = re.findall(r"^## (.*)$", page.read_text(), flags=re.MULTILINE)

    assert headings == ["Context", "Decision", "Consequence"]
    assert page.read_text().startswith(f"# {page.name[:4]}: ")


@pytest.mark.parametrize("page", [pytest.param(page, id=name_of(page)) for page in PAGES])
def test_prose_has_one_sentence_a_line(page: Path):
    prose = [line for line in without_code(page).splitlines() if not line.startswith(("|", "-", "#", "<!--"))]

    if name_of(page) not in ("docs/reference/api.md", "docs/reference/events.md"):
        assert [line for line in prose if re.search(r"[a-z)][.!?] [A-Z]", line)] == []


# Compose


COMPOSE = ROOT / "docker-compose.yml"


def services() -> dict[str, str]:
    """The text of each of the compose file's services."""
    below = COMPOSE.read_text(encoding="utf-8").partition("\nservices:\n")[2].partition("\nconfigs:")[0]
    parts = re.split(r"^  (\w+):$", below, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_compose_file_has_a_checked_server_a_migration_workers_and_no_secret():
    text = COMPOSE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    waits = {name: re.findall(r"^      (\w+):\n        condition: (\w+)", body, re.MULTILINE) for name, body in services().items()}

    assert not [line for line in lines if "\t" in line or (len(line) - len(line.lstrip())) % 2]
    assert waits == {
        "postgres": [],
        "migrate": [("postgres", "service_healthy")],
        "logins": [("migrate", "service_completed_successfully")],
        "worker": [("logins", "service_completed_successfully")],
    }
    assert [name for name, body in services().items() if "healthcheck:" in body] == ["postgres", "worker"]
    secrets = re.findall(r"PASSWORD: (.*)$", text, flags=re.MULTILINE)
    assert len(secrets) == 6
    assert all(re.fullmatch(r"\$\{PGMEM_\w+_PASSWORD:\?[^}]+\}", secret) for secret in secrets)


def test_the_images_of_the_compose_file_are_a_postgres_and_what_is_built_from_this_checkout():
    images = {name: re.findall(r"^    image: (\S+)$", body, re.MULTILINE) for name, body in services().items()}
    copied = re.findall(r"^        COPY (.*) \S+$", services()["migrate"], re.MULTILINE)

    assert images == {"postgres": ["postgres:17"], "migrate": ["pgmem"], "logins": ["postgres:17"], "worker": ["pgmem"]}
    assert "build: &pgmem\n" in services()["migrate"]
    assert "build: *pgmem\n" in services()["worker"]
    assert copied
    assert all((ROOT / name).exists() for line in copied for name in line.split())


@pytest.mark.parametrize("model", ["", "--model gpt-5-mini"])
def test_the_commands_of_the_compose_file_are_commands_of_pgmem(model: str):
    listed = {"migrate": json.loads(re.search(r"command: (\[.*\])", services()["migrate"])[1])}
    written = re.search(r"command: (pgmem .*)", services()["worker"])[1]
    listed["worker"] = shlex.split(re.sub(r"\$\{SUMMARY_MODEL:\+--model \$SUMMARY_MODEL\}", model, written))

    for service, words in listed.items():
        assert words[0] == "pgmem"
        parse(words[1:], service)
    assert "$" not in " ".join(listed["worker"])


def test_a_worker_in_compose_is_asked_where_it_answers_and_may_end_before_it_is_killed():
    body = services()["worker"]
    port, stop = re.search(r"--health-port (\d+)", body)[1], re.search(r"--stop-seconds (\d+)", body)[1]
    code = re.search(r'test: \["CMD", "python", "-c", "(.*)"\]', body)[1]

    assert f"http://127.0.0.1:{port}/health" in code
    ast.parse(code)
    assert int(re.search(r"stop_grace_period: (\d+)s", body)[1]) > int(stop)
