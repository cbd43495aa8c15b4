"""Any sequence of operations gives what the plain rules give, and every invariant holds after every step."""

from __future__ import annotations

import asyncio
import itertools
import os

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

import pgmem
from pgmem.operations.place import read_snapshot
from pgmem.testing import ScriptedModel, empty, failing, failure, passing, summary, text
from tests.fuzz.rules import PlainTree
from tests.support.talk import assistant, calls, fault_of_anthropic, fault_of_provider, result, user

PARTS = 4
EXAMPLES = 2000 if os.environ.get("PGMEM_TEST_LONG") else 200

ids = st.sampled_from(["c1", "c2", "c3"])
texts = st.sampled_from(["", "hello", "a\0b", "\ud83d", "[pgmem: x]", "id-4711 /var/log/x.log " * 20])
messages = st.one_of(
    texts.map(user),
    texts.map(assistant),
    st.lists(ids, min_size=1, max_size=3, unique=True).map(lambda names: calls(*names)),
    st.builds(result, ids, texts),
    texts.map(lambda text: {"role": "system", "content": text}),
)
agents = st.sampled_from([0, 1])
notes = st.sampled_from([None, "do it otherwise", "two\n- prior attempt, left at turn 1: lines"])
THRESHOLD, KEEP_RECENT = 10, 3
numbers = itertools.count()


class Mood:
    """What the scripted model does next: it writes, is silent, breaks or is slow; it passes, fails or cannot be understood."""

    def __init__(self) -> None:
        self.writes, self.judges, self.asked = "well", "pass", 0

    def answer(self, request):
        self.asked += 1
        if request.asks_for == "summary":
            return {"well": summary("ok."), "slow": summary("ok.").after(0.01), "silent": empty(), "broken": failure(500)}[
                self.writes
            ]
        return {"pass": passing(), "fail": failing("something is gone"), "garbled": text("PASS but FAIL")}[self.judges]


