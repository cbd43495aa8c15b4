"""The generated pages of docs/reference: ``python -m tests.docs.generate`` writes them anew; a test compares them."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import psycopg
from typer.main import get_command
from typer.testing import CliRunner

import pgmem
from pgmem import testing
from pgmem.cli.main import app
from pgmem.store.schema import metadata

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MADE = "<!-- Made by `python -m tests.docs.generate`: edit the source, not this page. -->"
VIEWS = ("turn_log", "node_log", "verdict_log", "branch_log", "stage_log", "log")
TABLES = ("sessions", "trees", "turns", "nodes", "verdicts", "branches", "policies", "stages")
HANDLES = ("Memory", "Session", "Namespace", "Context", "CompactionTask", "QueuedCompaction", "Worker", "Health")
FLOWS = ("Flow", "Step", "Exchange", "StageMemory")
MODELS = ("OpenAIModel", "SummaryRequest", "Summary", "JudgeRequest", "Judgement", "Usage")
VALUES = ("Policy", "Turn", "Node", "Verdict", "Branch", "Stage", "Hint", "CompactionResult", "ModelUsage")
WORDS = ("Role", "TurnStatus", "NodeStatus", "Outcome", "Strategy", "Cause")
TESTING = ("ScriptedModel", "Answer", "ScriptedRequest", "ScriptError")
EVENTS = (
    "Event",
    "CompactionStarted",
    "CompactionSkipped",
    "CompactionCommitted",
    "CompactionConflicted",
    "CompactionFailed",
    "Judged",
    "JudgementFailed",
    "AttemptsExhausted",
    "Revised",
    "Erased",
    "SkipReason",
)
ALIASES = {
    "Message": "One OpenAI chat message, as the provider's API takes it: a mapping of `str` to anything that JSON has.",
    "TokenCounter": "Tokens of a text: takes a `str`, gives an `int`; must be deterministic, and at least 0.",
    "Summariser": "A strategy: an async function that takes a `SummaryRequest` and gives a `str` or a `Summary`.",
    "Judge": "A judge: an async function that takes a `JudgeRequest` and gives a `Judgement`.",
}
MADE_BY_USERS = ("Worker", "OpenAIModel", "Summary", "Judgement", "Usage", "ScriptedModel")
LONG = 100
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):$")


def cli_page() -> str:
    """``pgmem --help`` and the help of every command."""
    said = (
        "What `--help` says.\n"
        "Exit codes: 0 done; 1 refused or not found, the sentence after `error:` says why; 2 the command line itself is wrong; "
        "130 stopped by Ctrl-C."
    )
    parts = [f"## `{' '.join(path)}`\n\n```text\n{help_of(path)}\n```" for path, _ in commands()]
    return "\n\n".join(["# The command line", MADE, said, *parts]) + "\n"


def commands(path: tuple[str, ...] = ("pgmem",), command: Any = None) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, the root first."""
    found = get_command(app) if command is None else command
    yield path, found
    for name, below in getattr(found, "commands", {}).items():
        yield from commands((*path, name), below)


def help_of(path: tuple[str, ...]) -> str:
    ran = CliRunner().invoke(app, [*path[1:], "--help"], prog_name="pgmem", terminal_width=80, color=False)
    assert ran.exit_code == 0, ran.output
    return "\n".join(line.rstrip() for line in ran.output.strip().splitlines())


def schema_page(url: str) -> str:
    """Tables, views and what their comments say, from a migrated database."""
    declared = metadata("pgmem")
    with psycopg.connect(url) as connection:
        parts = [
            "# The schema",
            MADE,
            "Every comment is on the column too: `\\d+ pgmem.turns` in psql shows it.\n"
            "The whole, with constraints, triggers and grants, is in [migrations/schema.sql](../../migrations/schema.sql).\n"
            "Only `trees` is ever updated; the other tables take inserts alone.",
            "## Views",
            "What `pgmem_reader` may see.",
            *(_view(connection, name) for name in VIEWS),
            "## Tables",
            "What `pgmem_app` may read and add to.",
            *(_table(connection, declared.tables[f"pgmem.{name}"]) for name in TABLES),
        ]
    return "\n\n".join(parts) + "\n"


def _view(connection: psycopg.Connection, name: str) -> str:
    (comment,) = connection.execute("select obj_description(%s::regclass)", (f"pgmem.{name}",)).fetchone()
    rows = [f"| `{column}` | {kind} |" for column, kind, _ in _columns(connection, name)]
    return f"### `{name}`\n\n{comment}.\n\n| column | type |\n|---|---|\n" + "\n".join(rows)


def _table(connection: psycopg.Connection, table: Any) -> str:
    rows = []
    for column, kind, may_be_null in _columns(connection, table.name):
        comment = str(table.columns[column].comment).replace("|", "\\|")
        rows.append(f"| `{column}` | {kind} | {'yes' if may_be_null else ''} | {comment} |")
    head = f"### `{table.name}`\n\n{table.comment}.\n\n| column | type | null | what |\n|---|---|---|---|\n"
    return head + "\n".join(rows)


def _columns(connection: psycopg.Connection, name: str) -> list[tuple[str, str, bool]]:
    return connection.execute(
        "select attname, format_type(atttypid, atttypmod), not attnotnull from pg_attribute"
        " where attrelid = %s::regclass and attnum > 0 and not attisdropped order by attnum",
        (f"pgmem.{name}",),
    ).fetchall()


