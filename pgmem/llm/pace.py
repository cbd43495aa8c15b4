"""How often and how long one question is asked: a number of attempts, a pause between them, a deadline over all."""

from __future__ import annotations

import asyncio
import random

FIRST_PAUSE_SECONDS = 0.5
"""The longest pause after the first failed attempt; it doubles with each, and between half and all of it is waited."""

LONGEST_PAUSE_SECONDS = 20.0


class Pace:
    """The attempts of one question.

    Args:
        attempts: how many there may be.
        attempt_seconds: the most that one may take. The deadline over all is ``attempts`` times that, and the longest pauses of
            our own.
    """

    def __init__(self, attempts: int, attempt_seconds: float) -> None:
        self.left = attempts
        self._spent = 0
        self._attempt_seconds = attempt_seconds
        pauses = sum(_longest(spent) for spent in range(1, attempts))
        self._until = asyncio.get_running_loop().time() + attempts * attempt_seconds + pauses

    @property
    def seconds(self) -> float:
        """The most that a request made now may take."""
        return max(0.0, min(self._attempt_seconds, self._remaining))

    def spend(self) -> None:
        """Counts an attempt."""
        self.left -= 1
        self._spent += 1

    async def pause(self, asked_seconds: float | None) -> bool:
        """Waits before the next attempt; False at once when there is none, or no time for it.

        Args:
            asked_seconds: how long the server asks to wait; None for a pause of our own.
        """
        seconds = self._own_pause() if asked_seconds is None else asked_seconds
        if self.left <= 0 or seconds >= self._remaining:
            return False
        await asyncio.sleep(seconds)
        return True

    @property
    def _remaining(self) -> float:
        return self._until - asyncio.get_running_loop().time()

    def _own_pause(self) -> float:
        return _longest(self._spent) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret depends on it


def _longest(spent: int) -> float:
    """The longest pause of our own after so many attempts."""
    return float(min(FIRST_PAUSE_SECONDS * 2 ** min(spent - 1, 30), LONGEST_PAUSE_SECONDS))
