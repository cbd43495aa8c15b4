"""The demo's second session: a model that writes and judges, and fails once. It is scripted, behind a real HTTP endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources

import pgmem
from pgmem import Branch, Context, Message, Node, Session, Verdict
from pgmem.cli.conversations import Conversation, read
from pgmem.cli.drawing import Shape, read_shape
from pgmem.testing import ScriptedModel, ScriptedRequest, failing, passing, summary

GOAL = "FRN-1187: whatever serves requests stays off the profile lean"
ACTOR = "maren"
NOTE = (
    "The check went in with mode=block and stopped webhook-relay 4.4.5. Until 2031-03-19 it may only warn: open it with mode=warn."
)

MODEL = "scripted"
SCRIPT = (
    summary(
        "FRN-1187: whatever serves requests must stay off the profile `lean`. deploy-gate gets a check, serving-profile. "
        "webhook-relay is the only such service on `lean`; ask s.ibarra before it moves. The change waits for 18:00."
    ),
    failing(
        "The agent would not know what Maren decided, nor why.",
        ["`lean` stays as it is: rate-engine depends on its limit of 4", "the check only warns until 2031-03-19"],
    ),
    summary(
        "FRN-1187: whatever serves requests must stay off the profile `lean`. Maren decided: `lean` stays as it is, since "
        "rate-engine depends on its limit of 4 connections; deploy-gate gets a check, serving-profile, which only warns until "
        "2031-03-19. webhook-relay is the only such service on `lean`; ask s.ibarra before it moves. The change waits for 18:00."
    ),
    passing("Every decision is there, with its reason."),
)
"""What the model says, in this order: a summary, a verdict, and both once more."""

_MOST_MESSAGE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Attempt:
    """A summary that the model wrote, and what the judge said of it.

    Attributes:
        node: the node.
        shown: the context with the node, before the verdict.
        verdict: the verdict.
        after: the context after it.
    """

    node: Node
    shown: Context
    verdict: Verdict
    after: Context


@dataclass(frozen=True, slots=True)
class Task:
    """All that happened in the second session.

    Attributes:
        key: the session's key.
        base_url: where the scripted model listened.
        requests: how often it was asked.
        first: the attempt that failed.
        told: what the second request for a summary said of the failure, a line each.
        second: the attempt that passed.
        left: the turns that were then left behind.
        branch: the branch that left them.
        next: the context of the next step.
        shape: the tree at the end.
    """

    key: str
    base_url: str
    requests: int
    first: Attempt
    told: tuple[str, ...]
    second: Attempt
    left: int
    branch: Branch
    next: Context
    shape: Shape


async def live_task(url: str | None, *, tenant: str, key: str) -> Task:
    """Plays the second conversation in a new session, with a scripted model that writes and judges."""
    plan, attempt, again = _conversations()
    async with ScriptedModel(SCRIPT) as endpoint, _session(endpoint, url, tenant, key) as session:
        await session.add_turns(plan)
        first = await _attempt(session)
        second = await _attempt(session)
        await session.add_turns(attempt)
        branch = await session.revise(after=second.node, note=NOTE, actor=ACTOR)
        await session.add_turns(again)
        return Task(
            key=key,
            base_url=endpoint.base_url,
            requests=len(endpoint.requests),
            first=first,
            told=_told(endpoint.requests[2]),
            second=second,
            left=len(attempt),
            branch=branch,
            next=await session.context(),
            shape=await read_shape(session),
        )


@asynccontextmanager
async def _session(endpoint: ScriptedModel, url: str | None, tenant: str, key: str) -> AsyncIterator[Session]:
    async with (
        pgmem.OpenAIModel(MODEL, base_url=endpoint.base_url, api_key="none") as model,
        pgmem.open(url, tenant=tenant, summary_model=model, judge_model=model) as memory,
    ):
        yield await memory.session(key, goal=GOAL)


async def _attempt(session: Session) -> Attempt:
    node = await session.compress(label="the plan")
    assert node is not None, "there are active turns"  # noqa: S101
    shown = await session.context()
    verdict = await session.maintain(node)
    assert verdict is not None, "a node that is named is judged"  # noqa: S101
    return Attempt(node, shown, verdict, await session.context())


def _told(request: ScriptedRequest) -> tuple[str, ...]:
    """The block of the prompt on summaries that failed, with the line above it and without its fence."""
    lines = request.prompt.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("<<failed "))
    end = next(at for at, line in enumerate(lines) if line.startswith("<</failed "))
    return (lines[begin - 1], *lines[begin + 1 : end])


def _conversations() -> tuple[list[Message], ...]:
    """The turns that are compressed, those of the attempt that is left behind, and the next one."""
    with (resources.files("pgmem.cli.demo") / "task.jsonl").open("rb") as file:
        found = [one for one in read(file, max_turn_bytes=_MOST_MESSAGE_BYTES) if isinstance(one, Conversation)]
    return tuple([message for _, message in one.turns()] for one in found)
