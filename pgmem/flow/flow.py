"""A flow: steps over one session; which one it is in and its state are saved when an exchange ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pgmem.domain.message import check_json
from pgmem.domain.plans import check_text
from pgmem.errors import FlowNotReady, InvalidArgument, PgmemError, StaleFlow, UnknownStep
from pgmem.flow import rules
from pgmem.flow.exchange import Call, Exchange
from pgmem.flow.stage_memory import StageMemory, nearest
from pgmem.flow.step import Step, namespace_of
from pgmem.memory import Namespace, Session
from pgmem.memory.arguments import flag
from pgmem.operations import stages
from pgmem.operations.stages import FlowPlace, Left

log = logging.getLogger("pgmem")

CLAIM_SECONDS = 10.0
"""How old a claim is at least that another start takes over."""

CLAIM_LOOK_SECONDS = 0.05
"""How long to wait before looking again whether the first step is entered."""

MOST_ACTOR = 256


class Flow:
    """A conversation in stages; make a subclass of it, and an object of that for each request or connection.

    A session may have several flows, of different names. One object takes one exchange at a time. Of two exchanges of the same
    flow at the same time, in whatever processes, the second that ends keeps its messages, and its step and state are refused with
    ``StaleFlow``.

    Attributes:
        steps: the classes of its steps; a new session starts in the first.
        name: what its step and state are stored under; the class's name if None.
        session: the session that it is over.

    Example:
        >>> class ExploreStep(Step):
        ...     namespace = "hotel-explore"
        ...
        ...     def prompt(self, state):
        ...         return "Help the guest to find a hotel."
        >>> class HotelFlow(Flow):
        ...     steps = [ExploreStep]
        ...
        ...     def __init__(self, session):
        ...         super().__init__(session)
        ...         self.memory.set_summary_config(strategy="tool_clear").enable_summary("hotel-explore")
        >>> async def answer(session):
        ...     flow = await HotelFlow(session).start()
        ...     async with flow.exchange("which have a pool?") as x:
        ...         messages = await x.request()
        ...         await x.reply("The Miramar has one.")
        ...     return messages
        >>> async def main():
        ...     async with pgmem.open() as memory:
        ...         return await answer(await memory.session("a guest"))
        >>> import asyncio, pgmem
        >>> [message["role"] for message in asyncio.run(main())]
        ['system', 'user']
    """

    steps: ClassVar[Sequence[type[Step]]] = ()
    name: ClassVar[str | None] = None

    def __init__(self, session: Session) -> None:
        """Makes ``self.memory``; call it first in an ``__init__`` of your own."""
        if not isinstance(session, Session):
            raise InvalidArgument(f"session is of type {type(session).__name__}: give what `await memory.session(key)` gave")
        self.session = session
        name = check_text("Flow.name", type(self).__name__ if self.name is None else self.name, most=rules.MOST_NAME)
        self._memory = StageMemory(session._shared.models)
        self._place = FlowPlace(session._shared.database, session._found.session_id, session.key, name)
        self._made: dict[type[Step], Step] = {}
        self._current: type[Step] | None = None
        self._state: dict[str, Any] = {}
        self._stage = Left(0, "", "{}")
        self._entered: list[str] = []
        self._erased: set[type[Step]] = set()
        self._handles: dict[str, Namespace] = {}
        self._open: dict[Call, None] = {}
        self._claimed = self._moving = False
        self._exchange: Exchange | None = None
        self._before: tuple[type[Step] | None, str] = (None, "{}")

    def __repr__(self) -> str:
        current = getattr(self, "_current", None)
        return f"<{type(self).__name__} {f'in {current.__name__}' if current else 'not started'}>"

    @property
    def memory(self) -> StageMemory:
        """How its namespaces are summarised.

        Raises:
            FlowNotReady: ``super().__init__(session)`` was not called yet.
        """
        try:
            return self._memory
        except AttributeError:
            raise FlowNotReady(
                f"{type(self).__name__} has no memory yet: call super().__init__(session) before self.memory"
            ) from None

    @property
    def step(self) -> Step:
        """The step that it is in."""
        return self._made[self._started()]

    @property
    def state(self) -> dict[str, Any]:
        """Its state, a JSON object that you may change; saved when an exchange ends."""
        if not hasattr(self, "_state"):
            raise FlowNotReady(f"{type(self).__name__} has no state yet: call super().__init__(session) first")
        return self._state

    async def start(self) -> Self:
        """Goes on in the step that the flow was left in, or begins in the first one.

        A new flow runs ``on_enter`` of the first step and is saved; one that goes on runs ``on_restore``.

        Returns:
            The flow itself.

        Raises:
            InvalidArgument: the steps, a namespace or the summary model are not as they must be.
            UnknownStep: it was left in a step that is not in ``steps`` any more.
            FlowNotReady: it was started before, or ``super().__init__(session)`` was not called.
        """
        memory = self.memory
        if self._current is not None:
            raise FlowNotReady(f"{self._place} is started already: make another {type(self).__name__} to start it again")
        rules.check_steps(type(self).__name__, self.steps)
        memory._closed = True
        shared = self.session._shared
        written_elsewhere = shared.queued and memory._config.background
        has_model = written_elsewhere or memory._summariser is not None or shared.summariser is not None
        rules.check_enabled(memory._enabled, self.steps, strategy=memory._config.strategy, has_model=has_model)
        stage = await self._settled()
        if stage is None:
            stage = await self._begin()
        if stage is not None:
            await self._resume(stage)
        return self

    def exchange(self, content: Any, *, idempotency_key: str | None = None) -> Exchange:
        """One user message up to the end of the reply; use it in ``async with``.

        Entering looks whether somebody else moved the flow meanwhile, goes on from there if so, and stores the message. Leaving
        saves step and state if they changed, then compacts each enabled namespace that is due, once: one round trip at most when
        nothing is due. A summary that cannot be made is logged and left for the next exchange. A body that raises saves no step
        and no state; its messages are stored.

        Args:
            content: the user's message: text, or a list of OpenAI content parts.
            idempotency_key: your name for this one message, as in ``add_turn``; the replies have none.

        Raises:
            FlowNotReady: the flow is not started, or an exchange is under way.
            StaleFlow: on leaving: somebody else saved the flow since the exchange began.
            InvalidArgument: on leaving: the state is not JSON.
        """
        return Exchange(self, content, idempotency_key)

    async def _enter_exchange(self, exchange: Exchange) -> None:
        self._started()
        if self._exchange is not None:
            raise FlowNotReady(f"{self._place} has an exchange under way: end it first, or make another flow object")
        self._exchange = exchange
        try:
            await self._catch_up()
            self._before = self._started(), self._state_text()
        except BaseException:
            self._exchange = None
            raise
        # the user's message is an answer to whatever is there now, so each exchange begins with handles that have seen nothing
        self._handles = {}

    async def _leave_exchange(self, error: BaseException | None) -> None:
        self._exchange = None
        if error is not None:
            self._take_back()
            return
        try:
            due = await self._keep(dict.fromkeys(self._memory._enabled, self._memory._config.min_messages - 1))
        except BaseException:
            self._take_back()
            raise
        for namespace in due:
            await self._compact(namespace)

    def _take_back(self) -> None:
        """Puts step and state to what they were when the exchange began."""
        self._current, self._entered = self._before[0], []
        self._set_state(self._before[1])

    async def _catch_up(self) -> None:
        """Takes over what somebody else saved since this object read or saved the flow."""
        stage = await stages.read(self._place)
        if stage is not None and stage.no != self._stage.no:
            await self._resume(stage)

    async def _settled(self) -> Left | None:
        """What the flow was left in; None once it is this object that begins it.

        Who begins a flow claims it first, so that of many that start at once one enters the first step. A claim that is old is
        of somebody who died, or whose ``on_enter`` raised: it is taken over.
        """
        while True:
            stage = await stages.read(self._place)
            if stage is None:
                self._claimed = await stages.claim(self._place, self.steps[0].__name__)
                if self._claimed:
                    self._stage = Left(1, self.steps[0].__name__, "{}")
                    return None
                continue
            if not stage.is_claim:
                return stage
            if self._claimed or stage.age_seconds >= CLAIM_SECONDS:
                self._stage = stage
                return None
            await asyncio.sleep(CLAIM_LOOK_SECONDS)

    async def _begin(self) -> Left | None:
        """Enters the first step and saves that; what somebody else saved meanwhile, if so."""
        try:
            await self._enter(self.steps[0])
            await self._keep({})
        except StaleFlow:
            return await stages.read(self._place)
        except BaseException:
            self._current, self._entered = None, []
            self._set_state("{}")
            raise
        return None

    async def _resume(self, stage: Left) -> None:
        names = tuple(step.__name__ for step in self.steps)
        if stage.step not in names:
            raise UnknownStep(
                f"{self._place} was left in {stage.step!r:.100}, which is no step of it any more"
                f"{nearest(stage.step, names)}: it has {', '.join(names)}; keep the class's name, or put a step of that name back"
            )
        current = self.steps[names.index(stage.step)]
        before = self._stage, self._current, stages.to_json(self._state)
        self._stage, self._current, self._entered = stage, current, []
        self._set_state(stage.state)
        try:
            await self._of(current).on_restore()
        except BaseException:
            self._stage, self._current = before[:2]
            self._set_state(before[2])
            raise

    async def _go(self, step: type[Step], state: dict[str, Any]) -> None:
        """Leaves the current step for ``step``; all of it or nothing."""
        if self._moving:
            raise FlowNotReady("the flow is between two steps: go() is for the exchange's body, not for on_exit and on_enter")
        before, state_before, entered = self._started(), self._state_text(), list(self._entered)
        self._moving = True
        try:
            await self._of(before).on_exit()
            self._state.update(state)
            await self._enter(step)
        except BaseException:
            self._current, self._entered = before, entered
            self._set_state(state_before)
            raise
        finally:
            self._moving = False

    async def _enter(self, step: type[Step]) -> None:
        self._current = step
        self._entered.append(step.__name__)
        self._erased.discard(step)
        await self._of(step).on_enter()

    async def _keep(self, thresholds: dict[str, int]) -> tuple[str, ...]:
        """Saves step and state if they changed; gives the namespaces that reached their threshold."""
        state = self._state_text()
        left = Left(self._stage.no + 1, self._started().__name__, state, tuple(self._entered))
        changed = bool(self._entered) or state != self._stage.state
        due = await stages.save(self._place, left, changed=changed, thresholds=thresholds)
        if changed:
            self._stage, self._entered = left, []
        return due

    async def _compact(self, namespace: str) -> None:
        """Compacts a namespace, or starts to; whatever hinders it, the exchange goes on."""
        policy = self._memory._config.policy(self.session._shared.policy)
        handle = self.session.namespace(namespace).another(policy=policy, summary_model=self._memory._summariser)
        try:
            if self._memory._config.background:
                await handle.compact_async(strategy=policy.strategy)
            else:
                await handle.compact()
        except PgmemError as error:
            log.warning("Memory compaction skipped: %s", error)

    async def _erase(self, step: type[Step], *, keep_summary: bool, shared: bool, actor: str | None) -> int:
        others = rules.sharing(step, self.steps)
        if not flag("shared", shared) and others:
            raise InvalidArgument(
                f"{step.__name__} shares the namespace {namespace_of(step)!r} with {', '.join(others)}, who would lose theirs: "
                "erase_memory(shared=True) if that is meant, else give the step a namespace of its own"
            )
        handle = self._handle(namespace_of(step))
        who = f"{self._place.flow}/{step.__name__}"[:MOST_ACTOR] if actor is None else actor
        branch = await handle.erase(keep_summary=keep_summary, actor=who)
        self._erased.add(step)
        # what a tool gives for a call that was erased is not for the clean context
        self._open = {call: None for call in self._open if call.namespace != handle.name}
        return await handle.count_left(branch)

    def _handle(self, namespace: str) -> Namespace:
        """The exchange's handle of a namespace."""
        if namespace not in self._handles:
            self._handles[namespace] = self.session.namespace(namespace).another()
        return self._handles[namespace]

    def _of(self, step: type[Step]) -> Step:
        """The object of a step's class; one for each flow object."""
        if step not in self._made:
            made = step(self)
            if getattr(made, "flow", None) is not self:
                raise InvalidArgument(f"{step.__name__}.__init__ does not call super().__init__(flow): add it")
            self._made[step] = made
        return self._made[step]

    def _started(self) -> type[Step]:
        current: type[Step] | None = getattr(self, "_current", None)
        if current is None:
            raise FlowNotReady(f"{type(self).__name__} is not started: `await {type(self).__name__}(session).start()` first")
        return current

    def _state_text(self) -> str:
        check_json(self._state, name="state")
        text = stages.to_json(self._state)
        most = self._place.database.settings.max_turn_bytes
        if len(text.encode()) > most:
            raise InvalidArgument(f"the state has over {most} bytes, as much as one message may: keep large things elsewhere")
        return text

    def _set_state(self, text: str) -> None:
        """Puts the state to a stored one; the dict stays the same, whoever holds it."""
        self._state.clear()
        self._state.update(stages.from_json(text))
