"""An exchange: one user message up to the end of the reply, in whatever steps that takes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pgmem.domain.context import Context
from pgmem.domain.message import check_json
from pgmem.domain.model import Turn
from pgmem.domain.names import shown
from pgmem.errors import FlowNotReady, InvalidArgument
from pgmem.flow import rules
from pgmem.flow.step import Step, namespace_of
from pgmem.memory import Namespace
from pgmem.memory.arguments import flag
from pgmem.operations.grow import new_turn

if TYPE_CHECKING:
    from pgmem.flow.flow import Flow

log = logging.getLogger("pgmem")

VALIDATED = "input validated"
"""What a tool call is answered with when its input is taken and the model goes on."""

DIRECT = "answered directly"
"""What the calls are answered with whose handler answered the user itself."""

MOVED = "the conversation went on in another step"
"""What the calls are answered with that were made in a step which the flow has left."""


class Call(NamedTuple):
    """A tool call that has no result yet: where it was made, and its id."""

    namespace: str
    call_id: str


class Exchange:
    """What ``async with flow.exchange(...) as x`` gives; every message is stored at once, in the namespace of the step it is for.

    Attributes:
        flow: the flow.
        answered: whether the user has an answer: a reply without tool calls, or a direct one.
        context: what the newest ``request()`` was made of; None before the first.
    """

    def __init__(self, flow: Flow, content: Any, idempotency_key: str | None) -> None:
        self.flow = flow
        self.answered = False
        self.context: Context | None = None
        self._message = (content, idempotency_key)
        self._answered_directly = False
        self._ended: bool | None = None

    async def __aenter__(self) -> Self:
        """Begins it and stores the user's message."""
        if self._ended is not None:
            raise FlowNotReady("this exchange has begun before: begin another, `async with flow.exchange(...) as x`")
        await self.flow._enter_exchange(self)
        content, key = self._message
        try:
            await self._here.add_turn("user", content, idempotency_key=key)
        except BaseException as error:
            await self.flow._leave_exchange(error)
            raise
        self._ended = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Saves step and state and compacts what is due; takes step and state back when the body raised."""
        self._ended = True
        try:
            if error is None:
                await self._answer_what_is_open()
        except BaseException as fault:
            await self.flow._leave_exchange(fault)
            raise
        await self.flow._leave_exchange(error)

    @property
    def state(self) -> dict[str, Any]:
        """The flow's state, which you may change; saved when the exchange ends."""
        return self.flow.state

    async def request(self, *, budget_tokens: int | None = None) -> list[dict[str, Any]]:
        """What the model should be sent now: the step's prompt, its memory, its verbatim tail; in one round trip.

        Args:
            budget_tokens: the most that all messages may hold, as in ``context()``.

        Raises:
            InvalidArgument: the prompt is no text.
            OverBudget: what must be shown is over the budget.
        """
        self._check()
        step = self.flow.step
        prompt = step.prompt(dict(self.flow.state))
        if not isinstance(prompt, str):
            raise InvalidArgument(f"{type(step).__name__}.prompt gave a {type(prompt).__name__}: it must give a text")
        self.context = await self._here.context(prompt, budget_tokens=budget_tokens)
        if not any(message["role"] == "user" for message in self.context.messages):
            log.warning(
                "the request of %s has no user message, which some providers refuse: give go(..., message=...)", type(step).__name__
            )
        return self.context.messages

    async def reply(
        self,
        content: Any = None,
        *,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Stores the model's message.

        Args:
            content: its text or parts, or the whole message as a dict; may be None when it calls tools.
            tool_calls: its calls, as OpenAI gives them.
            extra: further fields of the message, kept and shown as they are.

        Raises:
            InvalidMessage: it cannot be stored.
            BranchAbandoned: the namespace was erased or revised since the request; ``request()`` again and answer that.
        """
        self._check()
        whole = _whole(content)
        if whole is None:
            turn = await self._here.add_turn("assistant", content, tool_calls=tool_calls or None, extra=extra)
        elif tool_calls is None and extra is None:
            (turn,) = await self._here.add_turns([whole])
        else:
            raise InvalidArgument("give either the whole message, or its content, tool_calls and extra")
        made = turn.message.get("tool_calls") or ()
        self.flow._open |= {Call(self._here.name, call["id"]): None for call in made}
        self.answered = self.answered or not made
        return turn

    async def tool_result(self, call_id: str, content: Any, *, extra: Mapping[str, Any] | None = None) -> Turn:
        """Stores what a tool gave, in the namespace where it was called, whichever step the flow is in now.

        Args:
            call_id: the call.
            content: text, or a list of OpenAI content parts; any other JSON becomes its text.
            extra: further fields of the message.

        Raises:
            InvalidMessage: it cannot be stored.
            FlowNotReady: no step of the flow shows such a call: it was never made, or was erased.
        """
        self._check()
        call = await self._call(call_id)
        turn = await self.flow._handle(call.namespace).add_turn("tool", _text(content), tool_call_id=call_id, extra=extra)
        self.flow._open.pop(call, None)
        return turn

    async def go(
        self, step: type[Step], *, state: Mapping[str, Any] | None = None, message: Any = None, reenter: bool = False
    ) -> None:
        """Moves the flow to a step: ``on_exit`` of the one it is in, then ``on_enter`` of the new one.

        To the step that it is in already, it runs neither, unless ``reenter``.

        Args:
            step: the class of the step.
            state: put into the flow's state, key by key, before ``on_enter``: it carries over what the next step needs.
            message: a user message for the new step's namespace, stored after ``on_enter``.
            reenter: whether the hooks run even when the flow is in that step.

        Raises:
            InvalidArgument: it is no step of the flow, or the state is not JSON.
        """
        self._check()
        target, current, again = rules.check_target(step, self.flow.steps), type(self.flow.step), flag("reenter", reenter)
        given, there = self._given(state), self.flow._handle(namespace_of(target))
        if message is not None:
            new_turn(there._place, {"role": "user", "content": message})  # raises before anything has moved
        if target is current and not again:
            log.debug("already in %s: neither on_exit nor on_enter runs; go(..., reenter=True) runs them", target.__name__)
            self.flow.state.update(given)
        else:
            await self.flow._go(target, given)
        if message is None:
            return
        if not self.flow.state and target in self.flow._erased:
            log.warning(
                "%s erases its memory on entry, and was entered with a message and no state: a message carries nothing over "
                "that the next prompt is sure to show; give go(..., state={...}) and put it into %s.prompt",
                target.__name__,
                target.__name__,
            )
        await there.add_turn("user", message)

    async def stay(self, feedback: str = VALIDATED, *, call_id: str | None = None) -> Turn:
        """Answers an open tool call and stays in the step: the model goes on in the same exchange.

        Args:
            feedback: what the model is told.
            call_id: which call; may be left out when only one is open.

        Raises:
            FlowNotReady: no tool call of this exchange is open, or several are and none is named.
        """
        self._check()
        waiting = [call.call_id for call in self.flow._open]
        if call_id is None and len(waiting) == 1:
            (call_id,) = waiting
        if call_id not in waiting:
            found = f"open are {', '.join(map(repr, waiting))}: name one, call_id=" if waiting else "none is open"
            raise FlowNotReady(f"stay() answers a tool call, and {found}; use it where a call is handled")
        return await self.tool_result(str(call_id), feedback)

    async def direct(self, content: Any) -> Turn:
        """Answers the user with this, word for word, without another call of the model; kept in the history.

        Tool calls that are still open when the exchange ends are answered too, so that the history has no call without a result.

        Args:
            content: a text; any other JSON becomes its text.

        Raises:
            InvalidMessage: it is no JSON.
        """
        self._check()
        turn = await self._here.add_turn("assistant", content if isinstance(content, str) else _json_text(content))
        self.answered = self._answered_directly = True
        return turn

    async def _answer_what_is_open(self) -> None:
        """A result for every call that has none where the flow is not any more, or whose handler answered the user itself."""
        here = self._here.name
        left = [call for call in self.flow._open if self._answered_directly or call.namespace != here]
        for namespace in dict.fromkeys(call.namespace for call in left):
            said = DIRECT if self._answered_directly else MOVED
            ids = [call.call_id for call in left if call.namespace == namespace]
            results = [{"role": "tool", "tool_call_id": call_id, "content": said} for call_id in ids]
            await self.flow._handle(namespace).add_turns(results)
        for call in left:
            self.flow._open.pop(call, None)

    async def _call(self, call_id: object) -> Call:
        """The call of that id: one that waits, here rather than elsewhere; else one that a step still shows."""
        waiting = [call for call in self.flow._open if call.call_id == call_id]
        here = self._here.name
        if waiting:
            return next((call for call in waiting if call.namespace == here), waiting[-1])
        for namespace in dict.fromkeys((here, *map(namespace_of, self.flow.steps))):
            if await self._shows(namespace, call_id):
                return Call(namespace, str(call_id))
        raise FlowNotReady(
            f"no step of this flow shows a tool call {shown(call_id)}: it was never made, or was erased, and its result with it"
        )

    async def _shows(self, namespace: str, call_id: object) -> bool:
        # a handle of its own: looking is not answering
        shown_there = (await self.flow.session.namespace(namespace).another().context()).messages
        return any(call["id"] == call_id for message in shown_there for call in message.get("tool_calls") or ())

    @property
    def _here(self) -> Namespace:
        return self.flow._handle(namespace_of(type(self.flow.step)))

    def _given(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        if state is None:
            return {}
        if not isinstance(state, dict):
            raise InvalidArgument(f"state is of type {type(state).__name__}: give a dict, which is put into the flow's state")
        check_json(state, name="state")
        # a copy: what the caller does to it later changes nothing here
        return dict(json.loads(json.dumps(state)))

    def _check(self) -> None:
        if self._ended is not False:
            state = "has ended: begin another" if self._ended else "has not begun: begin it"
            raise FlowNotReady(f"this exchange {state}, `async with flow.exchange(...) as x`")


def _whole(content: Any) -> dict[str, Any] | None:
    """``content``, when it is a whole assistant message."""
    if not isinstance(content, dict):
        return None
    if content.get("role") != "assistant":
        raise InvalidArgument(
            f"the message's role is {shown(content.get('role'))}: reply() stores what the model said, an assistant's"
        )
    return content


def _text(content: Any) -> Any:
    """What a tool gave as a message's content: text and content parts as they are, any other JSON as its text."""
    parts = isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)
    return content if isinstance(content, str) or (parts and content) else _json_text(content)


def _json_text(content: Any) -> str:
    check_json(content, name="content")
    return json.dumps(content, ensure_ascii=False)
