"""The windows that a model has not seen yet; cut smaller when the server says that one is too large."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from pgmem.domain.asks import Usage
from pgmem.domain.model import Turn
from pgmem.domain.tokens import TokenCounter
from pgmem.errors import InvalidArgument
from pgmem.llm.asker import PromptTooLarge
from pgmem.llm.pieces import Piece, pieces, windows

Window = tuple[Piece, ...]
"""What one prompt shows of the memory and the turns."""

LEAST_ROOM_TOKENS = 512
"""The smallest window: the opening line of a block alone may take 300."""

_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class Unsent:
    """Windows that wait, in order.

    Attributes:
        windows: what is still to be sent.
        room_tokens: the most that a window may hold.
        count: tokens of a text.
        usage: what the server counted for windows that then were cut.
    """

    windows: list[Window]
    room_tokens: int
    count: TokenCounter
    usage: Usage = field(default_factory=Usage)

    @classmethod
    async def of(cls, memory: str, turns: Sequence[Turn], *, room_tokens: int, count: TokenCounter) -> Self:
        """The memory and the turns, in windows.

        Raises:
            InvalidArgument: there are no turns, or no room for any.
        """
        if not turns:
            raise InvalidArgument("there are no turns: a model is asked about one at least")
        if room_tokens < LEAST_ROOM_TOKENS:
            lacking = LEAST_ROOM_TOKENS - room_tokens
            raise InvalidArgument(f"max_input_tokens leaves no room for turns: it must be at least {lacking} larger")

        def cut() -> list[Window]:
            return windows(pieces(memory, turns, count), most_tokens=room_tokens, count=count)

        # off the event loop: counting megabytes takes a while
        return cls(await asyncio.to_thread(cut), room_tokens, count)

    async def ask(self, question: Callable[[Window], Awaitable[_Answer]]) -> _Answer:
        """The answer to the first window, which then is sent.

        Raises:
            PromptTooLarge: the server takes not even the smallest window.
        """
        while True:
            try:
                answer = await question(self.windows[0])
            except PromptTooLarge as error:
                self.usage += error.usage
                smaller = min(self.room_tokens, self._size(self.windows[0])) // 2
                if smaller < LEAST_ROOM_TOKENS:
                    raise
                await self._cut(smaller)
            else:
                del self.windows[0]
                return answer

    def _size(self, window: Window) -> int:
        return sum(piece.source_tokens for piece in window)

    async def _cut(self, room_tokens: int) -> None:
        waiting = [piece for window in self.windows for piece in window]
        self.windows = await asyncio.to_thread(windows, waiting, most_tokens=room_tokens, count=self.count)
        self.room_tokens = room_tokens
