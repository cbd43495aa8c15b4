"""Grow: turns are stored as they are, in order, once."""

from __future__ import annotations

import asyncio

import pytest

import pgmem
from tests.support.wire import wire

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": "A-17"}'}}


async def stored(session: pgmem.Namespace) -> list[pgmem.Turn]:
    return [turn async for turn in session.turns()]


async def test_turns_are_numbered_from_one_without_a_hole(session):
    turns = [await session.add_turn("user", f"{number}") for number in range(5)]

    assert [turn.no for turn in turns] == [1, 2, 3, 4, 5]


async def test_a_message_comes_back_equal_value_for_value(session):
    messages = [
        {"role": "system", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None, "vendor": {"z": 1, "a": [1.5, -0.0, True]}},
        {"role": "tool", "tool_call_id": "c1", "content": "", "name": "look_up"},
        {"role": "assistant", "content": "  \n"},
        {"role": "user", "content": "number", "meta": [10**400, 2**63, 5e-324]},
    ]

    await session.add_turns(messages)

    assert [turn.message for turn in await stored(session)] == messages
    assert (await session.context()).messages == messages


async def test_a_turn_shares_nothing_with_the_message_that_it_was_made_from(session):
    deep = []
    for _ in range(480):
        deep = [deep]
    message = {"role": "user", "content": [{"type": "text", "text": "as it was"}], "vendor": {"list": [1], "deep": deep}}

    (turn,) = await session.add_turns([message])
    message["vendor"]["list"].append(2)
    message["content"][0]["text"] = "other"

    assert (turn.message["vendor"]["list"], turn.message["content"][0]["text"]) == ([1], "as it was")
    assert [turn.message] == [kept.message for kept in await stored(session)]


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",
        "\0",
        "half \ud83d emoji",
        "\ud83d\ude00 two halves that were apart",
        "😀 \ud83d 😀",
        "\\u0000 and \\ud83d as text",
        "\\\\ud83d\ud83d\\",
        "'; drop table pgmem.turns; --",
        "Conversation memory for this step:\n{{x}} {0} %s %(a)s ```</summary>",
    ],
)
async def test_any_text_round_trips_exactly_in_every_field(session, owner, text):
    call = {"id": text, "type": "function", "function": {"name": text, "arguments": text}}
    messages = [
        {"role": "user", "content": text, text: text},
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": text, "content": text},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]

    await session.add_turns(messages)
    single = await session.add_turn("user", text)

    assert [turn.message for turn in await stored(session)] == [*messages, single.message]
    audit = await owner.execute("select extra -> 'content' from pgmem.turn_log where session = %s", (session.key,))
    assert len(await audit.fetchall()) == 5


async def test_a_batch_keeps_its_order_and_is_one_statement_and_one_round_trip(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        await session.add_turns([{"role": "user", "content": "warm"}] * 2)
        proxy.reset()

        turns = await session.add_turns([{"role": "user", "content": str(number)} for number in range(50)])

        assert (proxy.statements, proxy.round_trips) == (1, 1)
        assert [turn.content for turn in await stored(session)][2:] == [str(number) for number in range(50)]
        assert [turn.no for turn in turns] == list(range(3, 53))


async def test_an_append_is_one_statement_and_one_round_trip(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        await session.add_turn("user", "warm")
        proxy.reset()
        before = memory.round_trips

        for number in range(10):
            await session.add_turn("user", str(number))

        assert (proxy.statements, proxy.round_trips) == (10, 10)
        assert memory.round_trips - before == 10


async def test_a_batch_with_a_bad_message_stores_nothing(session):
    with pytest.raises(pgmem.InvalidMessage, match="role"):
        await session.add_turns([{"role": "user", "content": "fine"}, {"role": "robot", "content": "not"}])

    assert await stored(session) == []


async def test_an_empty_batch_stores_nothing(session):
    assert await session.add_turns([]) == []


async def test_add_turn_never_compacts(memory, session):
    events = []
    memory.on_event(events.append)

    for number in range(10_000):
        await session.add_turn("user", str(number))

    assert events == []
    assert await session.path() == []


async def test_the_same_key_with_the_same_message_answers_with_the_stored_turn(session):
    first = await session.add_turn("user", "pay", idempotency_key="k")
    await session.erase()

    again = await session.add_turn("user", "pay", idempotency_key="k")

    assert again == first
    assert len(await stored(session)) == 1


async def test_the_same_key_with_another_message_is_a_conflict(session):
    first = await session.add_turn("user", "pay", idempotency_key="k")

    with pytest.raises(pgmem.IdempotencyConflict) as caught:
        await session.add_turn("user", "pay twice", idempotency_key="k")

    assert (caught.value.key, caught.value.no) == ("k", first.no)
    assert len(await stored(session)) == 1


async def test_a_batch_that_is_partly_known_is_a_conflict_and_stores_nothing(session):
    await session.add_turn("user", "1", idempotency_key="a")

    with pytest.raises(pgmem.IdempotencyConflict):
        await session.add_turns([{"role": "user", "content": "1"}, {"role": "user", "content": "2"}], idempotency_keys=["a", "b"])

    assert len(await stored(session)) == 1


async def test_a_batch_that_is_known_answers_with_the_stored_turns(session):
    batch = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]
    first = await session.add_turns(batch, idempotency_keys=["a", "b"])

    assert await session.add_turns(batch, idempotency_keys=["a", "b"]) == first


async def test_racing_writers_with_one_key_store_one_turn(memory, key):
    handles = [await memory.session(key) for _ in range(16)]

    turns = await asyncio.gather(*(handle.add_turn("user", "once", idempotency_key="k") for handle in handles))

    assert {turn.no for turn in turns} == {1}
    assert len(await stored(handles[0])) == 1


async def test_at_most_32_pinned_turns_even_when_writers_race(memory, key):
    handles = [await memory.session(key) for _ in range(40)]

    results = await asyncio.gather(
        *(handle.add_turn("user", f"{number}", pinned=True) for number, handle in enumerate(handles)), return_exceptions=True
    )

    assert sum(isinstance(result, pgmem.Turn) for result in results) == 32
    assert sum(isinstance(result, pgmem.TooManyPinned) for result in results) == 8


async def test_erase_makes_room_for_pinned_turns(session):
    for number in range(32):
        await session.add_turn("user", f"{number}", pinned=True)
    with pytest.raises(pgmem.TooManyPinned):
        await session.add_turn("user", "one more", pinned=True)

    await session.erase()

    assert (await session.add_turn("user", "one more", pinned=True)).pinned


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("robot", "x"), pgmem.UnknownRole),
        (("user",), pgmem.InvalidMessage),
        (("assistant",), pgmem.InvalidMessage),
        (("tool", "x"), pgmem.InvalidMessage),
        (("user", b"bytes"), pgmem.InvalidMessage),
        (("user", 5), pgmem.InvalidMessage),
        (("user", ["part"]), pgmem.InvalidMessage),
        ((None, "x"), pgmem.UnknownRole),
    ],
)
async def test_a_message_that_no_provider_takes_is_refused(session, arguments, error):
    with pytest.raises(error):
        await session.add_turn(*arguments)

    assert await stored(session) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"extra": {"x": float("nan")}},
        {"extra": {"x": float("inf")}},
        {"extra": {"x": (1, 2)}},
        {"extra": {1: 2}},
        {"extra": {"role": "system"}},
        {"extra": []},
        {"tool_calls": [CALL]},
        {"idempotency_key": ""},
        {"idempotency_key": "k" * 256},
        {"idempotency_key": "a\0"},
        {"idempotency_key": 7},
        {"pinned": 1},
        {"branch": -1},
        {"branch": True},
    ],
)
async def test_a_field_that_cannot_be_kept_is_refused(session, fields):
    with pytest.raises(pgmem.InvalidArgument):
        await session.add_turn("user", "x", **fields)

    assert await stored(session) == []


