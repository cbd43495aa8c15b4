"""Compress and compact: active turns become one node; nothing is lost, nothing is torn apart."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest

import pgmem
from tests.support.talk import assistant, calls, fault_of_provider, result, statuses, text_of, user


async def grow(session, count, start=0):
    return await session.add_turns([(user, assistant)[number % 2](f"sentinel-{number}.") for number in range(start, start + count)])


async def all_bytes(owner, session):
    """A hash over every column of every turn of the session."""
    found = await owner.execute(
        "select u.* from pgmem.turns u join pgmem.sessions s using (session_id) where s.key = %s order by u.namespace, u.no",
        (session.key,),
    )
    rows = await found.fetchall()
    return len(rows), hashlib.sha256(repr(rows).encode("utf-8", "backslashreplace")).hexdigest()


async def test_compress_puts_exactly_one_node_in_the_place_of_the_active_turns(session):
    await grow(session, 6)

    node = await session.compress(summary="six things")

    assert (node.first_no, node.last_no, node.parent) == (1, 6, None)
    assert [made.no for made in await session.path()] == [node.no]


async def test_a_node_hangs_from_the_previous_head_and_changes_no_older_row(session, owner):
    await grow(session, 4)
    first = await session.compress(summary="one")
    before = await (await owner.execute("select * from pgmem.nodes where session_id = %s", (session._found.session_id,))).fetchall()
    await grow(session, 4, start=4)

    second = await session.compress(summary="two")

    assert second.parent == first.no
    after = await (
        await owner.execute("select * from pgmem.nodes where session_id = %s and no = %s", (session._found.session_id, first.no))
    ).fetchall()
    assert after == before


async def test_the_boundary_moves_past_exactly_the_covered_turns(session):
    await grow(session, 4)

    await session.compress(summary="s")
    none_active = [turn async for turn in session.turns(status="active")]
    added = await session.add_turn("user", "next")

    assert none_active == []
    assert [turn.no async for turn in session.turns(status="active")] == [added.no]


async def test_compress_leaves_every_raw_turn_as_it_was(session, owner):
    await grow(session, 30)
    before = await all_bytes(owner, session)

    await session.compact()
    await session.compress(summary="all")
    await session.erase()

    assert await all_bytes(owner, session) == before


async def test_covered_turns_leave_the_context_and_the_summary_comes(session):
    await grow(session, 4)
    await session.compress(summary="what was said")
    await session.add_turn("user", "now")

    context = await session.context()

    assert "sentinel" not in text_of(context).replace("sentinel-2.", "")
    assert context.messages[0] == {"role": "system", "content": "Conversation memory for this step:\nwhat was said"}


@pytest.mark.parametrize("kind", ["t", "decision", "日本語 ✓", "k" * 64])
async def test_label_and_kind_are_kept_as_given(session, kind):
    await grow(session, 2)

    await session.compress(summary="s", label="Étape ✓ ' \" %s {x}", kind=kind)

    (node,) = await session.path()
    assert (node.label, node.kind) == ("Étape ✓ ' \" %s {x}", kind)


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": ""},
        {"kind": "k" * 65},
        {"kind": "a\0"},
        {"kind": None},
        {"label": ""},
        {"label": "l" * 257},
        {"label": "\ud83d"},
        {"keep_recent": -1},
        {"keep_recent": True},
        {"keep_recent": 2.0},
        {"through": 0},
        {"through": "3"},
        {"summary": ""},
        {"summary": " \n\t"},
        {"summary": "a\0b"},
        {"summary": b"bytes"},
        {"summary": "x" * 32_001},
        {"summary": "x" * (10 * 1024 * 1024)},
        {"strategy": "tool_clear"},
        {"cumulative": 1},
    ],
)
async def test_compress_refuses_what_cannot_be_a_node_and_writes_nothing(session, arguments):
    await grow(session, 4)

    with pytest.raises(pgmem.InvalidArgument):
        await session.compress(**({"summary": "s"} | arguments))

    assert await session.path() == []
    assert set((await statuses(session)).values()) == {"active"}


async def test_compress_without_a_summary_a_strategy_or_a_model_says_so(session):
    await grow(session, 4)

    with pytest.raises(pgmem.NoSummaryModel, match="tool_clear"):
        await session.compress()


async def test_an_unknown_strategy_is_refused(session):
    await grow(session, 4)

    with pytest.raises(pgmem.InvalidArgument, match="strategy"):
        await session.compress(strategy="magic")


async def test_compress_with_nothing_active_writes_nothing_and_says_why(memory, session):
    events = []
    memory.on_event(events.append)

    assert await session.compress(summary="s") is None
    assert await session.compress(strategy="tool_clear") is None

    assert [event.reason for event in events] == [pgmem.SkipReason.NOTHING_ACTIVE] * 2
    assert await session.path() == []


async def test_a_given_summary_is_kept_byte_for_byte(session):
    await grow(session, 2)
    text = "  Ünïcode ✓\r\n\ttabs, trailing space \n[pgmem: not ours]\n"

    node = await session.compress(summary=text)

    assert node.summary == text
    assert (await session.path())[0].summary == text


async def test_a_given_summary_covers_what_its_author_saw(session):
    await grow(session, 4)
    await session.context()
    late = await session.add_turn("user", "late")

    node = await session.compress(summary="the first four")

    assert node.last_no == 4
    assert [turn.no async for turn in session.turns(status="active")] == [late.no]


async def test_through_says_how_far_a_summary_goes(session):
    turns = await grow(session, 6)

    node = await session.compress(summary="s", through=turns[2])

    assert (node.first_no, node.last_no) == (1, 3)


async def test_keep_recent_leaves_the_newest_turns_active(session):
    await grow(session, 6)

    node = await session.compress(summary="s", keep_recent=2)

    assert node.last_no == 4


async def test_a_given_summary_is_not_cumulative_unless_said(session):
    await grow(session, 2)
    await session.compress(summary="first")
    await grow(session, 2)
    await session.compress(summary="second")

    shown = (await session.context()).messages[0]["content"]
    await grow(session, 2)
    await session.context()
    await session.compress(summary="all of it", cumulative=True)

    assert shown == "Conversation memory for this step:\nfirst\n\nsecond"
    assert (await session.context()).messages[0]["content"] == "Conversation memory for this step:\nall of it"


async def test_compact_below_the_threshold_writes_nothing(memory, session, owner):
    events = []
    memory.on_event(events.append)
    await grow(session, 19)

    assert await session.compact() is None

    assert [event.reason for event in events] == [pgmem.SkipReason.BELOW_THRESHOLD]
    tree = await (
        await owner.execute("select last_no, version from pgmem.trees where session_id = %s", (session._found.session_id,))
    ).fetchone()
    assert tree == {"last_no": 19, "version": 0}


async def test_compact_fires_at_twenty_and_keeps_the_newest_five(memory, session):
    events = []
    memory.on_event(events.append)
    await grow(session, 20)

    node = await session.compact()

    assert (node.first_no, node.last_no, node.strategy) == (1, 15, pgmem.Strategy.TOOL_CLEAR)
    assert [type(event) for event in events] == [pgmem.CompactionStarted, pgmem.CompactionCommitted]


@pytest.mark.parametrize("threshold", [0, -1, True, 2.5, "8", 10**9])
async def test_compact_refuses_a_threshold_that_is_no_positive_integer(session, threshold):
    with pytest.raises(pgmem.InvalidArgument, match="threshold"):
        await session.compact(threshold=threshold)


@pytest.mark.parametrize("keep_recent", [-1, True, 2.5, "8", 20, 21])
async def test_compact_refuses_a_keep_recent_that_leaves_nothing_to_cover(session, keep_recent):
    with pytest.raises(pgmem.InvalidArgument, match="keep_recent"):
        await session.compact(keep_recent=keep_recent)


async def test_the_policy_of_open_is_what_compact_goes_by(app_url, key):
    async with pgmem.open(app_url, policy=pgmem.Policy(threshold=8, keep_recent=4)) as memory:
        session = await memory.session(key)
        await grow(session, 8)

        node = await session.compact()

    assert node.last_no == 4


async def test_tool_clear_drops_tool_bodies_and_keeps_talk_names_and_ids(session):
    noise = "lorem ipsum dolor sit amet " * 200
    await session.add_turns(
        [
            user("find order A-1734"),
            calls("call_9", arguments='{"order": "A-1734"}'),
            result("call_9", noise + "tracking ZX-99812"),
            assistant("found it"),
        ]
    )

    await session.compress(strategy="tool_clear")

    memory = (await session.context()).messages[0]["content"]
    assert "lorem ipsum dolor" not in memory
    for kept in ("find order A-1734", "found it", "look_up", "ZX-99812"):
        assert kept in memory
    bodies = [turn.content async for turn in session.turns() if turn.role == "tool"]
    assert bodies == [noise + "tracking ZX-99812"]


async def test_the_cut_never_parts_a_call_from_its_results(session):
    await session.add_turns([user("a"), calls("c1", "c2", "c3"), result("c2"), result("c1"), result("c3"), assistant("b")])

    node = await session.compress(summary="s", keep_recent=2)

    assert node.last_no == 1


async def test_an_open_call_stays_active_and_the_cut_is_before_it(session):
    await session.add_turns([user("a"), assistant("b"), calls("c1")])

    node = await session.compress(strategy="tool_clear")

    assert node.last_no == 2
    await session.add_turn("tool", "done", tool_call_id="c1")
    context = await session.context()
    assert fault_of_provider(context.messages) is None
    assert result("c1") in context.messages


async def test_nothing_but_an_open_call_is_no_safe_cut_and_an_event_says_so(memory, session):
    events = []
    memory.on_event(events.append)
    await session.add_turns([calls("c1")])

    assert await session.compress(strategy="tool_clear") is None

    assert [event.reason for event in events] == [pgmem.SkipReason.NO_SAFE_CUT]


async def test_an_interrupted_call_does_not_stop_compaction_for_ever(session):
    await session.add_turns([user("a"), calls("dead")])
    for number in range(60):
        await session.add_turns([(user, assistant)[number % 2](f"{number}")])
        await session.compact()

    path = await session.path()
    assert len(path) >= 3
    assert fault_of_provider((await session.context()).messages) is None


async def test_two_at_once_make_one_node(memory, key):
    handles = [await memory.session(key) for _ in range(4)]
    await grow(handles[0], 30)

    nodes = await asyncio.gather(*(handle.compact() for handle in handles))

    assert sum(node is not None for node in nodes) == 1
    assert len(await handles[0].path()) == 1


async def test_a_given_summary_is_refused_when_the_tree_moved_on_after_the_read(memory, key, monkeypatch):
    from pgmem.operations import compress

    agent, other = await memory.session(key), await memory.session(key)
    await grow(agent, 4)
    commit = compress.commit

    async def late(place, snapshot, new):
        await other.erase()
        return await commit(place, snapshot, new)

    monkeypatch.setattr(compress, "commit", late)
    with pytest.raises(pgmem.StaleTree):
        await agent.compress(summary="s")

    assert [node async for node in agent.nodes()] == []


async def test_tool_clear_plans_again_when_the_tree_moved_on_after_the_read(memory, key, monkeypatch):
    from pgmem.operations import compress

    agent, other = await memory.session(key), await memory.session(key)
    await grow(agent, 30)
    commit, first = compress.commit, []

    async def late(place, snapshot, new):
        if not first:
            first.append(1)
            await other.compress(summary="theirs", through=3)
        return await commit(place, snapshot, new)

    monkeypatch.setattr(compress, "commit", late)
    node = await agent.compact()

    assert (node.first_no, node.last_no) == (4, 25)


async def test_turns_added_while_a_compress_works_stay_active(memory, key, monkeypatch):
    from pgmem.operations import compress

    agent, other = await memory.session(key), await memory.session(key)
    await grow(agent, 30)
    commit = compress.commit

    async def late(place, snapshot, new):
        await other.add_turn("user", "meanwhile")
        return await commit(place, snapshot, new)

    monkeypatch.setattr(compress, "commit", late)
    node = await agent.compact()

    assert "meanwhile" not in node.summary
    assert [turn.content async for turn in agent.turns(status="active")][-1] == "meanwhile"


async def test_a_failed_write_of_the_node_leaves_the_context_as_it_was(session, memory, monkeypatch):
    await grow(session, 30)
    before = await session.context()
    queries = memory._database.queries
    broken = replace(
        queries.commit_node, text=queries.commit_node.text.replace("insert into pgmem.nodes", "insert into pgmem.gone")
    )
    monkeypatch.setattr(memory._database, "queries", replace(queries, commit_node=broken))

    with pytest.raises(pgmem.SchemaMismatch):
        await session.compact()

    after = await session.context()
    assert (after.messages, after.no) == (before.messages, before.no)


async def test_the_memory_stays_within_its_bound_at_every_step(app_url, key):
    bound = 400
    async with pgmem.open(app_url, policy=pgmem.Policy(max_summary_tokens=bound)) as memory:
        session = await memory.session(key)
        for number in range(60):
            body = f"row {number}: id-{number * 7919} /var/log/app-{number}.log " * 20
            await session.add_turns(
                [user(f"step {number}"), calls(f"c{number}"), result(f"c{number}", body), assistant(f"did {number}")]
            )
            await session.compact()
            memory_message = (await session.context()).messages[0]
            if memory_message["role"] == "system":
                assert pgmem.count_tokens(memory_message["content"]) <= bound
        assert len(await session.path()) > 10


async def test_one_large_kept_turn_does_not_stop_compaction(session):
    for round_number in range(3):
        await grow(session, 20, start=round_number * 20)
        await session.add_turn("user", "y" * 150_000)
        await session.compact()

    found = await statuses(session)
    assert [no for no, status in found.items() if status == "active"] == sorted(found)[-5:]


async def test_turns_that_say_nothing_become_a_node_that_says_so(session):
    await session.add_turns([user(""), user("  ")])

    node = await session.compress(strategy="tool_clear")

    assert node.summary == "(turns 1 to 2 hold no text)"


async def test_a_counter_by_which_nothing_fits_is_a_typed_error_and_no_node(app_url, key):
    async with pgmem.open(app_url, count=lambda text: 10**6) as memory:
        session = await memory.session(key)
        await session.add_turns([user("a"), user("b")])

        with pytest.raises(pgmem.SummaryTooLong):
            await session.compress(strategy="tool_clear")

        assert await session.path() == []


async def test_turns_of_any_size_by_the_counter_become_a_node(app_url, key):
    def count(text):
        return 2**31 - 1 if text.startswith("huge") else 1

    async with pgmem.open(app_url, count=count) as memory:
        session = await memory.session(key)
        await session.add_turns([user("huge 1"), user("huge 2")])

        node = await session.compress(summary="two huge things")

        assert node.source_tokens == 2 * (2**31 - 1)


async def test_what_tool_clear_makes_is_no_larger_than_what_it_replaces(memory, key):
    session = await memory.session(key)
    for _ in range(5):
        await session.add_turns([(user, assistant)[number % 2](f"Line {number} says some few words.") for number in range(12)])
        before = await session.context()

        await session.compress(strategy="tool_clear", keep_recent=3)

        assert (await session.context()).tokens <= before.tokens


async def passes(request):
    return pgmem.Judgement(outcome=pgmem.Outcome.PASS)


async def fails(request):
    return pgmem.Judgement(outcome=pgmem.Outcome.FAIL, reason="no")


@pytest.mark.parametrize("way", ["fail", "revise", "keep_turns", "erase", "compress"])
async def test_a_summary_of_the_callers_covers_nothing_that_its_author_did_not_see(memory, key, way):
    author, other = await memory.session(key), await memory.session(key)
    turns = await author.add_turns([user(f"first {number}") for number in range(5)])
    await author.context()
    node = await author.compress(summary="memory of the first five")
    await author.add_turns([user(f"later {number}") for number in range(3)])
    await author.context()

    match way:
        case "fail":
            await other.maintain(node, judge=fails)
        case "revise":
            await other.revise(after_turn=turns[2], note="the last two are wrong")
        case "keep_turns":
            await other.revise(node, keep_turns=True)
        case "erase":
            await other.erase()
        case "compress":
            await other.compress(strategy="tool_clear", keep_recent=1)
    with pytest.raises(pgmem.StaleTree, match="since the context that this summary was written from"):
        await author.compress(summary="what was said later")

    await author.context()
    made = await author.compress(summary="now it knows")
    assert (made is None) is (way == "erase")


async def test_a_pass_and_turns_of_others_do_not_refuse_a_summary_of_the_callers(memory, key):
    author, other = await memory.session(key), await memory.session(key)
    await author.add_turns([user("a"), user("b")])
    await author.context()
    node = await author.compress(summary="a and b")
    await author.add_turns([user("c"), user("d")])
    await author.context()

    await other.maintain(node, judge=passes)
    await other.add_turn("user", "e, which the author has not seen")

    assert (await author.compress(summary="c and d")).last_no == 5
    assert [message["content"] for message in (await author.context()).messages][-1] == "e, which the author has not seen"


async def test_one_context_is_enough_for_several_summaries_of_the_same_handle(session):
    turns = await session.add_turns([user("a"), user("b"), user("c")])
    await session.context()

    first = await session.compress(summary="a", through=turns[0])
    second = await session.compress(summary="b and c")

    assert (first.last_no, second.first_no, second.last_no) == (1, 2, 3)


async def test_a_strategy_that_cancels_itself_leaves_an_event(memory, key):
    async def cancels(request):
        raise asyncio.CancelledError

    events = []
    memory.on_event(events.append)
    session = (await memory.session(key)).another(summary_model=cancels)
    await session.add_turn("user", "a")

    with pytest.raises(asyncio.CancelledError):
        await session.compress()

    assert [event.error for event in events if isinstance(event, pgmem.CompactionFailed)] == ["CancelledError"]
