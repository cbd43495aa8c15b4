"""Settings and policies: a wrong value is named, with the rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgmem import settings
from pgmem.domain.policy import Policy
from pgmem.errors import InvalidArgument, InvalidSettings


def test_an_empty_environment_gives_the_defaults():
    assert settings.read({}) == settings.Settings()


def test_every_variable_is_read():
    found = settings.read(
        {
            "PGMEM_DATABASE_URL": "postgresql://x/y",
            "PGMEM_HOME": "/tmp/h",
            "PGMEM_PG_BIN": "/tmp/b",
            "PGMEM_SCHEMA": "mem",
            "PGMEM_POOL_SIZE": "3",
            "PGMEM_TIMEOUT_SECONDS": "2.5",
            "PGMEM_MODEL_TIMEOUT_SECONDS": "90",
            "PGMEM_PREPARED_STATEMENTS": "off",
            "PGMEM_ALLOW_UNSAFE": "yes",
            "PGMEM_MAX_TURN_BYTES": "1000",
        }
    )

    assert found == settings.Settings("postgresql://x/y", Path("/tmp/h"), Path("/tmp/b"), "mem", 3, 2.5, 90, False, True, 1000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PGMEM_SCHEMA", 'x"; drop'),
        ("PGMEM_SCHEMA", "Upper"),
        ("PGMEM_SCHEMA", "x" * 64),
        ("PGMEM_POOL_SIZE", "0"),
        ("PGMEM_POOL_SIZE", "many"),
        ("PGMEM_POOL_SIZE", "2.5"),
        ("PGMEM_TIMEOUT_SECONDS", "-1"),
        ("PGMEM_TIMEOUT_SECONDS", "nan"),
        ("PGMEM_TIMEOUT_SECONDS", "inf"),
        ("PGMEM_PREPARED_STATEMENTS", "maybe"),
        ("PGMEM_MAX_TURN_BYTES", "1e12"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(name, value):
    with pytest.raises(InvalidSettings, match=name):
        settings.read({name: value})


@pytest.mark.parametrize("field", ["threshold", "keep_recent", "max_summary_tokens"])
@pytest.mark.parametrize("value", [True, 8.0, "8", None, -1, 10**30, float("nan")])
def test_a_policy_takes_integers_in_range_only(field, value):
    with pytest.raises(InvalidArgument, match=field):
        Policy(**{field: value})


@pytest.mark.parametrize("strategy", ["magic", "given", "", None, 1])
def test_a_policy_takes_a_strategy_that_makes_a_summary_by_itself(strategy):
    with pytest.raises(InvalidArgument, match="strategy"):
        Policy(strategy=strategy)


def test_keep_recent_must_leave_something_to_cover():
    with pytest.raises(InvalidArgument, match="keep_recent is 8 and threshold 8"):
        Policy(threshold=8, keep_recent=8)