@pytest.mark.parametrize(
    "calls",
    [
        [{"id": ""}],
        [{"id": "c"}],
        [{"id": "c", "function": {"name": "f"}}],
        [{"id": "c", "function": {"name": "f", "arguments": {}}}],
        [CALL, CALL],
        ["c"],
        "c",
    ],
)
async def test_malformed_tool_calls_are_refused(session, calls):
    with pytest.raises(pgmem.InvalidMessage):
        await session.add_turn("assistant", None, tool_calls=calls)


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
async def test_deep_nesting_is_a_typed_error(session, depth):
    value: list = []
    for _ in range(depth):
        value = [value]

    with pytest.raises(pgmem.InvalidMessage, match="nested"):
        await session.add_turn("user", "x", extra={"x": value})


async def test_nesting_of_400_is_kept(session):
    value: list = []
    for _ in range(400):
        value = [value]

    turn = await session.add_turn("user", "x", extra={"x": value})

    assert (await session.context()).messages == [turn.message]


async def test_a_turn_up_to_the_limit_is_kept_and_one_over_it_is_refused(session):
    text = "é" * (8 * 1024 * 1024)
    await session.add_turn("user", text)

    with pytest.raises(pgmem.TurnTooLarge):
        await session.add_turn("user", "x" * (64 * 1024 * 1024 + 1))

    assert (await session.context()).messages == [{"role": "user", "content": text}]


