"""Grow: adds turns, in one statement and one round trip; never compacts, never asks a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgmem.domain.chain import digest
from pgmem.domain.message import StoredMessage, decode, encode
from pgmem.domain.model import Message, Turn
from pgmem.domain.tokens import message_text
from pgmem.errors import BranchAbandoned, DatabaseError, IdempotencyConflict, InvalidArgument, TooManyPinned
from pgmem.operations.place import Place, make_tree, read_tree
from pgmem.store import faults, rows
from pgmem.store.database import Row

MOST_PINNED = 32
"""Pinned turns that one tree shows at most."""

MOST_BATCH = 10_000
"""Turns of one batch at most."""

ANY_BRANCH = 2**63 - 1
"""What a caller has seen that has seen no branch: it takes the tree as it is."""


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn that is checked and not stored yet."""

    message: Message
    stored: StoredMessage
    pinned: bool
    tokens: int
    idempotency_key: str | None

    @property
    def digest(self) -> bytes:
        """What the hash chain takes of it."""
        kept = (self.stored.role, self.stored.content, self.stored.extra, self.stored.raw)
        return digest("turn", *kept, self.pinned, self.tokens, self.idempotency_key)


def new_turn(place: Place, message: Message, *, pinned: bool = False, idempotency_key: str | None = None) -> NewTurn:
    """Checks a message and measures it; what the caller does to it later changes nothing here.

    Raises:
        InvalidMessage: it cannot be stored.
    """
    stored = encode(message, max_bytes=place.database.settings.max_turn_bytes)
    return NewTurn(decode(stored), stored, pinned, place.count(message_text(message)), idempotency_key)


async def append(place: Place, turns: Sequence[NewTurn], *, seen_branch: int | None) -> list[Turn]:
    """Stores the turns in order, all or none, and gives them with their positions.

    Args:
        place: the tree; made if it is not there.
        turns: oldest first.
        seen_branch: the branch that the caller last saw; None if it has seen none.

    Raises:
        BranchAbandoned: the line that the caller last saw was left behind.
        IdempotencyConflict: a key is stored with another message, or only part of a batch is known.
        TooManyPinned: the tree would show more than 32 pinned turns.
    """
    if not turns:
        return []
    if len(turns) > MOST_BATCH:
        raise InvalidArgument(f"a batch of {len(turns)} turns: add at most {MOST_BATCH} at once")
    seen = ANY_BRANCH if seen_branch is None else seen_branch
    with place.database.one_deadline():
        return await _until_stored(place, turns, seen)


async def _until_stored(place: Place, turns: Sequence[NewTurn], seen: int) -> list[Turn]:
    one = len(turns) == 1 and not turns[0].pinned and turns[0].idempotency_key is None
    while True:
        found = await (_append_turn(place, turns[0], seen) if one else _append_turns(place, turns, seen))
        if found:
            return _answer(turns, found)
        await _explain(place, turns, seen)


async def _append_turn(place: Place, turn: NewTurn, seen: int) -> list[Row]:
    stored = turn.stored
    parameters = place.key | {
        "seen_branch": seen,
        "role": stored.role,
        "content": stored.content,
        "extra": stored.extra,
        "raw": stored.raw,
        "tokens": turn.tokens,
        "digest": turn.digest,
    }
    return await place.database.run(place.database.queries.append_turn, parameters)


async def _append_turns(place: Place, turns: Sequence[NewTurn], seen: int) -> list[Row]:
    keyed = all(turn.idempotency_key is not None for turn in turns)
    parameters: dict[str, Any] = place.key | {
        "seen_branch": seen,
        "roles": [turn.stored.role for turn in turns],
        "contents": [turn.stored.content for turn in turns],
        "extras": [turn.stored.extra for turn in turns],
        "raws": [turn.stored.raw for turn in turns],
        "pinned": [turn.pinned for turn in turns],
        "tokens": [turn.tokens for turn in turns],
        "idempotency_keys": [turn.idempotency_key for turn in turns],
        "digests": [turn.digest for turn in turns],
        "pins": sum(turn.pinned for turn in turns),
        "most_pinned": MOST_PINNED,
    }
    try:
        return await place.database.run(place.database.queries.append_turns, parameters, repeatable=keyed)
    except DatabaseError as fault:
        if not faults.violates(fault, faults.IDEMPOTENCY_KEY):
            raise
    # somebody stored the key between this statement's look-up and its insert: now it is found
    return await place.database.run(place.database.queries.append_turns, parameters, repeatable=keyed)


def _answer(turns: Sequence[NewTurn], found: Sequence[Row]) -> list[Turn]:
    known = {row["idempotency_key"]: rows.turn_of(row) for row in found if row.get("known")}
    if known:
        return [_same(turn, known) for turn in turns]
    return [
        Turn(row["no"], row["branch"], turn.message, turn.pinned, turn.tokens, turn.idempotency_key, row["created_at"])
        for turn, row in zip(turns, found, strict=True)
    ]


def _same(turn: NewTurn, known: dict[str | None, Turn]) -> Turn:
    key = turn.idempotency_key
    stored = known.get(key) if key is not None else None
    if stored is None:
        stored_key, other = next(iter(known.items()))
        raise IdempotencyConflict(
            f"part of this batch is stored already (key {stored_key!r:.100} is turn {other.no}) and part is not: "
            "nothing was written, send the batch as it was the first time",
            key=str(stored_key),
        )
    if stored.message != turn.message:
        raise IdempotencyConflict(
            f"the idempotency key {key!r:.100} is turn {stored.no} with another message: use a new key for a new message",
            key=str(key),
            no=stored.no,
        )
    return stored


async def _explain(place: Place, turns: Sequence[NewTurn], seen: int) -> None:
    """Why nothing was stored: raises, or makes it so that the next try may work."""
    tree = await read_tree(place)
    if tree is None:
        await make_tree(place)
        return
    if tree["open_branch"] > seen:
        raise BranchAbandoned(
            f"{place} is on branch {tree['branch']} and what branch {seen} showed was left behind: call context() and answer that",
            seen=seen,
            current=tree["branch"],
        )
    pins = sum(turn.pinned for turn in turns)
    if tree["pinned"] + pins > MOST_PINNED:
        raise TooManyPinned(
            f"{place} shows {tree['pinned']} pinned turns, {pins} more would be over {MOST_PINNED}: add it unpinned, or erase first"
        )
