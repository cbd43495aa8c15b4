"""Policies: a tree's compaction settings as a fact, for who compacts it elsewhere."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from pgmem.domain.chain import digest
from pgmem.domain.policy import Policy
from pgmem.errors import InvalidArgument
from pgmem.operations.place import Place, make_tree


@dataclass(frozen=True, slots=True)
class Kept:
    """Settings that a tree holds as a fact.

    Attributes:
        no: the fact.
        last_no: the tree's newest fact.
        due: whether as many turns are active as the settings say.
    """

    no: int
    last_no: int
    due: bool


async def keep(place: Place, policy: Policy, *, retry: bool = True) -> Kept:
    """Adds the settings as a fact, unless the tree's newest ones are the same.

    Args:
        place: the tree; made if it is not there.
        policy: the settings.
        retry: whether a summary that fails is tried again; otherwise its turns are to stay raw.
    """
    text = json.dumps(asdict(policy) | {"retry": retry})
    parameters = place.key | {"policy": text, "threshold": policy.threshold, "digest": digest("policy", text)}
    with place.database.one_deadline():
        found = await place.database.run(place.database.queries.commit_policy, parameters)
        if not found:
            await make_tree(place)
            found = await place.database.run(place.database.queries.commit_policy, parameters)
    return Kept(**found[0])


async def read(place: Place, no: int) -> Policy | None:
    """The settings of the fact at that position; None when it is no policy.

    Raises:
        InvalidArgument: they cannot be any.
    """
    found = await place.database.run(place.database.queries.read_policy, place.key | {"no": no}, repeatable=True)
    if not found:
        return None
    stored = json.loads(found[0]["policy"])
    if not isinstance(stored, dict):
        raise InvalidArgument(f"{place} has settings at {no} that are no JSON object: compact_async() keeps new ones")
    # a newer release may have stored more
    return Policy(**{field.name: stored[field.name] for field in fields(Policy) if field.name in stored})
