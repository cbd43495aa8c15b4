"""The words that a caller passes as text: namespaces, roles of the memory message, statuses."""

from __future__ import annotations

import re

from pgmem.domain.model import Role, TurnStatus
from pgmem.errors import InvalidArgument

NAMESPACE_FORM = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")


def shown(value: object) -> str:
    """``value`` as an error message shows it: 100 characters of its repr, where it has one."""
    try:
        return f"{value!r:.100}"
    except Exception:  # a foreign __repr__ may raise anything; that of an int of over 4,300 digits does
        return f"a {type(value).__name__} that cannot be shown"


def check_namespace(name: object) -> str:
    """``name``, if it can name a namespace.

    Raises:
        InvalidArgument: it is not a letter followed by up to 127 letters, digits, ``_``, ``-`` or ``.``.
    """
    if not isinstance(name, str) or not NAMESPACE_FORM.fullmatch(name):
        raise InvalidArgument(f"the namespace {shown(name)} is not a letter followed by up to 127 of letters, digits, _ - and .")
    return name


def check_role(name: object) -> Role:
    """``name`` as the role of the memory message.

    Raises:
        InvalidArgument: it is neither ``system`` nor ``user``.
    """
    if name not in (Role.SYSTEM, Role.USER):
        raise InvalidArgument(f"memory_role is {shown(name)}: use 'system' or 'user'")
    return Role(str(name))


def check_status(name: object) -> TurnStatus:
    """``name`` as a turn's status.

    Raises:
        InvalidArgument: it is none.
    """
    if name not in tuple(TurnStatus):
        raise InvalidArgument(f"status is {shown(name)}: use one of {', '.join(TurnStatus)}")
    return TurnStatus(str(name))
