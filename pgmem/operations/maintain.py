"""Maintain: a judge says whether a summary may stand; a failed node leaves the path in the verdict's own commit."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

from pgmem.domain.asks import Judge, Judgement, JudgeRequest
from pgmem.domain.chain import digest
from pgmem.domain.context import memory_text
from pgmem.domain.events import Judged, JudgementFailed
from pgmem.domain.model import ON_PATH, Cause, Node, Outcome, Verdict
from pgmem.errors import JudgeFailed, StaleTree
from pgmem.llm.judges import judged
from pgmem.operations.place import COMMIT_ATTEMPTS, Place, advice, find_node, read_node, read_snapshot, why
from pgmem.store import rows
from pgmem.store.database import Row

FIRST_ATTEMPTS = 50
"""How often a verdict that must be the first is committed again after the tree got other facts: a talking agent adds many."""


class Maintained(NamedTuple):
    """The verdict on a node that a judge was asked of.

    Attributes:
        verdict: the one that was stored; where somebody else had stored one meanwhile, and a second was not to be, the newest.
        is_own: whether this call stored it; otherwise whoever did also does what follows from a fail.
    """

    verdict: Verdict
    is_own: bool


async def maintain(
    place: Place, node: int | None, *, judge: Judge, goal: str | None, deadline_seconds: float, unless_judged: bool = False
) -> Maintained | None:
    """Asks the judge of a node and stores its verdict.

    Args:
        place: the tree.
        node: the node; None for the newest pending one, whose verdict is stored only if it is the first.
        judge: asked once, while no connection is held.
        goal: what the session is for.
        deadline_seconds: how long the judge may take.
        unless_judged: whether a verdict that somebody else stored meanwhile is given, in place of storing a second one.

    Returns:
        The verdict, and whose it is; None when no node was named and none is pending.

    Raises:
        NodeNotFound: the tree has no such node.
        JudgeFailed: the judge gave no verdict; the node stays as it was.
        StaleTree: the tree moved on under every one of a few commits.
    """
    named = await find_node(place, place.database.queries.find_pending) if node is None else node
    if named is None:
        return None
    row = await read_node(place, named)
    first = unless_judged or node is None  # chosen because nobody had judged it
    if first and row["outcome"] is not None:
        return Maintained(await _stored(place, named), is_own=False)
    found = rows.judged_node_of(row)
    request = await _request(place, found, goal)
    judgement = await _judgement(place, judge, request, deadline_seconds)
    verdict = await (_commit_first(place, named, judgement) if first else _commit(place, row, judgement))
    if verdict is None:
        return Maintained(await _stored(place, named), is_own=False)
    place.emit(Judged(place.session, place.namespace, found.no, verdict.no, verdict.outcome, verdict.reopened))
    return Maintained(verdict, is_own=True)


async def _request(place: Place, node: Node, goal: str | None) -> JudgeRequest:
    # the tree as it was when the node was made: its memory went in, its active turns were covered
    before = await read_snapshot(place, as_of=node.no - 1)
    covered = tuple(turn for turn in before.active if node.first_no <= turn.no <= node.last_no)
    return JudgeRequest(node=node, turns=covered, memory=memory_text(before), goal=goal, count=place.count)


async def _judgement(place: Place, judge: Judge, request: JudgeRequest, deadline_seconds: float) -> Judgement:
    try:
        async with asyncio.timeout(deadline_seconds) as deadline:
            return await judged(judge, request)
    except Exception as fault:
        place.emit(JudgementFailed(place.session, place.namespace, request.node.no, type(fault).__name__))
        raise JudgeFailed(
            f"the judge of node {request.node.no} gave no verdict ({why(fault, deadline, deadline_seconds)}): the node stays "
            f"{request.node.status}, {advice(fault, 'call maintain() again')}",
            node=request.node.no,
        ) from fault


async def _commit_first(place: Place, node: int, judgement: Judgement) -> Verdict | None:
    """Stores the verdict if it is the node's first; None when there is one."""
    for _ in range(FIRST_ATTEMPTS):
        row = await read_node(place, node)
        if row["outcome"] is not None:
            return None
        found = await _once(place, row, judgement, last_no=row["tree_last_no"])
        if found:
            return _verdict(node, judgement, found[0])
    raise StaleTree(
        f"{place} moved on under {FIRST_ATTEMPTS} commits of the verdict on node {node}: nothing was written, try again"
    )


async def _stored(place: Place, node: int) -> Verdict:
    found = await place.database.run(place.database.queries.read_verdict, place.key | {"node": node}, repeatable=True)
    return rows.verdict_of(found[0])


async def _once(place: Place, row: Row, judgement: Judgement, *, last_no: int | None) -> list[Row]:
    fails_on_path = judgement.outcome == Outcome.FAIL and row["status"] in ON_PATH
    commit = _commit_fail if fails_on_path else _commit_verdict
    return await commit(place, row, judgement, last_no)


async def _commit(place: Place, row: Row, judgement: Judgement) -> Verdict:
    for _ in range(COMMIT_ATTEMPTS):
        found = await _once(place, row, judgement, last_no=None)
        if found:
            return _verdict(row["no"], judgement, found[0])
        # only the commit is tried again; what the judge said stands
        row = await read_node(place, row["no"])
    raise StaleTree(
        f"{place} moved on under {COMMIT_ATTEMPTS} commits of the verdict on node {row['no']}: nothing was written, "
        "call maintain() again"
    )


async def _commit_verdict(place: Place, row: Row, judgement: Judgement, last_no: int | None) -> list[Row]:
    parameters = place.key | _values(row["no"], judgement) | {"last_no": last_no}
    return await place.database.run(place.database.queries.commit_verdict, parameters)


async def _commit_fail(place: Place, row: Row, judgement: Judgement, last_no: int | None) -> list[Row]:
    note = judgement.reason
    parameters = place.key | _values(row["no"], judgement)
    parameters |= {
        "branch": row["tree_branch"],
        "version": row["version"],
        "last_no": last_no,
        "base": row["parent"],
        "boundary": row["parent_last_no"],
        "left_from": row["first_no"],
        "note": note,
        "branch_digest": digest("branch", Cause.REOPEN.value, note, None),
    }
    return await place.database.run(place.database.queries.commit_fail, parameters)


def _values(node: int, judgement: Judgement) -> dict[str, object]:
    missing = json.dumps(list(judgement.missing), ensure_ascii=False) if judgement.missing else None
    usage = judgement.usage.to_json() if judgement.usage else None
    said = (judgement.outcome.value, judgement.reason, missing, judgement.judge, judgement.model, judgement.prompt_version, usage)
    names = ("outcome", "reason", "missing", "judge", "model", "prompt_version", "usage")
    return {"node": node, "digest": digest("verdict", node, *said), **dict(zip(names, said, strict=True))}


def _verdict(node: int, judgement: Judgement, committed: Row) -> Verdict:
    return Verdict(
        no=committed["no"],
        node=node,
        outcome=judgement.outcome,
        reason=judgement.reason,
        missing=tuple(judgement.missing),
        judge=judgement.judge,
        model=judgement.model,
        prompt_version=judgement.prompt_version,
        created_at=committed["created_at"],
        reopened=committed.get("branch"),
    )
