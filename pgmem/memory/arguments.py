"""Checks of what callers pass, each with the value and the rule in its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgmem.domain.model import Node, Turn
from pgmem.domain.names import shown
from pgmem.domain.plans import check_text
from pgmem.domain.policy import check_number
from pgmem.errors import InvalidArgument

MOST_NO = 2**63 - 1


def position(name: str, value: object) -> int | None:
    """``value``, a fact or its position, as a position."""
    if value is None:
        return None
    no = value.no if isinstance(value, Node | Turn) else value
    return check_number(name, no, least=1, most=MOST_NO)


def message_of(role: str, content: Any, fields: Mapping[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The chat message of ``add_turn``'s arguments."""
    if extra is not None and not isinstance(extra, dict):
        raise InvalidArgument(f"extra is of type {type(extra).__name__}: give a dict")
    message = {"role": role, "content": content} | {name: value for name, value in fields.items() if value is not None}
    twice = sorted(str(name) for name in (extra or {}) if name in ("role", "content", *fields))
    if twice:
        raise InvalidArgument(f"extra holds {', '.join(twice)}: give it as an argument of its own")
    return message | dict(extra or {})


def check_key(key: str | None) -> None:
    """Nothing, when ``key`` can name a turn."""
    if key is not None:
        check_text("idempotency_key", key, most=255)


def check_list(name: str, value: object) -> None:
    """Nothing, when ``value`` is a list or a tuple."""
    if not isinstance(value, list | tuple):
        raise InvalidArgument(f"{name} is of type {type(value).__name__}: give a list")


def flag(name: str, value: object) -> bool:
    """``value``, when it is True or False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} is {shown(value)}: it must be True or False")
    return value