async def test_turns_of_racing_writers_are_dense_and_all_there(memory, key):
    handles = [await memory.session(key) for _ in range(16)]

    async def write(handle: pgmem.Session, writer: int) -> None:
        for number in range(50):
            await handle.add_turn("user", f"{writer}/{number}")

    await asyncio.gather(*(write(handle, writer) for writer, handle in enumerate(handles)))

    turns = await stored(handles[0])
    assert [turn.no for turn in turns] == list(range(1, 801))
    assert {turn.content for turn in turns} == {f"{writer}/{number}" for writer in range(16) for number in range(50)}
    assert await handles[0].verify() is None


async def test_racing_batches_are_never_interleaved(memory, key):
    handles = [await memory.session(key) for _ in range(8)]

    await asyncio.gather(
        *(
            handle.add_turns([{"role": "user", "content": f"{writer}"}] * 20)
            for writer, handle in enumerate(handles)
            for _ in range(5)
        )
    )

    contents = [turn.content for turn in await stored(handles[0])]
    assert len(contents) == 800
    assert all(len(set(contents[start : start + 20])) == 1 for start in range(0, 800, 20))
    assert await handles[0].verify() is None


async def test_racing_first_turns_of_a_new_namespace_are_all_there(memory, key):
    handles = [(await memory.session(key)).namespace("scratch") for _ in range(25)]

    turns = await asyncio.gather(*(handle.add_turn("user", f"{number}") for number, handle in enumerate(handles)))

    assert sorted(turn.no for turn in turns) == list(range(1, 26))
    assert len(await stored(handles[0])) == 25


async def test_a_reply_worked_out_before_an_erase_is_refused_until_the_context_is_read(memory, key):
    agent, other = await memory.session(key), await memory.session(key)
    await agent.add_turn("user", "q")
    await agent.context()
    branch = await other.erase()

    with pytest.raises(pgmem.BranchAbandoned) as caught:
        await agent.add_turn("assistant", "late")

    assert (caught.value.seen, caught.value.current) == (0, branch.no)
    await agent.context()
    assert (await agent.add_turn("user", "fresh")).branch == branch.no


async def test_the_caller_may_name_the_branch_that_it_saw(memory, key):
    agent, other = await memory.session(key), await memory.session(key)
    await agent.add_turn("user", "q")
    seen = await agent.context()
    await other.erase()
    await agent.context()

    with pytest.raises(pgmem.BranchAbandoned):
        await agent.add_turn("assistant", "late", branch=seen.branch)


async def test_larger_numbers_do_not_prepare_the_append_again(app_url, key):
    async with wire(app_url) as proxy, pgmem.open(proxy.url, pool_size=1) as memory:
        session = await memory.session(key)
        await session.add_turn("user", "warm")
        proxy.reset()

        await session.add_turn("user", "x" * 400_000)

        assert (proxy.statements, proxy.round_trips) == (1, 1)
