"""A step: one stage of a flow, with its prompt, its namespace and what happens when it is entered and left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pgmem.domain.names import check_namespace

if TYPE_CHECKING:
    from pgmem.flow.flow import Flow


class Step:
    """One stage; make a subclass of it and name it in ``Flow.steps``.

    Attributes:
        namespace: where its history is kept; by default the class's name, which no other step shares. Steps that name the same
            one share a conversation.
        flow: the flow that it belongs to.

    Raises:
        InvalidArgument: when the class is made: ``namespace`` cannot name a namespace.

    Example:
        >>> class Explore(Step):
        ...     namespace = "hotel-explore"
        ...
        ...     def prompt(self, state):
        ...         return "Help the guest to find a hotel."
    """

    namespace: ClassVar[str | None] = None

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def __init_subclass__(cls, **options: Any) -> None:
        """Checks the namespace where it is named."""
        super().__init_subclass__(**options)
        if cls.__dict__.get("namespace") is not None:
            check_namespace(cls.namespace)

    def __repr__(self) -> str:
        return f"<step {type(self).__name__}, namespace {namespace_of(type(self))!r}>"

    @property
    def state(self) -> dict[str, Any]:
        """The flow's state: a JSON object that you may change; it is saved when the exchange ends."""
        return self.flow.state

    def prompt(self, state: Mapping[str, Any]) -> str:
        """The system prompt, asked for anew before every call of the model; never stored, never summarised."""
        raise NotImplementedError(f"{type(self).__name__} has no prompt: give it `def prompt(self, state): return ...`")

    async def on_enter(self) -> None:
        """Called whenever the step is entered from another one, and when a new session starts in it."""

    async def on_exit(self) -> None:
        """Called whenever the step is left for another one."""

    async def on_restore(self) -> None:
        """Called in place of ``on_enter`` when a flow starts in the step that it was in before."""

    async def erase_memory(self, *, keep_summary: bool = False, shared: bool = False, actor: str | None = None) -> int:
        """Leaves all turns of the step's namespace behind: the model sees none of them, and every one stays in the table.

        Args:
            keep_summary: whether the namespace's summary stays in sight.
            shared: whether to go on although other steps share the namespace: their history goes with it.
            actor: who asked for it, for the audit; the flow and the step by default.

        Returns:
            How many turns it left behind.

        Raises:
            InvalidArgument: other steps share the namespace, and ``shared`` is not True.
        """
        return await self.flow._erase(type(self), keep_summary=keep_summary, shared=shared, actor=actor)


def namespace_of(step: type[Step]) -> str:
    """The namespace of a step's class: the one that it names, or its own name."""
    return step.__name__ if step.namespace is None else step.namespace
