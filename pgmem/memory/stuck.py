"""Warns when a tree finds no place to cut, time after time: its context grows."""

from __future__ import annotations

import logging

from pgmem.domain.events import CompactionCommitted, CompactionSkipped, Erased, Event, Revised, SkipReason

log = logging.getLogger("pgmem")

IN_A_ROW = 3
MOST_TREES = 10_000
"""Trees whose skips are counted at once; the one that was skipped longest ago is forgotten first."""


class Stuck:
    """How often in a row each tree was skipped for want of a safe cut; trees that are not stuck take no room."""

    def __init__(self) -> None:
        self._skips: dict[tuple[str, str], int] = {}

    def see(self, event: Event) -> None:
        """Counts the event, and warns at every third skip in a row."""
        tree = event.session, event.namespace
        if isinstance(event, CompactionCommitted | Erased | Revised):
            self._skips.pop(tree, None)
        if not isinstance(event, CompactionSkipped) or event.reason is not SkipReason.NO_SAFE_CUT:
            return
        skips = self._skips[tree] = self._skips.pop(tree, 0) + 1
        if len(self._skips) > MOST_TREES:
            del self._skips[next(iter(self._skips))]
        if skips % IN_A_ROW == 0:
            log.warning(
                "nothing could be compacted in session %r, namespace %r, %d times in a row, and its context grows: every place to "
                "cut its %d active turns would part a tool call from its results, or the call is still open; store what it "
                "gave, or a user turn, which ends the wait",
                event.session,
                event.namespace,
                skips,
                event.active,
            )
