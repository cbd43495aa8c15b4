"""Revise: goes back to a point on the active line; what lies past it is left behind, and its note becomes a hint."""

from __future__ import annotations

from dataclasses import dataclass

from pgmem.domain.chain import digest
from pgmem.domain.events import Revised
from pgmem.domain.model import ON_PATH, Branch, Cause, NodeStatus
from pgmem.errors import NodeNotFound, NotOnActiveLine, StaleTree
from pgmem.operations.place import MOST_NOTE, Place, find_node, read_node
from pgmem.store import rows
from pgmem.store.database import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Where to go back to: one of a node, a position after a node, a turn; none of them for the newest attempt.

    Attributes:
        before: the node to leave, with all past it; None where another is set.
        after: the node to keep, and nothing past it.
        after_turn: the turn to keep, and nothing past it.
    """

    before: int | None = None
    after: int | None = None
    after_turn: int | None = None


async def revise(place: Place, point: Point, *, note: str | None, keep_turns: bool, actor: str | None) -> Branch:
    """Starts a branch at the last node before the point.

    Args:
        place: the tree.
        point: where to go back to.
        note: what the next attempt should know; the failed verdict's reason if None.
        keep_turns: whether the turns past the point stay active, so that only nodes leave the path.
        actor: who asked for it, for the audit.

    Raises:
        NodeNotFound: the tree has no such node.
        NotOnActiveLine: the point was left behind before, or is no turn.
        StaleTree: the tree moved on; nothing was written.
    """
    position, default_note = await _position(place, point)
    there = await _read_point(place, position, point)
    note = note or default_note
    parameters = place.key | {
        "branch": there["branch"],
        "version": there["version"],
        "base": there["base"],
        "boundary": there["boundary"],
        "left_from": there["left_from"],
        "leaves_turns": not keep_turns,
        "note": note,
        "actor": actor,
        "digest": digest("branch", Cause.REVISE.value, note, actor),
    }
    found = await place.database.run(place.database.queries.commit_revise, parameters)
    if not found:
        raise StaleTree(f"{place} moved on while it was revised: nothing was written; read the context again and retry")
    branch = rows.branch_of(found[0])
    place.emit(Revised(place.session, place.namespace, branch.no, branch.base, branch.left_from, branch.left_to))
    return branch


async def _position(place: Place, point: Point) -> tuple[int, str | None]:
    """The last position to keep, and the note to go by when the caller has none."""
    if point.after_turn is not None:
        return point.after_turn, None
    if point.after is not None:
        node = await read_node(place, point.after)
        _refuse(place, node, unless=node["status"] in ON_PATH)
        return node["last_no"], None
    named = await find_node(place, place.database.queries.find_attempt) if point.before is None else point.before
    if named is None:
        raise NodeNotFound(f"{place} has no node to revise: name a turn with after_turn=")
    node = await read_node(place, named)
    failed = node["status"] == NodeStatus.FAILED
    _refuse(place, node, unless=node["status"] in ON_PATH or (failed and node["turns_active"]))
    return node["first_no"] - 1, _note(node["reason"]) if failed else None


def _note(reason: str | None) -> str | None:
    """A judge's reason as a note: it is shown in every context, so no longer than a note of the caller's."""
    return reason[:MOST_NOTE] if reason and not reason.isspace() else None


def _refuse(place: Place, node: Row, *, unless: bool) -> None:
    if not unless:
        raise NotOnActiveLine(
            f"node {node['no']} of {place} is {node['status']} and its turns are not active: revise a node of `path()`, "
            "or a failed one whose turns are active"
        )


async def _read_point(place: Place, position: int, point: Point) -> Row:
    found = await place.database.run(place.database.queries.read_point, place.key | {"position": position}, repeatable=True)
    if point.after_turn is not None and not (found and found[0]["is_live_turn"]):
        raise NotOnActiveLine(f"{place} has no turn {position} on its active line: `turns()` lists where every turn is")
    return found[0]