def api_page() -> str:
    """The public names but errors and events, from their docstrings."""
    parts = ["# The API", MADE, "`import pgmem`; all of it is async and typed."]
    parts += ["Errors have [a page of their own](errors.md), and so have [events](events.md)."]
    parts += [_function("pgmem.open", pgmem.open.__wrapped__)]
    for name in (*HANDLES, *FLOWS, *MODELS, *VALUES):
        parts += _class(getattr(pgmem, name))
    parts += [_words(name) for name in WORDS]
    parts += [f"## `{name}`\n\n{said}" for name, said in ALIASES.items()]
    parts += [_function("pgmem.count_tokens", pgmem.count_tokens)]
    parts += list(_testing())
    return "\n\n".join(parts) + "\n"


def _testing() -> Iterator[str]:
    """``pgmem.testing``: the endpoint, then the functions that make answers."""
    yield f"## `pgmem.testing`\n\n{_said(inspect.getdoc(testing))}"
    for name in TESTING:
        yield from _class(getattr(testing, name))
    for name in testing.__all__:
        if inspect.isfunction(getattr(testing, name)):
            yield _function(f"testing.{name}", getattr(testing, name))


def events_page() -> str:
    """The events, from their docstrings."""
    parts = [
        "# Events",
        MADE,
        "`memory.on_event(callback)` calls `callback` with each, in the task where it happens, and logs what it raises.\n"
        "They hold positions and sizes and no text of the conversation; they are logged at DEBUG by the logger `pgmem` too.",
    ]
    for name in EVENTS:
        kind = getattr(pgmem, name)
        parts += [_words(name)] if issubclass(kind, StrEnum) else _class(kind)
    return "\n\n".join(parts) + "\n"


def _words(name: str) -> str:
    kind = getattr(pgmem, name)
    return f"## `{name}`\n\n{_said(inspect.getdoc(kind))}\n\n" + "\n".join(f"- `{word.value}`" for word in kind)


def _class(kind: type) -> Iterator[str]:
    name = kind.__name__
    base = next((each.__name__ for each in kind.__mro__[1:] if each.__name__ in pgmem.__all__), None)
    said = _said(inspect.getdoc(kind))
    called = f"{_called(name, kind)}\n\n" if name in MADE_BY_USERS else ""
    yield f"## `{name}`\n\n{called}{said}" + (f"\n\nHas all of `{base}` too." if base else "")
    for method, found in vars(kind).items():
        if method.startswith("_"):
            continue
        if isinstance(found, property):
            yield f"### `{name}.{method}`\n\n{_said(inspect.getdoc(found))}"
        elif inspect.isfunction(found):
            yield _function(f"{name}.{method}", found, "###")
    if name == "Policy":
        defaults = ", ".join(f"`{field.name}={_plain(field.default)}`" for field in dataclasses.fields(kind))
        yield f"Defaults: {defaults}."


def _plain(value: Any) -> str:
    return repr(value.value) if isinstance(value, StrEnum) else value.__name__ if inspect.isfunction(value) else repr(value)


def _function(name: str, found: Any, level: str = "##") -> str:
    plain = inspect.unwrap(found)
    asked, gives = "", plain.__annotations__["return"]
    if name == "pgmem.open":
        asked, gives = "async with ", "Memory"
    elif inspect.iscoroutinefunction(plain):
        asked = "await "
    line = _line(f"{asked}{name}", inspect.signature(plain), f" -> {gives}")
    return f"{level} `{name}`\n\n{line}\n\n{_said(inspect.getdoc(found))}"


def _called(name: str, kind: type) -> str:
    """How a user makes one."""
    return _line(name, inspect.signature(kind), "")


def _line(name: str, signature: inspect.Signature, gives: str) -> str:
    parameters = list(_parameters(signature))
    line = f"{name}({', '.join(parameters)}){gives}"
    if len(line) > LONG:
        line = f"{name}(\n    " + ",\n    ".join(parameters) + f",\n){gives}"
    return f"```text\n{line}\n```"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    star = False
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        yield f"{each.name}: {each.annotation}" + ("" if each.default is each.empty else f" = {_plain(each.default)}")


def _said(text: str | None) -> str:
    """A docstring in Google form as Markdown."""
    assert text, "a public name without a docstring"
    out: list[str] = []
    lines = text.replace("``", "`").splitlines()
    at = 0
    while at < len(lines):
        section = SECTION.match(lines[at])
        if section is None:
            out.append(lines[at])
            at += 1
            continue
        at, body = _body(lines, at + 1)
        out += _section(section[1], body)
    return "\n".join(out).strip()


def _body(lines: list[str], at: int) -> tuple[int, list[str]]:
    body = []
    while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
        body.append(lines[at][4:])
        at += 1
    return at, body


def _section(name: str, body: list[str]) -> list[str]:
    if name == "Example":
        return ["```pycon", *"\n".join(body).strip().splitlines(), "```", ""]
    items: list[str] = []
    for line in filter(str.strip, body):
        item = re.match(r"([\w.]+): (.*)", line)
        if item and not line.startswith(" "):
            items.append(f"- `{item[1]}`: {item[2]}")
        elif items:
            items[-1] += " " + line.strip()
        else:
            items.append(line.strip())
    return [f"*{name}*", "", *items, ""]


def pages(url: str) -> dict[str, str]:
    """Every generated page by its file's name."""
    return {"cli.md": cli_page(), "schema.md": schema_page(url), "api.md": api_page(), "events.md": events_page()}


if __name__ == "__main__":
    from tests.support.servers import server

    with server() as started:
        for page, text in pages(started.on(started.migrated())).items():
            (REFERENCE / page).write_text(text, encoding="utf-8")
