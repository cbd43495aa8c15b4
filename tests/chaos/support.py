"""What these tests share: how long they are, and a look at the queue behind the API."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pgmem
from tests.concurrency.support import rows
from tests.support.talk import assistant, user

LONG = bool(os.environ.get("PGMEM_CHAOS"))
"""Whether the long versions run: ``make chaos``."""

POLICY = pgmem.Policy(threshold=6, keep_recent=2)

QUIET_SECONDS = 0.3
"""For workers that find soon that a tree was forgotten."""


def talk(count: int = 8) -> list[dict[str, Any]]:
    """Turns that are long enough for an echo of them to be seen as one."""
    words = "says several words, and some more after them."
    return [(user, assistant)[number % 2](f"turn {number} {words}") for number in range(count)]


async def job_statuses(owner) -> Counter[str]:
    found = await rows(owner, "select status::text as status, count(*) as n from pgmem_queue.procrastinate_jobs group by 1")
    return Counter({row["status"]: row["n"] for row in found})


async def open_jobs(owner) -> int:
    statuses = await job_statuses(owner)
    return statuses["todo"] + statuses["doing"]
