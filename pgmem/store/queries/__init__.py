"""The statements, one a ``.sql`` file, each named for what it does; ``pgmem.`` in them stands for the schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from importlib import resources
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class Queries:
    """The text of each statement for one schema; a field is the name of a file."""

    append_turn: LiteralString
    append_turns: LiteralString
    check_server: LiteralString
    commit_erase: LiteralString
    commit_node: LiteralString
    list_branches: LiteralString
    list_namespaces: LiteralString
    list_nodes: LiteralString
    list_path: LiteralString
    list_sessions: LiteralString
    list_turns: LiteralString
    make_session: LiteralString
    make_tree: LiteralString
    read_facts: LiteralString
    read_session: LiteralString
    read_snapshot: LiteralString
    read_tree: LiteralString
    read_version: LiteralString


def load(schema: str) -> Queries:
    """All statements, with ``schema`` in the place of ``pgmem``."""
    here = resources.files(__name__)
    return Queries(
        **{field.name: placed((here / f"{field.name}.sql").read_text(encoding="utf-8"), schema) for field in fields(Queries)}
    )


def placed(statement: str, schema: str) -> LiteralString:
    """``statement`` without its comments, on one line, with every ``pgmem.`` naming ``schema`` instead.

    One line, since psycopg caches what it parsed of a statement only up to 4,096 characters.
    """
    lines = (line.strip() for line in statement.splitlines())
    text = " ".join(line for line in lines if line and not line.startswith("--"))
    return text if schema == "pgmem" else re.sub(r"\bpgmem\.", f"{quoted(schema)}.", text)


def quoted(schema: str) -> str:
    """``schema`` as an identifier; its form is checked where settings are read."""
    return f'"{schema}"'
