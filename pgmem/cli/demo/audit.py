"""The demo's audit: plain SQL, kept beside this file, run as an analyst's role on the views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pgmem.settings import Settings
from pgmem.store.database import connect
from pgmem.store.queries import Statement, in_schema


@dataclass(frozen=True, slots=True)
class Answer:
    """One statement and what it found.

    Attributes:
        question: what it asks, in words.
        statement: the SQL, as psql takes it.
        rows: what it found, each with the same columns.
    """

    question: str
    statement: str
    rows: tuple[Mapping[str, Any], ...]


async def ask(url: str, settings: Settings, session: str) -> tuple[Answer, ...]:
    """Runs every statement about one session.

    Args:
        url: a libpq URL of a role that may read the views.
        settings: what the environment says.
        session: the session's key; of the demo's own making, so it holds no quote.
    """
    answers = []
    async with connect(url, settings) as database:
        for text in _statements():
            comment, _, statement = text.partition("\n")
            statement = in_schema(statement.strip(), settings.schema).replace("$SESSION", session)
            rows = await database.run(Statement(statement, ()), {}, repeatable=True)
            answers.append(Answer(comment.removeprefix("-- "), statement, tuple(rows)))
    return tuple(answers)


def _statements() -> list[str]:
    folder = resources.files("pgmem.cli.demo") / "audit"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [file.read_text(encoding="utf-8") for file in files]
