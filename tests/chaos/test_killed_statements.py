"""A process that is killed before, at or after any statement of an operation leaves the tree as before or as after it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pgmem
from tests.chaos.support import POLICY, talk
from tests.concurrency.support import HoldingWire, connect, rows
from tests.support.wire import serving

ROOT = Path(__file__).parents[2]

OPERATIONS = """
    async def fails(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="it drops the hinge", judge="test")

    async def passes(request):
        return pgmem.Judgement(outcome=pgmem.Outcome.PASS, judge="test")

    async def fails_once(request):
        return await (fails if request.node.parent is None and "second" not in request.node.summary else passes)(request)

    async def second_is_better(request):
        return "a second one" if request.failures else "all of it"

    async def whole(session):
        await (await session.compact_async())

    OPERATIONS = {
        "compress by a given summary": lambda session: session.compress(summary="all of it"),
        "compress by tool_clear": lambda session: session.compress(strategy="tool_clear"),
        "compress by a model": lambda session: session.compress(strategy="llm"),
        "compact": lambda session: session.compact(),
        "maintain, passing": lambda session: session.maintain(judge=passes),
        "maintain, failing": lambda session: session.maintain(judge=fails),
        "revise the newest attempt": lambda session: session.revise(note="not again"),
        "revise after a turn": lambda session: session.revise(after_turn=3, note="not again"),
        "revise and keep the turns": lambda session: session.revise(keep_turns=True),
        "erase": lambda session: session.erase(keep_summary=True),
        "a whole compaction": whole,
    }
"""

PROGRAM = """
    import asyncio, json, os, signal, sys
    import pgmem
    from pgmem.store.database import Database
    from tests.chaos.support import POLICY

    {operations}

    async def play(url, key, name, at, when):
        models = {{"summary_model": second_is_better, "judge_model": fails_once}}
        async with pgmem.open(url, policy=POLICY, pool_size=1, **models) as memory:
            session = await memory.session(key)
            await session.context()
            run, count = Database.run, 0

            async def counted(self, *arguments, **options):
                nonlocal count
                count += 1
                if count == at and when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                if count == at and when == "unheard":
                    print("sending", flush=True)
                    sys.stdin.readline()
                found = await run(self, *arguments, **options)
                if count == at and when == "after":
                    os.kill(os.getpid(), signal.SIGKILL)
                return found

            Database.run = counted
            await OPERATIONS[name](session)

    # a fork for each death: the parent has imported all, and has no thread
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(play(**json.loads(line)))
            os._exit(0)
        print(f"pid {{pid}}", flush=True)
        _, status = os.waitpid(pid, 0)
        print("killed" if os.WIFSIGNALED(status) else "done" if status == 0 else "failed", flush=True)
