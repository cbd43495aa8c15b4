"""What Postgres and the driver say reaches the caller as an error of ours, typed, with what to do, and without a password."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import psycopg
import pytest

import pgmem
from pgmem.store import faults
from tests.concurrency.support import check, connect


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:s%40cret%2F@host/db?x=1", "postgresql://me:***@host/db?x=1"),
        ("postgresql://me:secret@with@signs@host/db", "postgresql://me:***@host/db"),
        ("postgresql://:secret@host/db", "postgresql://:***@host/db"),
        ("host=h password=secret user=me", "host=h password=*** user=me"),
        ("host=h PASSWORD = secret user=me", "host=h PASSWORD = *** user=me"),
        ("host=h password='secret secret' user=me", "host=h password=*** user=me"),
        (r"host=h password='it\'s secret' user=me", "host=h password=*** user=me"),
        (r"host=h password=a\ secret user=me", "host=h password=*** user=me"),
        ("host=h password='secret never closed", "host=h password=***"),
        ("host=h sslpassword=secret", "host=h sslpassword=***"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me&password=***"),
        ("no secret at all: 3", "no secret at all: 3"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)
def test_passwords_are_masked_in_every_form_of_a_connection_string(text, masked):
    assert faults.without_password(text) == masked


@pytest.fixture
def failing(server, own_database) -> Iterator[Callable[[str, int], None]]:
    """Makes every insert of a turn fail with a SQLSTATE, the first so many times."""

    def fail(state: str, times: int) -> None:
        server.execute("create sequence failures; grant usage on sequence failures to pgmem_app", own_database)
        server.execute(
            f"""create function fail() returns trigger language plpgsql as $$ begin
                    if nextval('public.failures') <= {times} then
                        raise exception 'as asked' using errcode = '{state}';
                    end if;
                    return new;
                end $$""",
            own_database,
        )
        server.execute("create trigger fail before insert on pgmem.turns for each row execute function fail()", own_database)

    yield fail
    server.execute("drop function if exists fail cascade", own_database)
    server.execute("drop sequence if exists failures", own_database)


ALWAYS = 10**6


@pytest.mark.parametrize(
    ("state", "error", "said"),
    [
        ("53100", pgmem.DatabaseFull, "out of room"),
        ("53200", pgmem.DatabaseFull, "out of room"),
        ("53300", pgmem.DatabaseFull, "out of room"),
        ("40P01", pgmem.DatabaseError, "nothing was written"),
        ("40001", pgmem.DatabaseError, "nothing was written"),
        ("57014", pgmem.DatabaseTimeout, "nothing was written"),
        ("55P03", pgmem.DatabaseTimeout, "nothing was written"),
        ("25P04", pgmem.DatabaseTimeout, "nothing was written"),
        ("57P01", pgmem.DatabaseUnavailable, "may or may not"),
        ("57P03", pgmem.DatabaseUnavailable, "may or may not"),
        ("08006", pgmem.DatabaseUnavailable, "may or may not"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
async def test_a_fault_that_may_pass_is_a_retryable_error_and_the_next_call_is_fine(
    server, own_database, failing, state, error, said, keyed
):
    key = "k" if keyed else None
    failing(state, ALWAYS)
    async with pgmem.open(server.on(own_database, "pgmem_app"), pool_size=1) as memory:
        session = await memory.session("s")
        with pytest.raises(error, match=said) as caught:
            await session.add_turn("user", "x", idempotency_key=key)
        server.execute("drop trigger fail on pgmem.turns", own_database)

        assert type(caught.value) is error
        assert (caught.value.retryable, caught.value.sqlstate) == (True, state)
        assert (await session.add_turn("user", "x", idempotency_key=key)).no == 1
        assert await session.verify() is None


@pytest.mark.parametrize("state", ["40P01", "40001"])
@pytest.mark.parametrize("prepared", ["0", "1"])
async def test_a_conflict_that_passes_is_never_seen(server, own_database, failing, monkeypatch, state, prepared):
    monkeypatch.setenv("PGMEM_PREPARED_STATEMENTS", prepared)
    failing(state, 4)
    async with pgmem.open(server.on(own_database, "pgmem_app"), pool_size=1) as memory:
        session = await memory.session("s")

        assert (await session.add_turn("user", "x")).no == 1
        assert await session.verify() is None


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("23514", pgmem.DatabaseError),
        ("22003", pgmem.DatabaseError),
        ("42P01", pgmem.SchemaMismatch),
        ("42501", pgmem.UnsafeDatabase),
    ],
)
async def test_a_fault_that_stays_is_an_error_of_ours_that_is_not_retryable(server, own_database, failing, state, error):
    failing(state, ALWAYS)
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        session = await memory.session("s")

        with pytest.raises(error) as caught:
            await session.add_turn("user", "x")

    assert not getattr(caught.value, "retryable", False)
    assert isinstance(caught.value.__cause__, psycopg.Error)


async def test_appends_that_race_under_repeatable_read_are_stored_once_or_refused_as_retryable(server, own_database, monkeypatch):
    monkeypatch.setenv("PGMEM_PREPARED_STATEMENTS", "0")
    server.execute(f"alter role pgmem_app in database {own_database} set default_transaction_isolation = 'repeatable read'")
    url = server.on(own_database, "pgmem_app")
    with pytest.raises(pgmem.UnsafeDatabase, match="default_transaction_isolation"):
        async with pgmem.open(url):
            pass
    async with pgmem.open(url, allow_unsafe=True) as memory, await connect(server.on(own_database)) as owner:
        session = await memory.session("s")

        results = await asyncio.gather(*(session.add_turn("user", f"{n}") for n in range(60)), return_exceptions=True)

        stored = [result for result in results if isinstance(result, pgmem.Turn)]
        refused = [result for result in results if not isinstance(result, pgmem.Turn)]
        assert len(stored) > 10
        assert all(isinstance(result, pgmem.DatabaseError) and result.retryable for result in refused)
        assert {turn.content async for turn in session.turns()} == {turn.content for turn in stored}
        await check(owner, session)


async def test_a_schema_that_went_away_says_which_command_to_run(server, own_database):
    async with pgmem.open(server.on(own_database, "pgmem_app")) as memory:
        session = await memory.session("s")
        server.execute("drop schema pgmem cascade", own_database)

        with pytest.raises(pgmem.SchemaMismatch, match="pgmem db check"):
            await session.add_turn("user", "x")


@pytest.mark.parametrize("tokens", [2**31, 2**63, 10**30, -1])
async def test_a_counter_that_counts_out_of_range_is_an_error_of_ours_and_writes_nothing(app_url, key, tokens):
    async with pgmem.open(app_url, count=lambda text: tokens) as memory:
        session = await memory.session(key)

        with pytest.raises(pgmem.PgmemError):
            await session.add_turn("user", "x")
        with pytest.raises(pgmem.PgmemError):
            await session.add_turns([{"role": "user", "content": "x"}] * 2)

        assert [turn async for turn in session.turns()] == []


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d", "\udc80"])
async def test_a_text_that_postgres_cannot_hold_is_an_error_of_ours_in_every_argument(memory, session, text):
    calls = [
        lambda: memory.session(text),
        lambda: memory.session("k", goal=text),
        lambda: memory.session("k", metadata={text: 1}),
        lambda: memory.session("k", metadata={"k": [text]}),
        lambda: anext(aiter(memory.sessions(text))),
        lambda: session.add_turn("user", "x", idempotency_key=text),
        lambda: session.add_turn(text, "x"),
        lambda: session.compress(summary=text),
        lambda: session.compress(summary="s", label=text),
        lambda: session.compress(summary="s", kind=text),
        lambda: session.compress(strategy=text),
        lambda: session.erase(actor=text),
    ]
    for call in calls:
        with pytest.raises(pgmem.PgmemError):
            await call()
    with pytest.raises(pgmem.PgmemError):
        session.namespace(text)
    with pytest.raises(pgmem.PgmemError):
        session.turns(status=text)
    with pytest.raises(pgmem.PgmemError):
        async with pgmem.open(tenant=text):
            pass


@pytest.mark.parametrize("number", [2**63, 10**30, -1, 1.5, True, "1", None])
async def test_a_position_out_of_range_is_an_error_of_ours(session, number):
    calls = [lambda: session.compress(summary="s", through=number), lambda: session.context(as_of=number)]
    for call in calls if number is not None else []:
        with pytest.raises(pgmem.InvalidArgument):
            await call()
    with pytest.raises(pgmem.InvalidArgument):
        session.turns(after=number)


async def test_no_fact_past_the_newest_is_an_error_of_ours(session):
    for number in (1, 2**63 - 1):
        with pytest.raises(pgmem.InvalidArgument):
            await session.context(as_of=number)
    assert [turn async for turn in session.turns(after=2**63 - 1)] == []


ODD = [
    10**5000,
    [10**5000],
    {"n": 10**5000},
    2**63,
    -1,
    1.5,
    float("nan"),
    b"x",
    object(),
    {},
    [],
    [[]],
    [{}],
    "",
    "\0",
    "\udc80",
    {1: 2},
]
ODD += ["x" * 10_000, {"role": "x"}, {"k": "\udc80"}, int, lambda: 1, range(3), None, True, NotImplemented]
LOOP: list = []
LOOP.append(LOOP)
ODD += [LOOP, {"k": LOOP}]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: type(value).__name__)
async def test_any_odd_argument_is_taken_or_refused_by_an_error_of_ours(app_url, memory, session, odd):
    message = {"role": "user", "content": "x"}
    for call in [
        lambda: memory.session(odd),
        lambda: memory.session("k", goal=odd),
        lambda: memory.session("k", metadata=odd),
        lambda: session.add_turn(odd, "x"),
        lambda: session.add_turn("user", odd),
        lambda: session.add_turn("user", "x", extra=odd),
        lambda: session.add_turn("user", "x", name=odd),
        lambda: session.add_turn("user", "x", pinned=odd),
        lambda: session.add_turn("user", "x", branch=odd),
        lambda: session.add_turn("user", "x", idempotency_key=odd),
        lambda: session.add_turn("assistant", None, tool_calls=odd),
        lambda: session.add_turn("assistant", None, tool_calls=[odd]),
        lambda: session.add_turn("tool", "x", tool_call_id=odd),
        lambda: session.add_turns(odd),
        lambda: session.add_turns([odd]),
        lambda: session.add_turns([message], idempotency_keys=odd),
        lambda: session.add_turns([message], idempotency_keys=[odd]),
        lambda: session.context(odd),
        lambda: session.context(budget_tokens=odd),
        lambda: session.context(as_of=odd),
        lambda: session.compress(summary=odd),
        lambda: session.compress(summary="s", label=odd),
        lambda: session.compress(summary="s", kind=odd),
        lambda: session.compress(summary="s", through=odd),
        lambda: session.compress(summary="s", keep_recent=odd),
        lambda: session.compress(strategy=odd),
        lambda: session.compact(threshold=odd),
        lambda: session.compact(strategy=odd),
        lambda: session.erase(keep_summary=odd),
        lambda: session.erase(actor=odd),
        lambda: opened(odd),
        lambda: opened(app_url, schema=odd),
        lambda: opened(app_url, tenant=odd),
        lambda: opened(app_url, pool_size=odd),
        lambda: opened(app_url, memory_role=odd),
        lambda: opened(app_url, policy=odd),
        lambda: opened(app_url, count=lambda text: odd),
        lambda: opened(app_url, count=None if callable(odd) else odd),
    ]:
        with contextlib.suppress(pgmem.PgmemError):
            await call()

    assert await session.verify() is None


async def opened(url, **options) -> None:
    if url is None or url == "":  # the embedded server and libpq's own defaults are no business of this test
        return
    async with pgmem.open(url, **options) as memory:
        await (await memory.session("counted")).add_turn("user", "x")
