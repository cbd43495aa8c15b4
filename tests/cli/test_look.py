"""``pgmem sessions``, ``context``, ``turns`` and ``verify``."""

import asyncio
import json

import psycopg
import pytest

import pgmem
from tests.flow.support import flow_of, step

NASTY = "\x1b[31mred\x1b[0m [bold]markup[/bold] \x07 half \ud83d " + "and more " * 50


async def three_turns_and_a_node(session):
    await session.add_turn("user", "first question", pinned=True)
    await session.add_turn("assistant", "first answer")
    await session.compress(summary="They talked.", label="talk")
    await session.add_turn("user", NASTY, idempotency_key="odd")


def test_sessions_are_listed_by_prefix_in_the_order_of_their_keys(run, app_url, key):
    async def make():
        async with pgmem.open(app_url, tenant=key) as memory:
            for name in ("b/2", "a/1", "b/1"):
                await memory.session(name, goal="[red]goal[/red]", metadata={"a": [1.5]})

    asyncio.run(make())

    shown = run("sessions", "b/", "--tenant", key).stdout
    found = [json.loads(line) for line in run("sessions", "--tenant", key, "--json").stdout.splitlines()]

    assert [line.split()[0] for line in shown.splitlines()] == ["session", "b/1", "b/2"]
    assert "[red]goal[/red]" in shown
    assert [session["key"] for session in found] == ["a/1", "b/1", "b/2"]
    assert found[0]["metadata"] == {"a": [1.5]}


def test_turns_show_status_node_and_an_inert_beginning_of_the_text(run, live):
    key = live(three_turns_and_a_node)

    result = run("turns", key)

    rows = [line.split() for line in result.stdout.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["1", "compressed"], ["2", "compressed"], ["4", "active"]]
    assert rows[1][2] == "3"
    assert "\\x1b[31mred\\x1b[0m [bold]markup[/bold] \\x07 half \\ud83d" in result.stdout
    assert "\x1b" not in result.stdout


def test_turns_as_json_hold_the_message_verbatim_one_a_line(run, live):
    key = live(three_turns_and_a_node)

    lines = run("turns", key, "--json").stdout.splitlines()

    found = [json.loads(line) for line in lines]
    assert found[2]["message"] == {"role": "user", "content": NASTY}
    assert all(line.isascii() for line in lines)
    assert [(turn["no"], turn["status"], turn["node"], turn["pinned"], turn["idempotency_key"]) for turn in found] == [
        (1, "compressed", 3, True, None),
        (2, "compressed", 3, False, None),
        (4, "active", None, False, "odd"),
    ]


def test_turns_are_filtered_by_status_and_position(run, live):
    key = live(three_turns_and_a_node)

    def numbers(*options):
        return [json.loads(line)["no"] for line in run("turns", key, "--json", *options).stdout.splitlines()]

    assert numbers("--status", "compressed") == [1, 2]
    assert numbers("--after", 1) == [2, 4]
    assert run("turns", key, "--status", "gone").exit_code == 2


def test_context_as_json_is_what_the_library_gives(run, live):
    expected = []

    async def act(session):
        await three_turns_and_a_node(session)
        expected.append(await session.context("Be kind."))

    key = live(act)

    found = json.loads(run("context", key, "--system", "Be kind.", "--json").stdout)

    assert found["messages"] == expected[0].messages
    assert (found["tokens"], found["nodes"], found["branch"], found["no"], found["through"]) == (expected[0].tokens, [3], 0, 4, 4)


def test_context_as_of_a_fact_is_the_one_of_then(run, live):
    key = live(three_turns_and_a_node)

    found = json.loads(run("context", key, "--as-of", 2, "--json").stdout)

    assert [message["content"] for message in found["messages"]] == ["first question", "first answer"]
    assert run("context", key, "--as-of", 99).exit_code == 1


def test_context_for_people_has_every_text_whole_and_inert(run, live):
    long_text = "word " * 500
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}

    async def act(session):
        await session.add_turns(
            [
                {"role": "user", "content": NASTY},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": long_text},
            ]
        )

    result = run("context", live(act))

    assert long_text.strip() in result.stdout
    assert '→ find {"a": 1}' in result.stdout
    assert "── tool  answers c1" in result.stdout
    assert "3 messages, " in result.stdout
    assert "\x1b" not in result.stdout


def test_a_context_over_the_budget_is_an_error_and_no_traceback(run, live):
    key = live(three_turns_and_a_node)

    result = run("context", key, "--budget-tokens", 1)

    assert result.exit_code == 1
    assert result.stderr.startswith("error: the context needs ")
    assert "Traceback" not in result.output


def test_a_namespace_is_looked_at_by_name(run, live):
    async def act(session):
        await session.namespace("scratch").add_turn("user", "aside")

    key = live(act)

    assert "aside" in run("turns", key, "--namespace", "scratch").stdout
    assert "aside" not in run("turns", key).stdout


@pytest.mark.parametrize("command", ["turns", "context", "tree", "verify"])
def test_looking_makes_nothing_and_says_what_there_is(run, live, key, command):
    missing = run(command, key)
    live(three_turns_and_a_node)
    other = run(command, key, "--namespace", "scratch")

    assert missing.exit_code == other.exit_code == 1
    assert missing.stderr == f"error: tenant 'default' has no session '{key}': see `pgmem sessions --tenant default`\n"
    assert other.stderr == f"error: session '{key}' has no namespace 'scratch': it has main\n"
    assert run(command, key).exit_code == 0


def test_an_untouched_tree_is_whole(run, live):
    result = run("verify", live(three_turns_and_a_node))

    assert (result.exit_code, result.stdout) == (0, "the chain is whole: every fact is as it was stored\n")


def test_an_edited_turn_is_found(run, server, own_database):
    url = server.on(own_database, "pgmem_app")

    async def act():
        async with pgmem.open(url) as memory:
            await three_turns_and_a_node(await memory.session("s"))

    asyncio.run(act())
    with psycopg.connect(server.on(own_database), autocommit=True) as owner:
        owner.execute("alter table pgmem.turns disable trigger all")
        owner.execute("update pgmem.turns set content = 'forged' where no = 2")

    result = run("verify", "s", "--url", url)

    assert result.exit_code == 1
    assert "breaks at fact 2" in result.stdout


async def a_flow(session):
    a, b = step("Explore", "hotel-explore"), step("Present")
    flow = await flow_of(a, b)(session).start()
    async with flow.exchange("show me") as x:
        await x.go(b, state={"hotels": ["[red]Miramar\x1b"]}, message="show me")


def test_stages_are_listed_with_steps_and_state(run, live):
    key = live(a_flow)

    shown = run("stages", key).stdout
    found = [json.loads(line) for line in run("stages", key, "--json").stdout.splitlines()]

    assert [(stage["no"], stage["step"], stage["entered"]) for stage in found] == [
        (1, "Explore", []),
        (2, "Explore", ["Explore"]),
        (3, "Present", ["Present"]),
    ]
    assert found[2]["state"] == {"hotels": ["[red]Miramar\x1b"]}
    assert "[red]Miramar\\u001b" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("command", ["tree", "context", "turns"])
def test_an_empty_main_names_the_namespaces_that_hold_something(run, live, command):
    key = live(a_flow)

    assert "this session has Present, hotel-explore: use --namespace" in run(command, key).stderr
    assert "this session has" not in run(command, key, "--namespace", "Present").stderr
