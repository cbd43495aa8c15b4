"""Fixtures of the command line's tests: the app in this process, on the test run's database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import pgmem
from pgmem.cli.main import app
from tests.support.talk import assistant, user

Run = Callable[..., Result]


@pytest.fixture
def url(server, own_database: str) -> str:
    """A database of one's own, for the application."""
    return server.on(own_database, "pgmem_app")


@pytest.fixture
def run(app_url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``pgmem`` with these arguments, on the shared database unless told otherwise."""
    monkeypatch.setenv("PGMEM_DATABASE_URL", app_url)
    monkeypatch.delenv("COLUMNS", raising=False)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments], prog_name="pgmem")


@pytest.fixture
def live(app_url: str, key: str) -> Callable[..., str]:
    """Lets a coroutine function do things to a session of the shared database; gives the session's key."""

    def live_in(act: Callable[[pgmem.Session], Any], *, tenant: str = "default", **options: Any) -> str:
        async def opened() -> None:
            async with pgmem.open(app_url, tenant=tenant) as memory:
                await act(await memory.session(key, **options))

        asyncio.run(opened())
        return key

    return live_in


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a JSONL file: an object becomes a line, bytes stay as they are."""

    def write_file(*lines: Any, name: str = "talks.jsonl") -> Path:
        file = tmp_path / name
        file.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
        return file

    return write_file


def talk(turns: int, system: str | None = "Be kind.") -> dict[str, Sequence[dict[str, Any]]]:
    """A conversation of user and assistant in turn, after a prompt."""
    prompt = [] if system is None else [{"role": "system", "content": system}]
    roles = ("user", "assistant")
    return {"messages": [*prompt, *({"role": roles[at % 2], "content": f"turn {at} " + "x" * 200} for at in range(turns))]}


async def queued(url: str, key: str = "[b]k\x1b", count: int = 8) -> Any:
    """A job for a session that is due."""
    async with pgmem.open(url, background="queue", policy=pgmem.Policy(threshold=6, keep_recent=2)) as memory:
        session = await memory.session(key)
        await session.add_turns([(user, assistant)[number % 2](f"turn {number} says words.") for number in range(count)])
        return await session.compact_async()
