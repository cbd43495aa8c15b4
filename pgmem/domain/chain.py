"""The hash chain over a tree's facts: an edit, a swap, a hole or an undone fact shows.

``chain`` of a fact is::

    sha256(chain before || digest || int8(no) || int8(branch) || int8(microseconds since 2000-01-01 UTC of created_at)
           [for a branch: || int8(base or 0) || int8(left_from) || int8(left_to or 0)])

with big-endian eight-byte numbers, which are Postgres's ``int8send`` and ``timestamptz_send``. Before the first fact it is
``sha256(int8(session_id) || namespace in UTF-8)``. ``branch`` is the tree's branch when the fact was added; a branch's own is
its ``no``.

``digest`` is the sha256 of the fact's fields, each as a netstring without the comma (length in bytes, ``:``, UTF-8) and ``-``
for null, numbers in decimal and booleans as ``true`` or ``false``:

- turn: ``turn``, role, content, extra, raw, pinned, tokens, idempotency_key
- node: ``node``, parent, first_no, last_no, kind, label, strategy, summary, cumulative, tokens, source_tokens, model,
  prompt_version, usage
- verdict: ``verdict``, node, outcome, reason, missing, judge, model, prompt_version, usage
- branch: ``branch``, cause, note, actor
- policy: ``policy``, policy

JSON columns count as the text that is stored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

Field = str | int | bool | None


@dataclass(frozen=True, slots=True)
class Link:
    """A fact as the chain sees it.

    Attributes:
        no: its position.
        fields: what its digest is made of, its kind first.
        created_at: the database's time.
        moves: for a branch base, left_from and left_to; empty for any other fact.
        branch: the branch that its row names; None where a row names none.
        chain: the stored value after it, 32 bytes.
    """

    no: int
    fields: tuple[Field, ...]
    created_at: datetime
    moves: tuple[int, ...]
    branch: int | None
    chain: bytes

    @property
    def is_branch(self) -> bool:
        """Whether the tree's branch is this fact from here on."""
        return self.fields[0] == "branch"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a chain is checked.

    Attributes:
        no: the last position that is right.
        branch: the branch there.
        chain: the value there.
    """

    no: int
    branch: int
    chain: bytes


def digest(*fields: Field) -> bytes:
    """The sha256 of a fact's fields, its kind first.

    Example:
        >>> digest("policy", None).hex()[:16]
        'f5fdb59ab31bfb8e'
    """
    return hashlib.sha256(b"".join(map(_netstring, fields))).digest()


def start(session_id: int, namespace: str) -> Mark:
    """A tree's chain before its first fact."""
    return Mark(0, 0, hashlib.sha256(_int8(session_id) + namespace.encode()).digest())


def follow(mark: Mark, link: Link) -> Mark | None:
    """The mark after ``link``; None when the fact is not what was chained."""
    branch = link.no if link.is_branch else mark.branch
    numbers = (link.no, branch, (link.created_at - EPOCH) // timedelta(microseconds=1), *link.moves)
    chain = hashlib.sha256(mark.chain + digest(*link.fields) + b"".join(map(_int8, numbers))).digest()
    if link.no != mark.no + 1 or chain != link.chain or link.branch not in (None, branch):
        return None
    return Mark(link.no, branch, chain)


def _netstring(field: Field) -> bytes:
    if field is None:
        return b"-"
    text = str(field).lower() if isinstance(field, bool) else str(field)
    body = text.encode("utf-8")
    return b"%d:%s" % (len(body), body)


def _int8(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)
