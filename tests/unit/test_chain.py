"""The hash chain: the documented bytes, and Postgres gives the same."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import psycopg
import pytest

from pgmem.domain.chain import Link, Mark, digest, follow, start

NOW = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)


def test_a_digest_is_of_netstrings_with_a_dash_for_null():
    assert digest("turn", "é", None, True, 12) == hashlib.sha256(b"4:turn2:\xc3\xa9-4:true2:12").digest()


def test_fields_that_touch_do_not_give_the_same_digest():
    assert digest("a", "bc") != digest("ab", "c")
    assert digest("a", None) != digest("a", "")
    assert digest("a", None) != digest("a", "-")


def link(mark: Mark, **changes) -> Link:
    numbers = [1, 0, (NOW - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)]
    chain = hashlib.sha256(mark.chain + digest("turn", "x") + b"".join(number.to_bytes(8, "big") for number in numbers)).digest()
    return replace(Link(1, ("turn", "x"), NOW, (), 0, chain), **changes)


def test_a_fact_as_it_was_stored_is_followed():
    mark = start(7, "main")

    assert follow(mark, link(mark)) == Mark(1, 0, link(mark).chain)


def test_the_time_zone_in_which_a_time_is_read_does_not_matter():
    mark = start(7, "main")

    assert follow(mark, link(mark, created_at=NOW.astimezone(timezone(timedelta(hours=-5))))) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"no": 2},
        {"fields": ("turn", "y")},
        {"created_at": NOW + timedelta(microseconds=1)},
        {"chain": bytes(32)},
        {"moves": (0, 1, 1)},
        {"branch": 1},
    ],
)
def test_a_fact_that_was_changed_is_not_followed(changes):
    mark = start(7, "main")

    assert follow(mark, link(mark, **changes)) is None


def test_postgres_starts_a_chain_with_the_same_bytes(server):
    with psycopg.connect(server.url) as connection:
        (value,) = connection.execute("select sha256(int8send(7) || convert_to('main', 'UTF8'))").fetchone()

    assert start(7, "main").chain == value
