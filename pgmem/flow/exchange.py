"""An exchange: one user message up to the end of the reply, in whatever steps that takes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pgmem.domain.context import Context
from pgmem.domain.message import check_json
from pgmem.domain.model import Turn
from pgmem.domain.names import shown
from pgmem.errors import FlowNotReady, InvalidArgument
from pgmem.flow import rules
from pgmem.flow.step import Step, namespace_of
from pgmem.memory import Namespace
from pgmem.memory.arguments import flag

if TYPE_CHECKING:
    from pgmem.flow.flow import Flow

log = logging.getLogger("pgmem")

VALIDATED = "input validated"
"""What a tool call is answered with when its input is taken and the model goes on."""

DIRECT = "answered directly"
"""What the calls are answered with whose handler answered the user itself."""


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
        self._open: dict[str, str] = {}
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
        self._open |= {call["id"]: self._here.name for call in made}
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
        """
        self._check()
        called_in = self._open.get(call_id) if isinstance(call_id, str) else None
        if called_in is None:
            log.warning(
                "tool_result(%s): no call of this exchange is open under that id (%s); it is stored, and shown as a late result",
                shown(call_id),
                ", ".join(map(repr, self._open)) or "none is",
            )
        handle = self._here if called_in is None else self.flow._handle(called_in)
        turn = await handle.add_turn("tool", _text(content), tool_call_id=call_id, extra=extra)
        self._open.pop(call_id, None)
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
        target, current = rules.check_target(step, self.flow.steps), type(self.flow.step)
        given = self._given(state)
        if target is current and not flag("reenter", reenter):
            log.debug("already in %s: neither on_exit nor on_enter runs; go(..., reenter=True) runs them", target.__name__)
            self.flow.state.update(given)
        else:
            await self.flow._go(target, given)
            if message is not None and not self.flow.state and target in self.flow._erased:
                log.warning(
                    "%s erases its memory on entry, and was entered with a message and no state: a message carries nothing over "
                    "that the next prompt is sure to show; give go(..., state={...}) and put it into %s.prompt",
                    target.__name__,
                    target.__name__,
                )
        if message is not None:
            await self._here.add_turn("user", message)

    async def stay(self, feedback: str = VALIDATED, *, call_id: str | None = None) -> Turn:
        """Answers an open tool call and stays in the step: the model goes on in the same exchange.

        Args:
            feedback: what the model is told.
            call_id: which call; may be left out when only one is open.

        Raises:
            FlowNotReady: no tool call of this exchange is open, or several are and none is named.
        """
        self._check()
        if call_id is None and len(self._open) == 1:
            (call_id,) = self._open
        if call_id not in self._open:
            found = f"open are {', '.join(map(repr, self._open))}: name one, call_id=" if self._open else "none is open"
            raise FlowNotReady(f"stay() answers a tool call of this exchange, and {found}; use it where a call is handled")
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
        """After a direct answer: a result for every call that has none."""
        if not self._answered_directly:
            return
        for namespace in dict.fromkeys(self._open.values()):
            calls = [call_id for call_id, called_in in self._open.items() if called_in == namespace]
            results = [{"role": "tool", "tool_call_id": call_id, "content": DIRECT} for call_id in calls]
            await self.flow._handle(namespace).add_turns(results)

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
