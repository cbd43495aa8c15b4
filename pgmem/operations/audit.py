"""The audit's reads: all that was ever stored, in order, in pages of short statements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from pgmem.domain import chain
from pgmem.domain.model import Branch, Node, Turn, TurnStatus, Verdict
from pgmem.operations.place import Place, read_snapshot, read_tree
from pgmem.store import rows
from pgmem.store.database import Row
from pgmem.store.queries import Statement

PAGE = 500

_Fact = TypeVar("_Fact", Turn, Node, Branch, Verdict)


async def path(place: Place) -> list[Node]:
    """The active path, root first, with each node's status."""
    found = await place.database.run(place.database.queries.list_path, place.key, repeatable=True)
    return [rows.node_of(row) for row in found]


def turns(place: Place, *, after: int, status: TurnStatus | None) -> AsyncIterator[Turn]:
    """All turns past ``after``, or those of one status, in order; each page is a statement of its own."""
    return _pages(place, place.database.queries.list_turns, rows.turn_of, after=after, status=status and status.value)


def nodes(place: Place, *, after: int = 0) -> AsyncIterator[Node]:
    """All nodes ever made past ``after``, in order, with their status."""
    return _pages(place, place.database.queries.list_nodes, rows.node_of, after=after)


def branches(place: Place) -> AsyncIterator[Branch]:
    """Every time the head moved back, in order."""
    return _pages(place, place.database.queries.list_branches, rows.branch_of)


def verdicts(place: Place, *, after: int = 0) -> AsyncIterator[Verdict]:
    """Everything that a judge said past ``after``, in order."""
    return _pages(place, place.database.queries.list_verdicts, rows.verdict_of, after=after)


async def verify(place: Place) -> int | None:
    """Follows the hash chain over all facts and compares what follows from them with the tree row.

    Returns:
        None when all is as it was stored; else the position of the first fact that is not, or 0 when only the tree row is not.
    """
    tree = await read_tree(place)
    if tree is None:
        return None
    mark = chain.start(place.session_id, place.namespace)
    while mark.no < tree["last_no"]:
        page = await _facts(place, mark.no)
        for link in page:
            followed = chain.follow(mark, link)
            if followed is None:
                return mark.no + 1
            mark = followed
            if mark.no == tree["last_no"]:
                break
        if not page:
            return mark.no + 1
    if mark.chain != bytes(tree["chain"]):
        return mark.no
    return await _beyond(place, mark.no) if await _pointers_follow(place, tree) else 0


async def _facts(place: Place, after: int) -> list[chain.Link]:
    parameters = place.key | {"after": after, "most": PAGE}
    return [rows.link_of(row) for row in await place.database.run(place.database.queries.read_facts, parameters, repeatable=True)]


async def _pointers_follow(place: Place, tree: Row) -> bool:
    """Whether head, boundary and branch are what the facts up to the newest one give."""
    derived = (await read_snapshot(place, as_of=tree["last_no"])).tree
    return (derived.branch, derived.head, derived.boundary) == (tree["branch"], tree["head"], tree["boundary"])


async def _beyond(place: Place, last_no: int) -> int | None:
    """The first fact past the tree's newest one, which no statement of ours can have added."""
    found = await _facts(place, last_no)
    tree = await read_tree(place)
    return next((link.no for link in found if tree is not None and link.no > tree["last_no"]), None)


async def _pages(
    place: Place,
    statement: Statement,
    convert: Callable[[Row], _Fact],
    *,
    after: int = 0,
    status: str | None = None,
) -> AsyncIterator[_Fact]:
    while True:
        parameters = place.key | {"after": after, "status": status, "most": PAGE}
        page = await place.database.run(statement, parameters, repeatable=True)
        for row in page:
            yield convert(row)
        if len(page) < PAGE:
            return
        after = page[-1]["no"]
