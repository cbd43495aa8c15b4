"""Rows of the statements turned into the values of the glossary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pgmem.domain.chain import Link
from pgmem.domain.message import StoredMessage, decode
from pgmem.domain.model import (
    Branch,
    Cause,
    Hint,
    Node,
    NodeStatus,
    Outcome,
    Snapshot,
    Strategy,
    Tree,
    Turn,
    TurnStatus,
    Verdict,
)

Row = dict[str, Any]

PART_TREE, PART_NODE, PART_KEPT, PART_ACTIVE, PART_HINT = range(5)


def turn_of(row: Row) -> Turn:
    """A row with the columns of ``turns``, and ``status`` and ``node`` where they are."""
    status = row.get("status")
    return Turn(
        no=row["no"],
        branch=row["branch"],
        message=decode(StoredMessage(row["role"], row["content"], row["extra"], row["raw"])),
        pinned=row["pinned"],
        tokens=row["tokens"],
        idempotency_key=row["idempotency_key"],
        created_at=row["created_at"],
        status=TurnStatus(status) if status else None,
        node=row.get("node"),
    )


def node_of(row: Row) -> Node:
    """A row with the columns of ``nodes`` and ``status``."""
    return Node(**{**row, "strategy": Strategy(row["strategy"]), "status": NodeStatus(row["status"])})


def judged_node_of(row: Row) -> Node:
    """A row of ``read_node``."""
    beside = ("outcome", "reason", "tree_branch", "version", "tree_last_no", "parent_last_no", "turns_active")
    return node_of({name: value for name, value in row.items() if name not in beside})


def failure_of(row: Row) -> str:
    """A row of ``list_failed`` as a text: the reason and what was missing."""
    missing = json.loads(row["missing"]) if row["missing"] else []
    return "; ".join([row["reason"] or "no reason was given", *(f"missing: {item}" for item in missing)])


def branch_of(row: Row) -> Branch:
    """A row with the columns of ``branches``."""
    return Branch(**{**row, "cause": Cause(row["cause"])})


def verdict_of(row: Row) -> Verdict:
    """A row with the columns of ``verdicts`` and ``reopened``."""
    missing = tuple(json.loads(row["missing"])) if row["missing"] else ()
    return Verdict(**{**row, "outcome": Outcome(row["outcome"]), "missing": missing})


def link_of(row: Row) -> Link:
    """A row of ``read_facts``."""
    moves = () if row["base"] is None else (row["base"], row["left_from"], row["left_to"])
    return Link(row["no"], tuple(row["fields"]), row["created_at"], moves, row["branch"], bytes(row["chain"]))


def snapshot_of(rows: Sequence[Row]) -> Snapshot:
    """The rows of ``read_snapshot``: at least the tree's."""
    nodes = tuple(_snapshot_node(row) for row in rows if row["part"] == PART_NODE)
    return Snapshot(
        tree=_snapshot_tree(rows[0]),
        nodes=nodes,
        more_nodes=bool(nodes) and nodes[0].parent is not None and not nodes[0].cumulative,
        kept=tuple(_snapshot_turn(row) for row in rows if row["part"] == PART_KEPT),
        active=tuple(_snapshot_turn(row) for row in rows if row["part"] == PART_ACTIVE),
        hints=tuple(Hint(row["branch"], row["link"], row["low"], row["body"]) for row in rows if row["part"] == PART_HINT),
    )


def _snapshot_tree(row: Row) -> Tree:
    return Tree(
        branch=row["branch"],
        open_branch=row["link"],
        head=row["low"],
        boundary=row["high"],
        last_no=row["no"],
        version=row["amount"],
    )


def _snapshot_node(row: Row) -> Node:
    return Node(
        no=row["no"],
        branch=row["branch"],
        parent=row["link"],
        first_no=row["low"],
        last_no=row["high"],
        kind=row["word"],
        label=row["title"],
        strategy=Strategy(row["mark"]),
        summary=row["body"],
        cumulative=row["flag"],
        tokens=row["tokens"],
        source_tokens=row["amount"],
        model=row["extra"],
        prompt_version=row["raw"],
        created_at=row["created_at"],
    )


def _snapshot_turn(row: Row) -> Turn:
    return Turn(
        no=row["no"],
        branch=row["branch"],
        message=decode(StoredMessage(row["word"], row["body"], row["extra"], row["raw"])),
        pinned=row["flag"],
        tokens=row["tokens"],
        idempotency_key=row["mark"],
        created_at=row["created_at"],
    )
