"""A session: its own turns, and its namespaces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from pgmem.domain.model import Stage
from pgmem.domain.names import check_namespace
from pgmem.memory.namespace import Namespace
from pgmem.memory.shared import Shared
from pgmem.operations import sessions, stages
from pgmem.operations.sessions import ModelUsage

MAIN = "main"
"""The namespace of a session's own turns."""


class Session(Namespace):
    """One conversation; its own turns are those of the namespace ``main``."""

    def __init__(self, shared: Shared, found: sessions.SessionRow) -> None:
        super().__init__(shared, found, MAIN, branch=found.branch)
        self._namespaces: dict[str, Namespace] = {MAIN: self}

    @property
    def goal(self) -> str | None:
        """What the session is for."""
        return self._found.goal

    @property
    def metadata(self) -> Any:
        """The caller's own JSON, a new copy each time: to change it changes nothing that is stored."""
        # not copy.deepcopy(), which recurses in Python and gives up on JSON that is nested deeply
        return json.loads(json.dumps(self._found.metadata))

    @property
    def created_at(self) -> datetime:
        """When the session was made, by the database's clock."""
        return self._found.created_at

    def namespace(self, name: str) -> Namespace:
        """The handle of a namespace of this session; the same one each time.

        Args:
            name: a letter, then letters, digits, ``_``, ``-`` and ``.``; at most 128.

        Raises:
            InvalidArgument: the name is not of that form.
        """
        check_namespace(name)
        if name not in self._namespaces:
            self._namespaces[name] = Namespace(self._shared, self._found, name, branch=None)
        return self._namespaces[name]

    async def usage(self) -> list[ModelUsage]:
        """What the models that wrote and judged this session's summaries counted, one row a model."""
        return await sessions.usage(self._shared.database, self._found.session_id)

    def stages(self) -> AsyncIterator[Stage]:
        """What each flow over this session was left in, by flow and in order; pages itself."""
        return stages.listed(self._shared.database, self._found.session_id)

    async def namespaces(self) -> list[str]:
        """The names of the namespaces that hold something, in order; ``main`` always."""
        return await sessions.namespaces(self._shared.database, self._found.session_id)
