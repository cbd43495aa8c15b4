"""What the tests of faults and races share: a wire that holds its answers, facts read behind the API, what must be true of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg
from psycopg.rows import dict_row

import pgmem
from tests.support.talk import fault_of_provider
from tests.support.wire import Wire


class HoldingWire(Wire):
    """A wire that can hold back what the server says, so that a statement is done and nobody knows."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._open = asyncio.Event()
        self._open.set()
        self.held = asyncio.Event()

    def hold(self) -> None:
        self.held.clear()
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    async def _back(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        while part := await reader.read(65536):
            if not self._open.is_set():
                self.held.set()
            await self._open.wait()
            to.write(part)
            await to.drain()
        to.transport.abort()
        server.transport.abort()


async def connect(url: str) -> psycopg.AsyncConnection[dict[str, Any]]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row)


async def rows(connection: psycopg.AsyncConnection, statement: str, *values: object) -> list[dict[str, Any]]:
    return await (await connection.execute(statement, values)).fetchall()


@asynccontextmanager
async def row_held(url: str, session: pgmem.Namespace) -> AsyncIterator[None]:
    """Holds the tree row, by a connection of its own, so that nothing can be added."""
    async with await psycopg.AsyncConnection.connect(url) as holder:
        key = (session._found.session_id, session.name)
        await holder.execute("select from pgmem.trees where session_id = %s and namespace = %s for update", key)
        yield
        await holder.rollback()


async def waiting_for_locks(connection: psycopg.AsyncConnection) -> int:
    (row,) = await rows(
        connection,
        "select count(*) as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    )
    return row["n"]


async def busy_connections(connection: psycopg.AsyncConnection) -> list[dict[str, Any]]:
    """The application's connections that are in a transaction or at work."""
    return await rows(
        connection,
        "select state, query from pg_stat_activity"
        " where datname = current_database() and usename = 'pgmem_app' and state <> 'idle'",
    )


@dataclass
class Facts:
    """All facts of a tree, as another reader than ours finds them."""

    tree: dict[str, Any]
    turns: list[dict[str, Any]]
    nodes: list[dict[str, Any]]
    branches: list[dict[str, Any]]
    messages: dict[int, Any] = field(default_factory=dict)

    @property
    def positions(self) -> list[int]:
        return sorted(fact["no"] for fact in (*self.turns, *self.nodes, *self.branches))

    def state_at(self, no: int) -> State:
        state = State()
        for fact in sorted((*self.turns, *self.nodes, *self.branches), key=lambda fact: fact["no"]):
            if fact["no"] <= no:
                state.take(fact)
        return state


@dataclass
class State:
    """A tree built from its facts one after another, by the rules alone."""

    head: int | None = None
    boundary: int = 0
    branch: int = 0
    turns: dict[int, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[int, dict[str, Any]] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)

    def take(self, fact: dict[str, Any]) -> None:
        no = fact["no"]
        if "role" in fact:
            self.turns[no] = fact
        elif "summary" in fact:
            self.nodes[no], self.head, self.boundary = fact, no, fact["last_no"]
        else:
            assert fact["cause"] == "erase"
            self.left |= set(range(fact["left_from"], (fact["left_to"] or 0) + 1))
            self.branch, self.head, self.boundary = no, fact["base"], no

    @property
    def path(self) -> list[dict[str, Any]]:
        found, at = [], self.head
        while at is not None:
            found.append(self.nodes[at])
            at = self.nodes[at]["parent"]
        return found[::-1]

    @property
    def active(self) -> list[int]:
        return [no for no in self.turns if no > self.boundary and no not in self.left]

    def place_of(self, no: int) -> str:
        """Where a turn is; fails unless it is in exactly one place."""
        if no in self.left:
            return "erased"
        under = [node["no"] for node in self.path if node["first_no"] <= no <= node["last_no"] and node["no"] not in self.left]
        assert (no > self.boundary) + len(under) == 1, f"turn {no} is in {under}, boundary {self.boundary}"
        return "compressed" if under else "active"

    def messages(self) -> list[dict[str, Any]]:
        """The context of plain talk without calls and pins."""
        path = self.path
        since = max((index for index, node in enumerate(path) if node["cumulative"]), default=0)
        memory = "\n\n".join(node["summary"] for node in path[since:])
        active = self.active
        users = [no for no, turn in self.turns.items() if turn["role"] == "user" and no not in self.left]
        kept = [no for no in users[-1:] if no not in active]
        shown = [{"role": self.turns[no]["role"], "content": self.turns[no]["content"]} for no in (*kept, *active)]
        return ([{"role": "system", "content": "Conversation memory for this step:\n" + memory}] if memory else []) + shown


async def facts_of(owner: psycopg.AsyncConnection, session: pgmem.Namespace) -> Facts:
    key = (session._found.session_id, session.name)
    where = "where session_id = %s and namespace = %s"
    tree = await rows(owner, f"select branch, head, boundary, last_no, version from pgmem.trees {where}", *key)
    turns = await rows(owner, f"select no, branch, role, content, idempotency_key from pgmem.turns {where} order by no", *key)
    columns = "no, branch, parent, first_no, last_no, summary, cumulative"
    nodes = await rows(owner, f"select {columns} from pgmem.nodes {where} order by no", *key)
    branches = await rows(owner, f"select no, cause, base, left_from, left_to from pgmem.branches {where} order by no", *key)
    return Facts(tree[0], turns, nodes, branches)


async def check(owner: psycopg.AsyncConnection, session: pgmem.Namespace) -> Facts:
    """Fails unless all that must always be true of a tree is true of this one."""
    facts = await facts_of(owner, session)
    assert facts.positions == list(range(1, facts.tree["last_no"] + 1)), "positions are not dense"
    assert await session.verify() is None, "the hash chain is broken"
    state = facts.state_at(facts.tree["last_no"])
    assert (state.branch, state.head) == (facts.tree["branch"], facts.tree["head"])
    statuses = {turn.no: str(turn.status) async for turn in session.turns()}
    assert statuses == {no: state.place_of(no) for no in state.turns}
    assert all(before["last_no"] < after["first_no"] for before, after in pairwise(state.path))
    for no in range(facts.tree["last_no"] + 1):
        context = await session.context(as_of=no)
        assert context.messages == facts.state_at(no).messages(), f"as of {no}"
        assert fault_of_provider(context.messages) is None
    return facts
