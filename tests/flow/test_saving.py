"""What a flow keeps: step and state, when they are saved, who may save them, and where the next start goes on."""

from __future__ import annotations

import asyncio
import json

import pytest

import pgmem
from tests.flow.support import BEGUN, counting, erasing, flow_of, saved, say, step, texts
from tests.support.wire import wire


async def test_the_state_stays_the_dict_that_somebody_holds(session):
    async def broken(self):
        raise ValueError("broken")

    flow = await flow_of(step("A"), step("B", on_enter=broken))(session).start()

    async with flow.exchange("go") as x:
        held = x.state
        with pytest.raises(ValueError, match="broken"):
            await x.go(flow.steps[1], state={"n": 1})
        held["kept"] = 1

    assert flow.state == {"kept": 1}


async def test_a_state_larger_than_a_message_may_be_is_refused(app_url, key, monkeypatch):
    monkeypatch.setenv("PGMEM_MAX_TURN_BYTES", "1000")
    async with pgmem.open(app_url) as memory:
        flow = await flow_of(step("A"))(await memory.session(key)).start()

        async def too_much():
            async with flow.exchange("go") as x:
                x.state["large"] = "é" * 600

        with pytest.raises(pgmem.InvalidArgument, match="the state has over 1000 bytes"):
            await too_much()


async def test_the_longest_names_are_fine(session):
    long = erasing("S" * 128)
    flow = await type("F" * 128, (flow_of(long),), {})(session).start()

    (branch,) = [branch async for branch in session.namespace("S" * 128).branches()]
    assert (type(flow.step), len(branch.actor)) == (long, 256)


async def test_a_save_whose_acknowledgement_is_lost_is_known_as_ones_own(app_url, key):
    a, b = step("A"), step("B")
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        flow = await flow_of(a, b)(session).start()
        async with flow.exchange("go") as x:
            await x.go(b, state={"n": 1})
            proxy.cut_after = b"SELECT 0"
        proxy.cut_after = None
        after = (type(flow.step), dict(flow.state))
        await say(flow, "next")

        assert after == (b, {"n": 1})
        assert [stage.no async for stage in session.stages()] == [1, 2, 3]


async def test_a_start_that_died_before_the_first_step_was_entered_is_taken_over(session, monkeypatch):
    tries = []

    async def once_broken(self):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("broken")
        self.state["initial"] = True

    a = step("A", on_enter=once_broken)
    with pytest.raises(ValueError, match="broken"):
        await flow_of(a)(session).start()
    monkeypatch.setattr("pgmem.flow.flow.CLAIM_SECONDS", 0.1)

    flow = await flow_of(a)(session).start()

    assert (len(tries), flow.state) == (2, {"initial": True})


async def test_a_start_waits_for_one_that_is_entering_the_first_step(session):
    entering, let_go, ran = asyncio.Event(), asyncio.Event(), []

    async def slow(self):
        ran.append("enter")
        entering.set()
        await let_go.wait()
        await self.erase_memory()

    async def on_restore(self):
        ran.append("restore")

    a = step("A", on_enter=slow, on_restore=on_restore)
    first = asyncio.create_task(flow_of(a)(session).start())
    await entering.wait()
    second = asyncio.create_task(flow_of(a)(session).start())
    await asyncio.sleep(0.2)
    waits = not second.done()
    let_go.set()
    await first
    flow = await second
    request = await say(flow, "my first question")

    assert (waits, ran) == (True, ["enter", "restore"])
    assert texts(request) == ["You are in A.", "my first question"]


async def test_messages_are_stored_at_once_and_step_and_state_when_the_exchange_ends(session, reader):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()

    async with flow.exchange("hello") as x:
        await x.go(b, state={"hotels": ["Miramar"]})
        await x.reply("hi")
        inside = (await saved(reader, session), [turn.content async for turn in session.namespace("B").turns()])

    assert inside == (BEGUN, ["hi"])
    assert (await saved(reader, session))[2:] == [(3, "B", ["B"], {"hotels": ["Miramar"]})]


