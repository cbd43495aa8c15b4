"""The context compiler: what a snapshot shows the model, bounded, valid for the providers and stable for their caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pgmem.domain import providers
from pgmem.domain.calls import match
from pgmem.domain.model import Hint, Message, Node, Role, Snapshot, Turn
from pgmem.domain.tokens import TokenCounter, content_text, message_text
from pgmem.domain.tool_clear import clear_body
from pgmem.errors import OverBudget

_Item = TypeVar("_Item")

HEADING = "Conversation memory for this step:\n"
"""How the memory message begins."""

HINTS_HEADING = "Prior attempts, left behind; do not repeat what failed:\n"
"""How the message with the hints begins."""

MARK = "[pgmem:"
"""How everything begins that pgmem says by itself; escaped in summaries, labels and notes, verbatim in verbatim turns."""

NO_RESULT_YET = f"{MARK} no result yet]"
INTERRUPTED = f"{MARK} interrupted, no result]"
NOT_SHOWN = f"{MARK} the result is not shown here]"
STRAY = f"{MARK} result of the tool call %s, which came late or without its call]\n"
SHORTENED = f"{MARK} shortened to its values]\n"
OMITTED = f"{MARK} summaries of turns before %d are not shown]"
LABELLED = f"{MARK} summary of turns %d to %d, shortened to its label: %s]"
UNLABELLED = f"{MARK} summary of turns %d to %d, not shown]"


@dataclass(frozen=True, slots=True)
class Context:
    """What the model is sent for its next step.

    Attributes:
        messages: OpenAI chat messages, in order.
        tokens: their size by the counter.
        nodes: the summaries that stand in the memory message, root first.
        hints: what attempts that were left behind teach, oldest first; empty when the budget had no room for them.
        branch: the branch that it shows.
        no: the newest fact that it knows; ``context(as_of=no)`` gives it again.
        through: the last turn that it shows verbatim; 0 when there is none.
        version: the tree's version that it shows; 0 with ``as_of``.
    """

    messages: list[dict[str, Any]]
    tokens: int
    nodes: tuple[Node, ...]
    hints: tuple[Hint, ...]
    branch: int
    no: int
    through: int
    version: int

    @property
    def memory_id(self) -> str | None:
        """A name for the memory message in its tree, the same until another node makes it; None when there is no memory."""
        return f"memory-{self.nodes[-1].no}" if self.nodes else None

    def to_anthropic(self) -> dict[str, Any]:
        """The same as ``system`` and ``messages`` of Anthropic's Messages API."""
        return providers.to_anthropic(self.messages)

    def to_responses(self) -> list[dict[str, Any]]:
        """The same as ``input`` items of OpenAI's Responses API."""
        return providers.to_responses(self.messages)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A context in its parts, so that a budget can shrink one after another."""

    system: tuple[dict[str, Any], ...]
    memory_role: Role
    summaries: tuple[str, ...]
    hints: tuple[Hint, ...]
    kept: tuple[dict[str, Any], ...]
    active: tuple[dict[str, Any], ...]

    def messages(self) -> list[dict[str, Any]]:
        memory = [{"role": self.memory_role.value, "content": HEADING + "\n\n".join(self.summaries)}] if self.summaries else []
        hints = [{"role": self.memory_role.value, "content": hints_text(self.hints)}] if self.hints else []
        return [*self.system, *memory, *hints, *self.kept, *self.active]


def compile_context(
    snapshot: Snapshot,
    *,
    count: TokenCounter,
    system: str | None = None,
    budget_tokens: int | None = None,
    memory_role: Role = Role.SYSTEM,
) -> Context:
    """Builds the context of a snapshot; the same arguments always give the same bytes.

    Args:
        snapshot: what the tree shows.
        count: tokens of a text.
        system: the caller's system prompt, never stored.
        budget_tokens: the most that the messages may hold, the system prompt included; None for no limit.
        memory_role: the role of the memory message.

    Raises:
        OverBudget: the smallest context is over the budget.
    """
    draft = _Draft(
        system=({"role": Role.SYSTEM.value, "content": system},) if system else (),
        memory_role=memory_role,
        summaries=_summaries(snapshot),
        hints=snapshot.hints,
        kept=tuple(render(snapshot.kept, missing=NOT_SHOWN)),
        active=tuple(render(snapshot.active, missing=INTERRUPTED)),
    )
    if budget_tokens is not None:
        draft = _shrunk(draft, snapshot, count, budget_tokens)
    messages = draft.messages()
    turns = snapshot.active or snapshot.kept
    return Context(
        messages=messages,
        tokens=_size(messages, count),
        nodes=snapshot.nodes,
        hints=draft.hints,
        branch=snapshot.tree.branch,
        no=snapshot.tree.last_no,
        through=turns[-1].no if turns else 0,
        version=snapshot.tree.version,
    )


def hints_text(hints: Sequence[Hint]) -> str:
    """The message with the hints: a line each, oldest first; further lines of a note are indented."""
    lines = (f"- {_left(hint)}: {escaped(hint.note)}" for hint in hints)
    # splitlines() knows every character that a reader may take for the end of a line
    return HINTS_HEADING + "\n".join("\n  ".join(line.splitlines()) for line in lines)


def _left(hint: Hint) -> str:
    # without turns it was only a summary that was given up: what was done still stands
    return "prior summary, given up" if hint.left_to is None else f"prior attempt, left at turn {hint.left_from}"


def memory_text(snapshot: Snapshot) -> str:
    """The memory that the context shows, without its heading and before escaping; empty when there is none."""
    omitted = [OMITTED % snapshot.nodes[0].first_no] if snapshot.more_nodes else []
    return "\n\n".join([*omitted, *(node.summary for node in snapshot.nodes)])


def memory_tokens(text: str, count: TokenCounter) -> int:
    """The size of a memory message that shows ``text`` alone."""
    return count(HEADING + escaped(text))


def escaped(text: str) -> str:
    """``text`` unable to pass for what pgmem says by itself; the same text always gives the same bytes."""
    for heading in (HEADING, HINTS_HEADING):
        text = text.replace(heading[:-2], heading[:-2] + "\\")
    return text.replace(MARK, "[pgmem\\:")


def _in_mark(text: str) -> str:
    """``text`` on one line, unable to end the mark that it stands in."""
    return " ".join(escaped(text).split()).replace("]", "\\]")


def render(turns: Sequence[Turn], *, missing: str) -> list[dict[str, Any]]:
    """The turns as messages that a chat API takes: each call followed by its results, stray results as marked notes.

    Args:
        turns: oldest first.
        missing: the stand-in result of a call that has none and is not open.
    """
    messages = [turn.message for turn in turns]
    calls = match(messages)
    answered = {index for answers in calls.results.values() for _, index in answers if index is not None}
    rendered = []
    for index, message in enumerate(messages):
        if index in calls.stray:
            rendered.append(_note(message))
        elif index not in answered:
            rendered.append(_verbatim(message))
            stand_in = NO_RESULT_YET if index in calls.open else missing
            rendered += (_result(messages, call_id, at, stand_in) for call_id, at in calls.results.get(index, ()))
    return rendered


def _summaries(snapshot: Snapshot) -> tuple[str, ...]:
    omitted = (OMITTED % snapshot.nodes[0].first_no,) if snapshot.more_nodes else ()
    return (*omitted, *(escaped(node.summary) for node in snapshot.nodes))


def _verbatim(message: Message) -> dict[str, Any]:
    # an empty list of calls is refused by the API that it came from
    return {key: value for key, value in message.items() if key != "tool_calls" or value}


def _note(message: Message) -> dict[str, Any]:
    body = escaped(content_text(message.get("content")))
    return {"role": Role.USER.value, "content": STRAY % _in_mark(message["tool_call_id"]) + body}


def _result(messages: Sequence[Message], call_id: str, at: int | None, stand_in: str) -> dict[str, Any]:
    if at is not None:
        return _verbatim(messages[at])
    return {"role": Role.TOOL.value, "tool_call_id": call_id, "content": stand_in}


def _size(messages: Sequence[Message], count: TokenCounter) -> int:
    return sum(count(message_text(message)) for message in messages)


def _shrunk(draft: _Draft, snapshot: Snapshot, count: TokenCounter, budget_tokens: int) -> _Draft:
    """The draft after as many steps as it needs: no hints, older summaries to labels, tool bodies to values, oldest first."""
    size = _size(draft.messages(), count)
    if size > budget_tokens and draft.hints:
        draft = replace(draft, hints=())
        size = _size(draft.messages(), count)
    for at, node in enumerate(snapshot.nodes[:-1], start=int(snapshot.more_nodes)):
        if size <= budget_tokens:
            return draft
        labelled = replace(draft, summaries=_replaced(draft.summaries, at, _label(node)))
        smaller = _size(labelled.messages(), count)
        if smaller < size:
            draft, size = labelled, smaller
    for at, message in enumerate(draft.active):
        if size <= budget_tokens:
            return draft
        if message["role"] == Role.TOOL:
            shorter = _shortened(message)
            saved = _size([message], count) - _size([shorter], count)
            if saved > 0:
                draft, size = replace(draft, active=_replaced(draft.active, at, shorter)), size - saved
    if size > budget_tokens:
        raise OverBudget(
            f"the context needs {size} tokens and budget_tokens is {budget_tokens}, {size - budget_tokens} too few: "
            "compact first, or raise the budget",
            needed_tokens=size,
            budget_tokens=budget_tokens,
        )
    return draft


def _label(node: Node) -> str:
    if node.label is None:
        return UNLABELLED % (node.first_no, node.last_no)
    return LABELLED % (node.first_no, node.last_no, _in_mark(node.label))


def _shortened(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": SHORTENED + clear_body(content_text(message.get("content")))}


def _replaced(items: tuple[_Item, ...], at: int, item: _Item) -> tuple[_Item, ...]:
    return (*items[:at], item, *items[at + 1 :])
