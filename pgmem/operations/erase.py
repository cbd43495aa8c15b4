"""Erase: leaves all turns so far behind; every one stays in the table."""

from __future__ import annotations

from pgmem.domain.chain import digest
from pgmem.domain.events import Erased
from pgmem.domain.model import Branch, Cause
from pgmem.operations.place import Place, make_tree
from pgmem.store import rows


async def erase(place: Place, *, keep_summary: bool, actor: str | None) -> Branch:
    """Starts a branch that shows nothing from before, or only the head's memory.

    Args:
        place: the tree; made if it is not there.
        keep_summary: whether the head stays.
        actor: who asked for it, for the audit.
    """
    parameters = place.key | {
        "keep_summary": keep_summary,
        "actor": actor,
        "digest": digest("branch", Cause.ERASE.value, None, actor),
    }
    with place.database.one_deadline():
        found = await place.database.run(place.database.queries.commit_erase, parameters)
        if not found:
            await make_tree(place)
            found = await place.database.run(place.database.queries.commit_erase, parameters)
    branch = rows.branch_of(found[0])
    place.emit(Erased(place.session, place.namespace, branch.no, branch.base))
    return branch


async def count_left(place: Place, branch: int) -> int:
    """How many turns a branch left behind when it began; those that one before it had left are not counted again."""
    parameters = place.key | {"branch": branch}
    found = await place.database.run(place.database.queries.count_left, parameters, repeatable=True)
    return int(found[0]["turns"])