@pytest.mark.parametrize("error", [ValueError("broken"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_a_body_that_raises_saves_no_state_and_keeps_its_messages(session, reader, error):
    a, b = step("A"), step("B")
    flow = await flow_of(a, b)(session).start()
    async with flow.exchange("first") as x:
        x.state["seen"] = [1]

    async def second():
        async with flow.exchange("second") as x:
            await x.go(b, state={"lost": True})
            x.state["seen"].append(2)
            raise error

    with pytest.raises(type(error)):
        await second()

    assert (type(flow.step), flow.state) == (a, {"seen": [1]})
    assert (await saved(reader, session))[2:] == [(3, "A", [], {"seen": [1]})]
    assert texts(await say(flow, "third")) == ["You are in A.", "first", "second", "third"]


@pytest.mark.parametrize("hook", ["on_enter", "on_restore"])
async def test_a_start_whose_hook_raises_can_be_tried_again(session, hook):
    tries = []

    async def once_broken(self):
        tries.append(hook)
        if len(tries) == 1:
            raise ValueError(hook)

    a = step("A", **{hook: once_broken})
    if hook == "on_restore":
        await flow_of(a)(session).start()
    flow = flow_of(a)(session)

    with pytest.raises(ValueError, match=hook):
        await flow.start()
    await flow.start()

    assert (len(tries), type(flow.step)) == (2, a)


STATES = [
    {"n": float("nan")},
    {1: "a"},
    {"t": (1, 2)},
    {"s": {1, 2}},
    {"o": object()},
    {"nul": "\0"},
    {"half": "\ud800"},
    {"b": b"x"},
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: next(iter(map(str, state))))
async def test_state_that_would_not_come_back_equal_is_refused_where_it_is_given(session, state):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.InvalidArgument, match="state"):
            await x.go(flow.steps[1], state=state)
        x.state.clear()

    assert (type(flow.step).__name__, flow.state) == ("A", {})


async def test_state_that_became_no_json_is_refused_at_the_end_and_nothing_is_saved(session, reader):
    flow = await flow_of(step("A"))(session).start()

    with pytest.raises(pgmem.InvalidArgument, match=r"state.hotels"):
        async with flow.exchange("go") as x:
            x.state["hotels"] = {"a", "b"}

    assert flow.state == {}
    assert await saved(reader, session) == BEGUN


async def test_state_round_trips_value_for_value(app_url, session, key):
    state = {"n": [0.1, 10**400, -0.0, True, None], "text": "größer \U0001f3e8 <>&'", "deep": {"a": {"b": []}}, "": ""}
    flow = await flow_of(step("A"))(session).start()
    async with flow.exchange("go") as x:
        await x.go(flow.steps[0], state=state)

    async with pgmem.open(app_url) as memory:
        again = await flow_of(step("A"))(await memory.session(key)).start()

    assert json.dumps(again.state) == json.dumps(state)


async def test_what_the_caller_does_to_the_state_it_gave_changes_nothing(session):
    flow = await flow_of(step("A"), step("B"))(session).start()
    hotels = ["Miramar"]

    async with flow.exchange("go") as x:
        await x.go(flow.steps[1], state={"hotels": hotels})
        hotels.append("Excelsior")

    assert flow.state == {"hotels": ["Miramar"]}


@pytest.mark.parametrize("state", [[], "x", 7])
async def test_given_state_is_a_dict(session, state):
    flow = await flow_of(step("A"), step("B"))(session).start()

    async with flow.exchange("go") as x:
        with pytest.raises(pgmem.InvalidArgument, match="state is of type"):
            await x.go(flow.steps[1], state=state)


async def test_a_flow_left_in_a_step_that_is_gone_is_told_with_the_nearest(session):
    flow = await flow_of(step("Explore"), step("Presenting"))(session).start()
    async with flow.exchange("go") as x:
        await x.go(flow.steps[1])

    with pytest.raises(pgmem.UnknownStep, match=r"left in 'Presenting', .*did you mean 'Present'.*it has Explore, Present"):
        await flow_of(step("Explore"), step("Present"))(session).start()


async def test_two_flows_of_different_names_over_one_session_have_steps_of_their_own(session):
    first = await flow_of(step("A"), step("B"))(session).start()
    other = type("Other", (flow_of(step("C")),), {"name": "side-talk"})
    second = await other(session).start()
    async with first.exchange("go") as x:
        await x.go(first.steps[1])

    assert type(second.step).__name__ == "C"
    assert type((await flow_of(*first.steps)(session).start()).step).__name__ == "B"


async def test_of_two_exchanges_at_once_the_second_to_end_keeps_its_messages_and_not_its_state(session):
    a, b = step("A"), step("B")
    one, other = await flow_of(a, b)(session).start(), await flow_of(a, b)(session).start()

    async def in_between():
        async with one.exchange("from the one") as x:
            async with other.exchange("from the other") as y:
                y.state["n"] = 2
            await x.go(b)

    with pytest.raises(pgmem.StaleFlow, match="the next exchange goes on from there"):
        await in_between()

    again = await flow_of(a, b)(session).start()
    assert (type(again.step), again.state) == (a, {"n": 2})
    assert texts(await say(again, "next")) == ["You are in A.", "from the one", "from the other", "next"]


async def test_a_flow_object_goes_on_where_somebody_else_left_the_flow(session):
    a, b = counting("A"), counting("B")
    one, other = await flow_of(a, b)(session).start(), await flow_of(a, b)(session).start()
    async with other.exchange("go") as x:
        await x.go(b, state={"n": 2})

    request = await say(one, "where am I?")

    assert texts(request) == ["You are in B.", "where am I?"]
    assert one.state == {"n": 2}
    assert b.ran == ["enter", "restore"]


async def test_an_exchange_that_cannot_begin_leaves_the_flow_usable(session):
    tries = []

    async def broken_once(self):
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("broken")

    a, b = step("A"), step("B", on_restore=broken_once)
    one, other = await flow_of(a, b)(session).start(), await flow_of(a, b)(session).start()
    async with other.exchange("go") as x:
        await x.go(b)

    with pytest.raises(ValueError, match="broken"):
        await say(one, "first")

    assert texts(await say(one, "second")) == ["You are in B.", "second"]


async def test_of_many_first_starts_at_once_one_enters_the_step(app_url, key, reader):
    async with pgmem.open(app_url) as memory:
        session = await memory.session(key)
        a = counting("A")
        flows = [flow_of(a)(session) for _ in range(20)]

        await asyncio.gather(*(flow.start() for flow in flows))

        assert await saved(reader, session) == BEGUN
        assert sorted(a.ran) == ["enter", *["restore"] * 19]


async def test_an_unknown_session_is_an_error_and_never_a_new_one(memory, key):
    with pytest.raises(pgmem.SessionNotFound):
        await memory.session(key, create=False)

    assert [found.key async for found in memory.sessions(key)] == []


async def test_a_start_costs_one_round_trip_when_it_goes_on_and_three_when_it_begins(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        await flow_of(step("A"))(await memory.session(f"{key}-warm")).start()
        session = await memory.session(key)
        proxy.reset()
        await flow_of(step("A"))(session).start()
        began = proxy.round_trips
        proxy.reset()
        await flow_of(step("A"))(session).start()

    assert (began, proxy.round_trips) == (3, 1)