class Machine(RuleBasedStateMachine):
    """Two handles on one tree, driven side by side with the plain rules."""

    runner: asyncio.Runner
    memory: pgmem.Memory
    owner: psycopg.AsyncConnection
    model: Mood

    @initialize()
    def begin(self):
        self.plain = PlainTree()
        self.rows: list[tuple] = []
        self.recorded: dict[int, list] = {}
        key = f"machine-{os.getpid()}-{next(numbers)}"
        self.handles = [self.wait(self.memory.session(key)) for _ in range(2)]
        self.branches = [0, 0]
        self.through: list[int | None] = [None, None]
        self.versions: list[int | None] = [None, None]
        self.keys: dict[str, tuple] = {}

    def wait(self, what):
        return self.runner.run(what)

    @rule(agent=agents, message=messages, pinned=st.booleans())
    def add_turn(self, agent, message, pinned):
        pinned = pinned and sum(turn.pinned for turn in self.plain.live()) < 32
        fields = {name: value for name, value in message.items() if name not in ("role", "content")}
        adding = self.handles[agent].add_turn(message["role"], message["content"], pinned=pinned, **fields)
        if self.branches[agent] < self.plain.open_branch:
            with pytest.raises(pgmem.BranchAbandoned):
                self.wait(adding)
            return
        assert self.wait(adding).no == self.plain.add(message, pinned=pinned).no

    @rule(agent=agents, batch=st.lists(messages, max_size=6))
    def add_turns(self, agent, batch):
        adding = self.handles[agent].add_turns(batch)
        if batch and self.branches[agent] < self.plain.open_branch:
            with pytest.raises(pgmem.BranchAbandoned):
                self.wait(adding)
            return
        assert [turn.no for turn in self.wait(adding)] == [self.plain.add(message).no for message in batch]

    @rule(agent=agents, key=st.sampled_from("kl"), message=st.sampled_from([user("x"), user("y")]))
    def add_turn_with_key(self, agent, key, message):
        adding = self.handles[agent].add_turn(message["role"], message["content"], idempotency_key=key)
        known = self.keys.get(key)
        if known is not None and known[1] != message:
            with pytest.raises(pgmem.IdempotencyConflict):
                self.wait(adding)
        elif known is not None:
            assert self.wait(adding).no == known[0]
        elif self.branches[agent] < self.plain.open_branch:
            with pytest.raises(pgmem.BranchAbandoned):
                self.wait(adding)
        else:
            turn = self.wait(adding)
            assert turn.no == self.plain.add(message).no
            self.keys[key] = (turn.no, message)

    @rule(agent=agents, keep_recent=st.integers(0, 4), through=st.one_of(st.none(), st.integers(1, 60)), cumulative=st.booleans())
    def compress_given(self, agent, keep_recent, through, cumulative):
        limit = self.through[agent] if through is None else through
        covered = self.plain.coverable(keep_recent, limit)
        given = {"keep_recent": keep_recent, "through": through, "cumulative": cumulative}
        compressing = self.handles[agent].compress(summary=f"summary {self.plain.last_no}", **given)
        if through is not None and through > self.plain.last_no:
            with pytest.raises(pgmem.InvalidArgument if self.versions[agent] in (None, self.plain.version) else pgmem.StaleTree):
                self.wait(compressing)
            return
        if self.versions[agent] not in (None, self.plain.version):
            with pytest.raises(pgmem.StaleTree):
                self.wait(compressing)
            return
        self.check_node(self.wait(compressing), covered, cumulative=cumulative)
        if self.versions[agent] is not None:
            self.versions[agent] = self.plain.version

    @rule(agent=agents, keep_recent=st.integers(0, 4))
    def compress_by_tool_clear(self, agent, keep_recent):
        covered = self.plain.coverable(keep_recent, None)
        node = self.wait(self.handles[agent].compress(strategy="tool_clear", keep_recent=keep_recent))
        self.check_node(node, covered, cumulative=True, cleared=True)

    @rule(agent=agents, threshold=st.integers(2, 8), keep_recent=st.integers(0, 7))
    def compact(self, agent, threshold, keep_recent):
        keep_recent = min(keep_recent, threshold - 1)
        covered = self.plain.coverable(keep_recent, None) if len(self.plain.active()) >= threshold else []
        node = self.wait(self.handles[agent].compact(threshold=threshold, keep_recent=keep_recent))
        self.check_node(node, covered, cumulative=True, cleared=True)

    def check_node(self, node, covered, *, cumulative, cleared=False):
        if not covered:
            assert node is None
            return
        parent = self.plain.path[-1] if self.plain.path else None
        assert (node.first_no, node.last_no, node.parent) == (covered[0], covered[-1], parent)
        assert node.no == self.plain.compress(covered, cumulative=cumulative, cleared=cleared)

    @rule(agent=agents, keep_recent=st.integers(0, 4), writes=st.sampled_from(["well", "slow", "silent", "broken"]))
    def compress_by_model(self, agent, keep_recent, writes):
        self.model.writes = writes
        covered = self.plain.coverable(keep_recent, None)
        compressing = self.handles[agent].compress(keep_recent=keep_recent)
        if covered and writes in ("silent", "broken"):
            with pytest.raises(pgmem.SummaryFailed):
                self.wait(compressing)
            return
        self.check_node(self.wait(compressing), covered, cumulative=True)

    @precondition(lambda self: self.plain.nodes)
    @rule(agent=agents, data=st.data(), judges=st.sampled_from(["pass", "fail", "garbled"]), newest=st.booleans())
    def maintain(self, agent, data, judges, newest):
        self.model.judges = judges
        node = self.plain.unjudged() if newest else data.draw(st.sampled_from(sorted(self.plain.nodes)))
        maintaining = self.handles[agent].maintain(None if newest else node)
        if node is None:
            assert self.wait(maintaining) is None
            return
        if judges == "garbled":
            with pytest.raises(pgmem.JudgeFailed):
                self.wait(maintaining)
            return
        verdict = self.wait(maintaining)
        assert verdict.no == self.plain.last_no + 1
        reopened = self.plain.judge(node, judges)
        assert (verdict.reopened is not None) == reopened
        covered = self.plain.coverable(KEEP_RECENT, None)
        if reopened and len(self.plain.active()) >= THRESHOLD and covered:
            self.plain.compress(covered, cumulative=True, cleared=True)

    @rule(agent=agents, data=st.data(), note=notes, keep_turns=st.booleans(), kind=st.sampled_from(["node", "after", "after_turn"]))
    def revise(self, agent, data, note, keep_turns, kind):
        place = data.draw(st.integers(1, self.plain.last_no + 1))
        point = self.plain.point_of(**{kind: place})
        revising = self.handles[agent].revise(**{kind: place}, note=note, keep_turns=keep_turns)
        if isinstance(point, str):
            with pytest.raises(getattr(pgmem, point)):
                self.wait(revising)
            return
        failed = kind == "node" and self.plain.nodes[place].outcome == "fail"
        branch = self.wait(revising)
        assert branch.no == self.plain.revise(point, note or ("something is gone" if failed else None), keep_turns=keep_turns)
        self.branches[agent], self.versions[agent], self.through[agent] = branch.no, None, None

    @rule(agent=agents, judges=st.sampled_from(["pass", "fail"]))
    def compact_async(self, agent, judges):
        self.model.writes, self.model.judges = "well", judges
        done = self.wait(awaited(self.handles[agent].compact_async()))
        covered = self.plain.coverable(KEEP_RECENT, None) if len(self.plain.active()) >= THRESHOLD else []
        while covered and self.plain.failures(covered) < 3:
            no = self.plain.compress(covered, cumulative=True)
            self.plain.judge(no, judges)
            if judges == "pass":
                break
        else:
            no = self.plain.compress(covered, cumulative=True, cleared=True) if covered else None
        assert (done.node and done.node.no) == no

    @rule(agent=agents, keep_summary=st.booleans())
    def erase(self, agent, keep_summary):
        branch = self.wait(self.handles[agent].erase(keep_summary=keep_summary))
        assert branch.no == self.plain.erase(keep_summary=keep_summary)
        self.branches[agent], self.versions[agent], self.through[agent] = branch.no, None, None

    @rule(agent=agents)
    def context(self, agent):
        context = self.wait(self.handles[agent].context("sys"))
        self.branches[agent], self.versions[agent], self.through[agent] = self.plain.branch, self.plain.version, context.through
        assert (context.branch, context.no) == (self.plain.branch, self.plain.last_no)

    @precondition(lambda self: self.plain.last_no > 0)
    @rule(agent=agents, data=st.data())
    def as_of(self, agent, data):
        no = data.draw(st.integers(0, self.plain.last_no))
        context = self.wait(self.handles[agent].context("sys", as_of=no))
        if no in self.recorded:
            assert context.messages == self.recorded[no]

    @rule(agent=agents, budget=st.integers(1, 400))
    def context_within_a_budget(self, agent, budget):
        try:
            context = self.wait(self.handles[agent].context("sys", budget_tokens=budget))
        except pgmem.OverBudget:
            assert self.wait(self.handles[agent].context("sys", as_of=self.plain.last_no)).tokens > budget
            return
        assert context.tokens <= budget
        assert fault_of_provider(context.messages) is None
        self.branches[agent], self.versions[agent], self.through[agent] = self.plain.branch, self.plain.version, context.through

    @invariant()
    def every_turn_is_in_exactly_one_place(self):
        found = [(turn.no, str(turn.status), turn.node) for turn in self.wait(all_turns(self.handles[0]))]
        assert found == [(turn.no, *self.plain.status(turn)) for turn in self.plain.turns]

    @invariant()
    def every_node_has_the_status_that_the_rules_give(self):
        found = [(node.no, str(node.status)) for node in self.wait(all_nodes(self.handles[0]))]
        assert found == [(no, self.plain.node_status(node)) for no, node in self.plain.nodes.items()]

    @invariant()
    def rows_are_only_added(self):
        rows = self.wait(row_versions(self.owner, self.handles[0]))
        assert rows[: len(self.rows)] == self.rows
        self.rows = rows

    @invariant()
    def the_context_shows_what_the_rules_show_and_is_valid(self):
        snapshot = self.wait(read_snapshot(self.handles[0]._place))
        assert [node.no for node in snapshot.nodes] == self.plain.shown_nodes()
        assert not any(self.plain.nodes[node.no].outcome == "fail" for node in snapshot.nodes)
        assert [hint.note for hint in snapshot.hints] == self.plain.hints()
        assert [turn.no for turn in snapshot.kept] == self.plain.kept()
        assert [turn.no for turn in snapshot.active] == [turn.no for turn in self.plain.active()]
        assert [turn.message for turn in snapshot.active] == [turn.message for turn in self.plain.active()]
        # an as_of of the newest fact is a context that moves no handle
        context = self.wait(self.handles[0].context("sys", as_of=self.plain.last_no))
        assert fault_of_provider(context.messages) is None
        assert fault_of_anthropic(context.to_anthropic()) is None
        self.recorded[self.plain.last_no] = context.messages

    def teardown(self):
        if not hasattr(self, "recorded"):
            return
        for no, shown in self.recorded.items():
            assert self.wait(self.handles[1].context("sys", as_of=no)).messages == shown
        assert self.wait(self.handles[0].verify()) is None