"""

NAMES = [line.split('"')[1] for line in OPERATIONS.splitlines() if line.startswith('        "')]

COMMITS = {"maintain, failing": 2, "a whole compaction": 4}
"""Commits of what is more than one: after a fail tool_clear bounds the context; a compaction is node, fail, node and pass."""

MOST_STATEMENTS = 40


class Mortals:
    """A process that plays an operation in a child, and tells how the child ended."""

    def __init__(self) -> None:
        program = textwrap.dedent(PROGRAM).format(operations=textwrap.dedent(OPERATIONS))
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            (sys.executable, "-c", program), cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def begin(self, **what: Any) -> int:
        """The pid of the child that plays it."""
        self.write(json.dumps(what))
        return int(self.read().removeprefix("pid "))

    def read(self) -> str:
        return self._process.stdout.readline().decode().strip()

    def write(self, line: str) -> None:
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    made = Mortals()
    yield made
    made.end()


class DeafWire(HoldingWire):
    """Holds back what the server answers to the next statement that is executed; what it says to a Parse passes."""

    _deaf = False

    def hold(self) -> None:
        self.reset()
        self.held.clear()
        self._deaf = True

    async def _back(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            if self._deaf and self.statements:
                self.held.set()
                await asyncio.Event().wait()
            to.write(part)
            await to.drain()


async def shape(owner, session: pgmem.Session) -> dict[str, Any]:
    """All that a tree is, without times and ids."""
    where = "where session_id = %s and namespace = %s order by no"
    key = (session._found.session_id, session.name)
    columns = {
        "turns": "no, branch, role, content",
        "nodes": "no, branch, parent, first_no, last_no, strategy, summary",
        "verdicts": "no, node, outcome, reason",
        "branches": "no, cause, base, left_from, left_to, note",
    }
    found = {table: await rows(owner, f"select {names} from pgmem.{table} {where}", *key) for table, names in columns.items()}
    tree = "select branch, open_branch, head, boundary, last_no, version from pgmem.trees where session_id = %s and namespace = %s"
    context = await session.context()
    statuses = [(turn.no, str(turn.status)) async for turn in session.turns()]
    assert await session.verify() is None
    return found | {"tree": await rows(owner, tree, *key), "messages": context.messages, "statuses": statuses}


async def begun(memory: pgmem.Memory, key: str) -> pgmem.Session:
    """A session with a summary that is not judged, eight turns past it, and nothing left behind."""
    session = await memory.session(key)
    await session.add_turns(talk(4))
    await session.compress(summary="the beginning")
    await session.add_turns(talk(8))
    return session


async def fresh(memory: pgmem.Memory, key: str, name: str) -> pgmem.Session:
    if name != "a whole compaction":
        return await begun(memory, key)
    session = await memory.session(key)
    await session.add_turns(talk(8))
    return session


@asynccontextmanager
async def stage(url: str, owner_url: str):
    async with pgmem.open(url, policy=POLICY) as memory, await connect(owner_url) as owner:
        yield memory, owner


async def killed(mortals: Mortals, **what: Any) -> str:
    mortals.begin(**what)
    return await asyncio.wait_for(asyncio.to_thread(mortals.read), 30)


async def killed_unheard(mortals: Mortals, url: str, **what: Any) -> str:
    """Kills it when the server has answered, and the answer is still on its way."""
    async with asyncio.timeout(30), serving(DeafWire(url)) as wire:
        pid = mortals.begin(url=wire.url, when="unheard", **what)
        said = await asyncio.to_thread(mortals.read)
        if said != "sending":
            return said
        wire.hold()
        mortals.write("go")
        await wire.held.wait()
        os.kill(pid, signal.SIGKILL)
        return await asyncio.to_thread(mortals.read)


async def states_after(memory: pgmem.Memory, owner, mortals: Mortals, url: str, key: str, name: str) -> list[dict[str, Any]]:
    """What the tree is before the first statement, and when the process was killed after each."""
    states: list[dict[str, Any]] = []
    for at in range(1, MOST_STATEMENTS):
        session = await fresh(memory, f"{key}/after/{at}", name)
        if not states:
            states.append(await shape(owner, session))
        ended = await killed(mortals, url=url, key=session.key, name=name, at=at, when="after")
        if ended == "done":
            assert await shape(owner, session) == states[-1]
            return states
        assert ended == "killed"
        states.append(await shape(owner, session))
    raise AssertionError(f"{name} has more than {MOST_STATEMENTS} statements")


@pytest.mark.parametrize("name", NAMES)
async def test_a_process_killed_at_any_statement_leaves_the_tree_of_one_commit_or_of_the_next(
    app_url, server, database, mortals, key, name
):
    async with stage(app_url, server.on(database)) as (memory, owner):
        states = await states_after(memory, owner, mortals, app_url, key, name)
        changes = sum(before != after for before, after in pairwise(states))
        assert changes == COMMITS.get(name, 1), "one commit, one change"

        for at in range(1, len(states)):
            session = await fresh(memory, f"{key}/before/{at}", name)
            assert await killed(mortals, url=app_url, key=session.key, name=name, at=at, when="before") == "killed"
            assert await shape(owner, session) == states[at - 1]

            session = await fresh(memory, f"{key}/unheard/{at}", name)
            assert await killed_unheard(mortals, app_url, key=session.key, name=name, at=at) == "killed"
            assert await shape(owner, session) == states[at]
            # nobody holds the tree: the next process can go on
            await asyncio.wait_for(session.add_turn("user", "still there"), 30)
            assert await session.verify() is None
