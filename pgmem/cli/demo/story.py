"""What happens in the demo; every figure and every claim that it shows is found here, on the database."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

from pgmem import Branch, Context, Memory, Message, Namespace, Policy, Session, Turn
from pgmem.cli.conversations import Conversation, read
from pgmem.cli.drawing import Shape, read_shape
from pgmem.cli.figures import Figures
from pgmem.cli.player import Step, play
from pgmem.domain.context import HEADING
from pgmem.domain.model import Role

POLICY = Policy(threshold=10, keep_recent=4, max_summary_tokens=1500)
"""Small, so that a short conversation compacts several times."""

SCRATCH = "scratch"
ACTOR = "maren"

_MOST_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Moment:
    """What the model was sent before one of its messages.

    Attributes:
        call: which of its messages, from 1.
        context: what it was sent.
        full_tokens: what the whole history would have been, without the system prompt.
        sent_tokens: what was sent, without the system prompt.
    """

    call: int
    context: Context
    full_tokens: int
    sent_tokens: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """Values that a tool call needed long after they were read.

    Attributes:
        call: the name of the tool.
        values: what it quoted and the verbatim turns did not hold.
        kept: those of them that the memory message held.
        read_at: the turn that first held one of them.
        memory: the memory message.
    """

    call: str
    values: tuple[str, ...]
    kept: tuple[str, ...]
    read_at: int
    memory: str


@dataclass(frozen=True, slots=True)
class Erasure:
    """A namespace before and after Erase."""

    before: Context
    branch: Branch
    after: Context
    turns: tuple[Turn, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class Story:
    """All that the demo tells.

    Attributes:
        key: the session's key.
        figures: what the conversation took.
        moments: one for each of the model's messages.
        shape: the tree at the end.
        recalled: values that came out of the memory.
        rebuilt: the context of a moment in the middle, built again at the end.
        rebuilt_equal: whether it has the same bytes.
        erasure: what happened in the second namespace.
        facts: how many the tree of the conversation has.
        broken: the first fact that the hash chain does not hold; None when it holds all.
    """

    key: str
    figures: Figures
    moments: tuple[Moment, ...]
    shape: Shape
    recalled: Recalled
    rebuilt: Moment
    rebuilt_equal: bool
    erasure: Erasure
    facts: int
    broken: int | None

    def shown(self) -> tuple[Moment, Moment, Moment]:
        """Three moments: before anything was compressed, in the middle, the last."""
        whole = [moment for moment in self.moments if not moment.context.nodes]
        return whole[-1], self.rebuilt, self.moments[-1]


async def live(memory: Memory, key: str) -> Story:
    """Plays the conversations that ship with pgmem in a new session."""
    conversation, side_track = conversations()
    session, figures = await memory.session(key, goal="INC-4471: labels do not print"), Figures()
    moments = tuple([moment async for moment in _moments(session, conversation, figures)])
    middle = moments[len(moments) * 3 // 5]
    rebuilt = await session.context(conversation.system, as_of=middle.context.no)
    return Story(
        key=key,
        figures=figures,
        moments=moments,
        shape=await read_shape(session),
        recalled=await _recalled(session, conversation, moments),
        rebuilt=middle,
        rebuilt_equal=_bytes_of(rebuilt) == _bytes_of(middle.context),
        erasure=await _erasure(session.namespace(SCRATCH), side_track),
        facts=(await session.context()).no,
        broken=await session.verify(),
    )


def conversations() -> tuple[Conversation, Conversation]:
    """The main conversation and the side track that is erased, as they ship."""
    with (resources.files("pgmem.cli.demo") / "conversation.jsonl").open("rb") as file:
        main, side_track = (found for found in read(file, max_turn_bytes=_MOST_MESSAGE_BYTES) if isinstance(found, Conversation))
    return main, side_track


async def _moments(session: Session, conversation: Conversation, figures: Figures) -> AsyncIterator[Moment]:
    call = 0
    async for step in play(session, conversation, figures=figures):
        call += 1
        yield _moment(step, call)


def _moment(step: Step, call: int) -> Moment:
    assert step.context is not None, "without a budget there always is a context"  # noqa: S101
    return Moment(call, step.context, step.full_tokens, step.sent_tokens)


async def _recalled(session: Session, conversation: Conversation, moments: tuple[Moment, ...]) -> Recalled:
    """What the last tool call quotes of turns that were not sent verbatim any more."""
    asked = [message for _, message in conversation.turns() if message["role"] == Role.ASSISTANT]
    at = max(index for index, message in enumerate(asked) if message.get("tool_calls"))
    context = moments[at].context
    memory_text = "\n".join(message["content"] for message in context.messages if _is_memory(message))
    verbatim = "\n".join(_text_of(message) for message in context.messages if not _is_memory(message))
    before = [turn async for turn in session.turns() if turn.no <= context.no]
    read_at = {value: _first_turn(before, value) for value in _quoted(asked[at]) if value not in verbatim}
    return Recalled(
        call=asked[at]["tool_calls"][0]["function"]["name"],
        values=tuple(read_at),
        kept=tuple(value for value in read_at if value in memory_text),
        read_at=min(read_at.values()),
        memory=memory_text,
    )


def _first_turn(turns: Sequence[Turn], value: str) -> int:
    return next(turn.no for turn in turns if value in _text_of(turn.message))


def _is_memory(message: Message) -> bool:
    return str(message.get("content")).startswith(HEADING)


def _text_of(message: Message) -> str:
    return json.dumps(message, ensure_ascii=False)


def _quoted(message: Message) -> Iterator[str]:
    """The texts of lists in the arguments of a message's tool calls."""
    for call in message["tool_calls"]:
        for argument in json.loads(call["function"]["arguments"]).values():
            if isinstance(argument, list):
                yield from argument


async def _erasure(scratch: Namespace, side_track: Conversation) -> Erasure:
    await scratch.add_turns([message for _, message in side_track.turns()])
    before = await scratch.context()
    branch = await scratch.erase(actor=ACTOR)
    after = await scratch.context()
    turns = tuple([turn async for turn in scratch.turns()])
    return Erasure(before, branch, after, turns, await read_shape(scratch))


def _bytes_of(context: Context) -> bytes:
    return json.dumps(context.messages).encode()