async def all_turns(session):
    return [turn async for turn in session.turns()]


async def all_nodes(session):
    return [node async for node in session.nodes()]


async def awaited(starting):
    return await (await starting)


async def row_versions(owner, session):
    """Every row of the tree with where and by whom it was written: an update or a delete changes one."""
    parts = [
        f"select no, '{table}', xmin::text, ctid::text from pgmem.{table} where session_id = %(id)s"
        for table in ("turns", "nodes", "verdicts", "branches")
    ]
    found = await owner.execute(" union all ".join(parts) + " order by 1", {"id": session._found.session_id})
    return [tuple(row) for row in await found.fetchall()]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_any_sequence_of_operations_gives_what_the_plain_rules_give(server, database, part):
    with asyncio.Runner() as runner:
        mood = Mood()
        endpoint = ScriptedModel(rule=mood.answer)
        runner.run(endpoint.__aenter__())
        model = pgmem.OpenAIModel("m", base_url=endpoint.base_url, api_key="k", retry_attempts=1)
        policy = pgmem.Policy(threshold=THRESHOLD, keep_recent=KEEP_RECENT)
        opening = pgmem.open(server.on(database, "pgmem_app"), pool_size=2, policy=policy, summary_model=model, judge_model=model)
        memory = runner.run(opening.__aenter__())
        connecting = psycopg.AsyncConnection.connect(server.on(database), autocommit=True)
        owner = runner.run(connecting)
        try:
            driven = type("Driven", (Machine,), {"runner": runner, "memory": memory, "owner": owner, "model": mood})
            run_state_machine_as_test(
                driven,
                settings=settings(
                    max_examples=EXAMPLES // PARTS,
                    stateful_step_count=12,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(owner.close())
            runner.run(opening.__aexit__(None, None, None))
            runner.run(model.close())
            runner.run(endpoint.__aexit__(None, None, None))
