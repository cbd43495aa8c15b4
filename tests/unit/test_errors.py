"""The error tree as values."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator

import pytest

from pgmem import errors

SAMPLES = {
    "path": "$.a",
    "node": 7,
    "seen": 1,
    "current": 2,
    "key": "k",
    "no": 3,
    "needed_tokens": 9,
    "budget_tokens": 5,
    "job_id": 11,
    "status": "failed",
}


def tree(root: type[errors.PgmemError] = errors.PgmemError) -> Iterator[type[errors.PgmemError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from tree(kind)


def made(kind: type[errors.PgmemError]) -> errors.PgmemError:
    parameters = inspect.signature(kind.__init__).parameters
    found = kind("what was asked", **{name: value for name, value in SAMPLES.items() if name in parameters})
    found.add_note("a note")
    return found


def through_pickle(error: errors.PgmemError) -> errors.PgmemError:
    copied: errors.PgmemError = pickle.loads(pickle.dumps(error))
    return copied


@pytest.mark.parametrize("again", [through_pickle, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", dict.fromkeys(tree()), ids=lambda kind: kind.__name__)
def test_every_error_can_be_pickled_and_copied_with_all_that_it_holds(
    kind: type[errors.PgmemError], again: Callable[[errors.PgmemError], errors.PgmemError]
) -> None:
    error = made(kind)

    copied = again(error)

    assert type(copied) is kind
    assert (str(copied), copied.args, vars(copied)) == (str(error), error.args, vars(error))
