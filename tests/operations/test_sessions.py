"""Sessions and namespaces: found by name, apart from each other."""

from __future__ import annotations

import asyncio
import functools

import pytest

import pgmem
from tests.support.talk import user


async def test_a_session_is_made_once_and_found_again_with_goal_and_metadata(memory, key):
    metadata = {"user": 7, "tags": ["a", "ü"], "big": 10**400, "none": None}
    made = await memory.session(key, goal="book a hotel", metadata=metadata)

    found = await memory.session(key, goal="another", metadata={})

    assert (found.key, found.goal, found.metadata, found.created_at) == (key, "book a hotel", metadata, made.created_at)


async def test_an_unknown_session_is_not_made_with_create_false(memory, key):
    with pytest.raises(pgmem.SessionNotFound, match=key):
        await memory.session(key, create=False)


async def test_racing_first_sessions_of_one_key_are_one_session(memory, key):
    found = await asyncio.gather(*(memory.session(key) for _ in range(20)))

    assert len({session.created_at for session in found}) == 1


async def test_a_key_is_of_its_tenant_only(app_url, key):
    async with pgmem.open(app_url, tenant="a") as one, pgmem.open(app_url, tenant="b") as two:
        await (await one.session(key)).add_turn("user", "secret of a")

        with pytest.raises(pgmem.SessionNotFound):
            await two.session(key, create=False)
        assert [session.key async for session in two.sessions()] == []
        assert (await (await two.session(key)).context()).messages == []


@pytest.mark.parametrize("bad", ["", "k" * 513, "a\0", "\ud83d", 7, None, b"k"])
async def test_a_key_that_cannot_be_kept_is_refused(memory, bad):
    with pytest.raises(pgmem.InvalidArgument, match="key"):
        await memory.session(bad)


@pytest.mark.parametrize("good", ["a/b/c", "'; drop table pgmem.sessions; --", "😀" * 512, "  ", "../../etc", "%s{}"])
async def test_any_other_text_is_a_key(memory, good):
    assert (await memory.session(good)).key == good
    assert (await memory.session(good, create=False)).key == good


@pytest.mark.parametrize("bad", ["", "t" * 129, "a\0", 7, None])
async def test_a_tenant_that_cannot_be_kept_is_refused(app_url, bad):
    with pytest.raises(pgmem.InvalidArgument, match="tenant"):
        async with pgmem.open(app_url, tenant=bad):
            pass


@pytest.mark.parametrize(
    "metadata", [[], "x", {"a": "\0"}, {"\0": 1}, {"a": "\ud83d"}, {"a": float("nan")}, {"a": {1: 2}}, {"a": b""}]
)
async def test_metadata_that_cannot_be_kept_is_refused(memory, key, metadata):
    with pytest.raises(pgmem.InvalidArgument):
        await memory.session(key, metadata=metadata)

    with pytest.raises(pgmem.SessionNotFound):
        await memory.session(key, create=False)


async def test_metadata_that_the_caller_changes_in_place_stays_as_it_was(memory, key):
    deep = []
    for _ in range(480):
        deep = [deep]
    metadata = {"tags": ["a"], "deep": deep}
    session = await memory.session(key, metadata=metadata)

    metadata["tags"].append("b")
    session.metadata["tags"].append("c")

    assert session.metadata["tags"] == ["a"]
    assert (await memory.session(key)).metadata["tags"] == ["a"]


async def test_a_session_without_metadata_has_none(memory, key):
    assert (await memory.session(key)).metadata is None


@pytest.mark.parametrize("create", ["no", 0, None])
async def test_create_that_is_neither_true_nor_false_is_refused(memory, key, create):
    with pytest.raises(pgmem.InvalidArgument, match="create"):
        await memory.session(key, create=create)


async def test_sessions_lists_a_tenants_sessions_by_prefix_in_order(app_url, key):
    async with pgmem.open(app_url, tenant=key) as memory:
        for name in ["b/1", "a/2", "a/1", "a%", "a_", "ä", "a\U0010ffff", "c"]:
            await memory.session(name)

        assert [session.key async for session in memory.sessions()] == ["a%", "a/1", "a/2", "a_", "a\U0010ffff", "b/1", "c", "ä"]
        assert [session.key async for session in memory.sessions("a")] == ["a%", "a/1", "a/2", "a_", "a\U0010ffff"]
        assert [session.key async for session in memory.sessions("a%")] == ["a%"]
        assert [session.key async for session in memory.sessions("z")] == []


async def test_sessions_pages_itself(app_url, key):
    async with pgmem.open(app_url, tenant=key) as memory:
        for start in range(0, 1100, 10):
            await asyncio.gather(*(memory.session(f"{number:05}") for number in range(start, start + 10)))

        assert [session.key async for session in memory.sessions()] == [f"{number:05}" for number in range(1100)]


async def test_namespaces_do_not_see_each_other(session):
    await session.add_turn("user", "of main")
    await session.namespace("scratch").add_turn("user", "of scratch")

    assert (await session.context()).messages == [user("of main")]
    assert (await session.namespace("scratch").context()).messages == [user("of scratch")]
    assert await session.namespaces() == ["main", "scratch"]


async def test_a_sessions_own_turns_are_those_of_main(session):
    await session.namespace("main").add_turn("user", "x")

    assert session.namespace("main") is session
    assert (await session.context()).messages == [user("x")]


@pytest.mark.parametrize("bad", ["", "1a", "a b", "a" * 129, "😀", "a\0", "__proto__", "x'; drop", "a/b", "a\n", 7, None, "é"])
async def test_a_namespace_that_is_no_name_is_refused(session, bad):
    with pytest.raises(pgmem.InvalidArgument, match="namespace"):
        session.namespace(bad)


async def test_a_namespace_of_128_characters_works(session):
    namespace = session.namespace("a" * 128)

    await namespace.add_turn("user", "x")

    assert (await namespace.context()).messages == [user("x")]


async def test_a_callback_that_fails_is_logged_and_harms_nothing(memory, session, caplog):
    def callback(event):
        raise RuntimeError("mine")

    memory.on_event(callback)
    await session.erase()

    assert "on_event" in caplog.text


async def _async_callback(event): ...


class _AsyncCallback:
    async def __call__(self, event): ...


@pytest.mark.parametrize("callback", [None, "print", _async_callback, functools.partial(_async_callback), _AsyncCallback()])
async def test_a_callback_that_cannot_be_called_or_would_not_be_awaited_is_refused(memory, callback):
    with pytest.raises(pgmem.InvalidArgument, match="callback"):
        memory.on_event(callback)


async def test_events_do_not_go_to_another_memory(app_url, key):
    async with pgmem.open(app_url) as one, pgmem.open(app_url) as two:
        seen = []
        one.on_event(seen.append)
        await (await two.session(key)).erase()

    assert seen == []
