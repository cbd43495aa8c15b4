"""Every pair of operations, in every order of their statements, gives what some serial order gives."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

import pgmem
from pgmem.store.database import Database
from tests.concurrency.support import check, connect, facts_of, row_held, waiting_for_locks
from tests.support.talk import assistant, user
from tests.support.waiting import until

POLICY = pgmem.Policy(threshold=8, keep_recent=2)

Operation = Callable[[pgmem.Session, str], Awaitable[Any]]

OPERATIONS: dict[str, Operation] = {
    "add_turn": lambda session, who: session.add_turn("user", f"{who} says"),
    "add_turns": lambda session, who: session.add_turns([user(f"{who} asks"), assistant(f"{who} hears")]),
    "compress": lambda session, who: session.compress(summary=f"summary of {who}"),
    "compact": lambda session, who: session.compact(),
    "erase": lambda session, who: session.erase(),
    "erase_keep_summary": lambda session, who: session.erase(keep_summary=True),
    "context": lambda session, who: session.context(),
}

PAIRS = list(itertools.combinations_with_replacement(OPERATIONS, 2))


class Gate:
    """A Database whose statements wait, one by one, until they are let through."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._through = asyncio.Event()
        self.waiting = asyncio.Event()
        self.shut = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def run(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        if self.shut:
            self.waiting.set()
            await self._through.wait()
            self._through.clear()
        return await self._database.run(*arguments, **options)

    def let_through(self) -> None:
        self.waiting.clear()
        self._through.set()


@dataclass
class Stage:
    """Two handles of one session, each behind its gate, and what they did."""

    gates: tuple[Gate, Gate]
    handles: tuple[pgmem.Session, pgmem.Session]

    async def play(self, work: tuple[Coroutine[Any, Any, Any], ...], schedule: list[int]) -> tuple[list[Any], list[int]]:
        """Runs the work statement by statement; where both could go on the schedule decides, and 0 past its end.

        Returns:
            What each gave, and all decisions that were made.
        """
        for gate in self.gates:
            gate.shut = True
        tasks = [asyncio.create_task(each) for each in work]
        made: list[int] = []
        while ready := [number for number, task in enumerate(tasks) if not await _ends(task, self.gates[number])]:
            chosen = ready[0]
            if len(ready) == 2:
                chosen = schedule[len(made)] if len(made) < len(schedule) else 0
                made.append(chosen)
            self.gates[chosen].let_through()
        for gate in self.gates:
            gate.shut = False
        return await asyncio.gather(*tasks, return_exceptions=True), made


async def _ends(task: asyncio.Task[Any], gate: Gate) -> bool:
    """Whether the task is done; False when its next statement waits."""
    waits = asyncio.create_task(gate.waiting.wait())
    await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    return task.done()


class Theatre:
    def __init__(self, memory: pgmem.Memory, owner: psycopg.AsyncConnection) -> None:
        self._memory = memory
        self.owner = owner

    async def stage(self) -> Stage:
        """A session with a summary of four turns and eight active ones, which both handles have seen."""
        gates = tuple(Gate(self._memory._database) for _ in range(2))
        key = f"session-{uuid.uuid4()}"
        handles = tuple([await self._behind(gate).session(key) for gate in gates])
        await handles[0].add_turns([(user, assistant)[number % 2](f"turn {number}") for number in range(12)])
        await handles[0].compress(summary="the beginning", through=4)
        for handle in handles:
            await handle.context()
        return Stage(gates, handles)

    def _behind(self, gate: Gate) -> pgmem.Memory:
        memory = self._memory
        shared = memory._shared
        return pgmem.Memory(
            gate,
            tenant=memory.tenant,
            policy=memory.policy,
            summariser=shared.summariser,
            judge=shared.judge,
            count=shared.count,
            memory_role=shared.memory_role,
        )

    async def outcome(self, stage: Stage, results: list[Any]) -> tuple[list[Any], Any]:
        """What each operation gave and how the tree is now, without positions: those only tell the order."""
        facts = await facts_of(self.owner, stage.handles[0])
        words = {fact["no"]: fact.get("content") or fact.get("summary") for fact in (*facts.turns, *facts.nodes)}
        state = facts.state_at(facts.tree["last_no"])
        turns = [(turn["content"], state.place_of(turn["no"])) for turn in facts.turns]
        nodes = [(covered(node, words), node["summary"]) for node in facts.nodes]
        branches = [(branch["cause"], words.get(branch["base"])) for branch in facts.branches]
        return [told(result, words) for result in results], (turns, nodes, branches, state.messages())

    async def serial(self, first: int, names: tuple[str, ...]) -> tuple[list[Any], Any]:
        """The outcome of both, one after the other, beginning with ``first``."""
        stage = await self.stage()
        results: list[Any] = [None, None]
        for number in (first, 1 - first):
            try:
                results[number] = await OPERATIONS[names[number]](stage.handles[number], "AB"[number])
            except pgmem.PgmemError as fault:
                results[number] = fault
        return await self.outcome(stage, results)

    async def alone(self, number: int, name: str) -> tuple[Any, Any]:
        stage = await self.stage()
        result = await OPERATIONS[name](stage.handles[number], "AB"[number])
        (given,), state = await self.outcome(stage, [result])
        return given, state

    async def assert_serial(self, names: tuple[str, str], stage: Stage, results: list[Any]) -> None:
        given, state = await self.outcome(stage, results)
        if "StaleTree" in given:
            # refused, and so nothing of it is there: the other one was alone
            other = 1 - given.index("StaleTree")
            assert (given[other], state) == await self.alone(other, names[other])
        else:
            assert (given, state) in [await self.serial(first, names) for first in (0, 1)]
        await check(self.owner, stage.handles[0])


def covered(node: dict[str, Any], words: dict[int, Any]) -> tuple[Any, ...]:
    return tuple(words[no] for no in range(node["first_no"], node["last_no"] + 1) if no in words)


def told(result: Any, words: dict[int, Any]) -> Any:
    match result:
        case pgmem.Turn():
            return result.content
        case [*turns]:
            return [turn.content for turn in turns]
        case pgmem.Node():
            return (result.summary, words[result.first_no], words[result.last_no])
        case pgmem.Branch():
            return (str(result.cause), words.get(result.base))
        case pgmem.Context():
            return result.messages
        case BaseException():
            return type(result).__name__
    return result


@pytest.fixture
async def theatre(app_url: str, server, database: str) -> AsyncIterator[Theatre]:
    owner = await connect(server.on(database))
    async with owner, pgmem.open(app_url, policy=POLICY) as memory:
        yield Theatre(memory, owner)


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
async def test_any_order_of_two_operations_statements_gives_what_a_serial_order_gives(theatre, names):
    left: list[list[int]] = [[]]
    while left:
        schedule = left.pop()
        stage = await theatre.stage()

        work = tuple(OPERATIONS[name](handle, who) for name, handle, who in zip(names, stage.handles, "AB", strict=True))
        results, made = await stage.play(work, schedule)

        await theatre.assert_serial(names, stage, results)
        left += [[*made[:at], 1] for at in range(len(schedule), len(made))]


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
@pytest.mark.parametrize("first", [0, 1])
async def test_statements_that_waited_for_the_tree_row_give_what_a_serial_order_gives(theatre, server, database, names, first):
    stage = await theatre.stage()
    tasks: list[Any] = [None, None]
    async with row_held(server.on(database), stage.handles[0]):
        # both statements have begun, and seen the tree, before either may change it
        for number in (first, 1 - first):
            tasks[number] = asyncio.create_task(OPERATIONS[names[number]](stage.handles[number], "AB"[number]))
            await until(lambda: _all_stopped(theatre.owner, tasks), "each waits for the row or is done")
    results = await asyncio.gather(*tasks, return_exceptions=True)

    await theatre.assert_serial(names, stage, results)


async def _all_stopped(owner: psycopg.AsyncConnection, tasks: list[Any]) -> bool:
    begun = [task for task in tasks if task is not None]
    return await waiting_for_locks(owner) + sum(task.done() for task in begun) == len(begun)
