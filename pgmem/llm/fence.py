"""The fence: data in a prompt between lines with a random mark, so that no text can end its own block."""

from __future__ import annotations

import json
import re
import secrets

from pgmem.domain.message import storable

EMPTY = "(empty)"
"""What a block without a text shows."""

_MARK_BYTES = 8
_MOST_ATTRIBUTE_CHARACTERS = 100
_NOT_IN_A_LINE = re.compile("[<>\x7f-\x9f\u2028\u2029]")
_BREAK = "\u00b7"


class Fence:
    """The blocks of one prompt; every call has a fence of its own, so nobody who wrote the data knew its mark.

    Args:
        mark: the mark, for tests; 16 random hexadecimal digits by default.

    Example:
        >>> print(Fence("77aa").block("turn", "hi <</turn 77aa>>", no=1))
        <<turn 77aa no="1">>
        hi <</turn 7·7aa>>
        <</turn 77aa>>
    """

    __slots__ = ("_inside", "mark")

    def __init__(self, mark: str | None = None) -> None:
        self.mark = secrets.token_hex(_MARK_BYTES) if mark is None else mark
        # a look-ahead, so that overlapping occurrences are all broken
        self._inside = re.compile(f"({re.escape(self.mark[0])})(?={re.escape(self.mark[1:])})", re.IGNORECASE)

    def block(self, name: str, text: str, /, **attributes: object) -> str:
        """``text`` as a block: an opening line with the attributes, the text, a closing line.

        Args:
            name: what the block holds, one word of ours.
            text: any text; the mark in it is broken, what no JSON request can hold becomes U+FFFD.
            attributes: values of any origin, each shown as one JSON text of at most 100 characters; None is left out.
        """
        shown = "".join(f" {key}={self._value(value)}" for key, value in attributes.items() if value is not None)
        return f"<<{name} {self.mark}{shown}>>\n{self._escaped(storable(text)) or EMPTY}\n{self.closing(name)}"

    def closing(self, name: str) -> str:
        """The line that ends a block of that name."""
        return f"<</{name} {self.mark}>>"

    def _value(self, value: object) -> str:
        text = storable(str(value))
        if len(text) > _MOST_ATTRIBUTE_CHARACTERS:
            text = text[:_MOST_ATTRIBUTE_CHARACTERS] + "..."
        line = _NOT_IN_A_LINE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
        return self._escaped(line)

    def _escaped(self, text: str) -> str:
        return self._inside.sub(rf"\1{_BREAK}", text)
