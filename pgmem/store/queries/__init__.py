"""The statements, one a ``.sql`` file, each named for what it does; ``pgmem.`` in them stands for the schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from importlib import resources

PARAMETER = re.compile(r"%\((\w+)\)s")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as Postgres takes it: parsed once here, not by the driver at every call.

    Attributes:
        text: SQL with ``$1``, ``$2`` and so on.
        names: the parameters' names, in the order of their numbers.
    """

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Queries:
    """The text of each statement for one schema; a field is the name of a file."""

    append_turn: Statement
    append_turns: Statement
    beat: Statement
    cancel_job: Statement
    check_queue: Statement
    check_server: Statement
    commit_erase: Statement
    commit_fail: Statement
    commit_node: Statement
    commit_policy: Statement
    commit_revise: Statement
    commit_verdict: Statement
    count_left: Statement
    end_run: Statement
    find_attempt: Statement
    find_orphans: Statement
    find_pending: Statement
    find_successor: Statement
    find_unfinished: Statement
    find_worker: Statement
    forget_jobs: Statement
    list_branches: Statement
    list_failed: Statement
    list_jobs: Statement
    list_namespaces: Statement
    list_nodes: Statement
    list_path: Statement
    list_sessions: Statement
    list_stages: Statement
    list_stalled: Statement
    list_turns: Statement
    list_unended: Statement
    list_verdicts: Statement
    make_session: Statement
    make_tree: Statement
    put_job: Statement
    read_facts: Statement
    read_job: Statement
    read_node: Statement
    read_point: Statement
    read_policy: Statement
    read_session: Statement
    read_session_by_id: Statement
    read_snapshot: Statement
    read_stage: Statement
    read_tree: Statement
    read_verdict: Statement
    read_version: Statement
    retry_job: Statement
    save_stage: Statement
    sum_jobs: Statement
    sum_usage: Statement


def load(schema: str) -> Queries:
    """All statements, with ``schema`` in the place of ``pgmem``."""
    here = resources.files(__name__)
    names = [field.name for field in fields(Queries)]
    return Queries(**{name: placed((here / f"{name}.sql").read_text(encoding="utf-8"), schema) for name in names})


def placed(file: str, schema: str) -> Statement:
    """The statement of a file: without comments, every ``pgmem.`` naming ``schema``, its parameters numbered."""
    lines = (line.strip() for line in file.splitlines())
    text = " ".join(line for line in lines if line and not line.startswith("--"))
    names = tuple(dict.fromkeys(PARAMETER.findall(text)))
    numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
    return Statement(in_schema(numbered, schema), names)


def in_schema(text: str, schema: str) -> str:
    """``text`` with every ``pgmem.`` naming ``schema`` instead, and every ``pgmem_queue.`` its queue."""
    if schema == "pgmem":
        return text
    return re.sub(r"\bpgmem(_queue)?\.", lambda found: f"{quoted(schema + (found[1] or ''))}.", text)


def quoted(schema: str) -> str:
    """``schema`` as an identifier; its form is checked where settings are read."""
    return f'"{schema}"'
