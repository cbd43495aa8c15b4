"""``pgmem compress``, ``maintain`` and ``revise``."""

import asyncio
import json
import re

import pytest

import pgmem
from pgmem.testing import ScriptedModel, failing, failure, hanging, passing, summary, text


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def scripted(run):
    """Runs ``pgmem`` with a scripted model behind --base-url; gives the result and what the model was asked."""

    def run_scripted(answers, *arguments):
        async def serve():
            async with ScriptedModel(answers) as endpoint:
                result = await asyncio.to_thread(run, *arguments, "--model", "m", "--base-url", endpoint.base_url)
                return result, endpoint.requests

        return asyncio.run(serve())

    return run_scripted


async def four_turns(session):
    roles = ("user", "assistant")
    await session.add_turns([{"role": roles[at % 2], "content": f"order A-551{at} costs {at}99 EUR"} for at in range(4)])


async def and_a_node(session):
    await four_turns(session)
    await session.compress(summary="nothing of it")


def sent(run, key):
    return [message["content"] for message in json.loads(run("context", key, "--json").stdout)["messages"]]


def test_a_summary_of_the_caller_s_own_stands_for_the_turns_up_to_a_position(run, live):
    key = live(four_turns)

    result = run("compress", key, "--summary", "Two orders.", "--label", "[red]orders", "--through", 2)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "node 5 stands for turns 1 to 2: 14 tokens, now 3\n"
    assert sent(run, key)[0].endswith("Two orders.")
    assert "“[red]orders”" in run("tree", key).stdout


def test_a_summary_of_a_file_is_kept_as_it_is(run, live, tmp_path):
    file = tmp_path / "summary.txt"
    file.write_bytes(b"  first\r\nsecond \n")
    key = live(four_turns)

    assert run("compress", key, "--summary-file", file).exit_code == 0
    assert sent(run, key)[0].endswith("\n  first\r\nsecond \n")


def test_tool_clear_asks_no_model_and_keeps_the_newest_turns(run, live):
    key = live(four_turns)

    result = run("compress", key, "--strategy", "tool_clear", "--keep-recent", 1)

    assert result.exit_code == 0
    assert "turns 1–3" in run("tree", key).stdout


def test_a_model_writes_the_summary_and_is_told_what_the_judge_said_of_the_last_one(run, scripted, live):
    key = live(and_a_node)
    run("maintain", key)

    result, requests = scripted([summary("All four orders.")], "compress", key, "--strategy", "llm")

    assert result.exit_code == 0
    assert "values that must be kept are gone" in requests[0].prompt
    assert sent(run, key)[0].endswith("All four orders.")


def test_nothing_to_compress_is_said_and_is_no_success(run, live):
    async def nothing(session):
        await session.add_turn("user", "a")
        await session.erase()

    result = run("compress", live(nothing), "--summary", "s")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "nothing was written: no active turn may be covered\n"


def test_a_model_that_fails_is_a_sentence_and_writes_nothing(scripted, run, live):
    key = live(four_turns)

    result, _ = scripted([failure(401, message="no such key")], "compress", key, "--strategy", "llm")

    assert result.exit_code == 1
    assert "\nerror: no summary for session" in result.stderr
    assert "Traceback" not in result.output
    assert len(sent(run, key)) == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "say how, in one way"),
        (["--summary", "s", "--strategy", "tool_clear"], "say how, in one way"),
        (["--summary-file", "missing.txt"], "No such file"),
        (["--summary-file", "binary.txt"], "not UTF-8 at byte 1"),
        (["--strategy", "llm"], "--strategy llm needs a model"),
        (["--base-url", "http://localhost:1/v1"], "--strategy llm needs a model"),
        (["--strategy", "tool_clear", "--model", "m"], "--model, --base-url and --timeout are for --strategy llm"),
        (["--summary", "s", "--model", "m"], "--model, --base-url and --timeout are for --strategy llm"),
        (["--strategy", "tool_clear", "--timeout", "5"], "--model, --base-url and --timeout are for --strategy llm"),
        (["--strategy", "llm", "--model", "m", "--timeout", "0"], "--timeout"),
        (["--strategy", "llm", "--model", "m", "--base-url", "http://localhost:1/v1", "--timeout", "nan"], "--timeout"),
        (["--strategy", "llm", "--model", "m", "--base-url", "ftp://x"], "base_url cannot be used"),
        (["--strategy", "magic"], "magic"),
    ],
)
def test_a_compress_that_cannot_work_is_a_usage_error(run, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.txt").write_bytes(b"a\xff")

    result = run("compress", "nowhere", *arguments)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", [["compress", "s", "--strategy", "llm"], ["maintain", "s", "--judge", "llm"]])
def test_without_a_key_openai_s_own_server_is_not_asked_and_no_option_takes_one(run, command):
    result = run(*command, "--model", "m")

    assert result.exit_code == 1
    assert result.stderr == "error: there is no key for OpenAI: set OPENAI_API_KEY, or name a server of your own with --base-url\n"
    assert not re.search(r"--\S*key", run(command[0], "--help").stdout)


def test_the_key_of_the_environment_is_what_the_server_gets(scripted, live, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")

    result, requests = scripted([summary("s")], "compress", live(four_turns), "--strategy", "llm")

    assert requests[0].headers["authorization"] == "Bearer sesame"
    assert "sesame" not in result.output


def test_coverage_fails_a_summary_that_lost_the_values_and_the_turns_are_sent_raw(run, live):
    key = live(and_a_node)

    result = run("maintain", key)

    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith("verdict 6 on node 5: fail by coverage: values that must be kept are gone: ")
    assert "  missing: A-5510" in lines
    assert lines[-1] == "branch 7 starts without node 5: turns 1 to 4 are active again"
    assert len(sent(run, key)) == 4


def test_a_fail_names_the_nodes_that_left_with_it(run, live):
    async def act(session):
        for summary_of in ("one", "two", "three"):
            await four_turns(session)
            await session.compress(summary=summary_of)

    lines = run("maintain", live(act), 10).stdout.splitlines()

    assert lines[-1] == ("branch 17 starts without node 10 and what was built on it, node 15: turns 6 to 14 are active again")


def test_a_fail_that_leaves_too_many_turns_says_what_stands_for_them_now_and_how_to_try_again(scripted, run, live):
    async def many(session):
        await session.add_turns([{"role": "user", "content": f"order A-551{at} costs {at}99 EUR"} for at in range(24)])
        await session.compress(summary="nothing of it")

    key = live(many)

    lines = run("maintain", key).stdout.splitlines()

    assert lines[-5:] == [
        "branch 27 starts without node 25: turns 1 to 24 are active again",
        "20 or more were active then, the policy's threshold: tool_clear made node 28 of turns 1 to 19 at once",
        "to have a model try again:",
        f"  pgmem revise {key} 28 --keep-turns",
        f"  pgmem compress {key} --strategy llm --model NAME",
    ]
    assert run("revise", key, 28, "--keep-turns").exit_code == 0
    _, requests = scripted([summary("Of all orders.")], "compress", key, "--strategy", "llm")
    assert "values that must be kept are gone" in requests[0].prompt


def test_coverage_judges_first_and_the_model_only_what_passes(scripted, run, live):
    both = ("--judge", "coverage", "--judge", "llm")
    key = live(and_a_node)

    failed, requests = scripted([passing()], "maintain", key, *both)

    assert failed.exit_code == 1
    assert requests == []
    assert failed.stderr == ""
    run("compress", key, "--strategy", "tool_clear")
    passed, requests = scripted([passing()], "maintain", key, 8, *both)
    assert re.fullmatch(r"verdict 9 on node 8: pass by .*llm \(m\): everything is there\n", passed.stdout)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("command", "answer"),
    [(["compress", "--strategy", "llm"], summary("All four orders.")), (["maintain", "--judge", "llm"], passing())],
)
def test_who_is_asked_and_for_how_long_is_said_on_standard_error(scripted, live, command, answer):
    key = live(four_turns if command[0] == "compress" else and_a_node)

    result, _ = scripted([answer], command[0], key, *command[1:], "--timeout", 7)

    assert re.fullmatch(r"asking m at http://127\.0\.0\.1:\d+/v1: at most 7 s a request, 300 s in all\n", result.stderr)
    assert "asking" not in result.stdout


def test_nobody_is_asked_where_there_is_nothing_to_ask(scripted, live):
    async def nothing(session):
        await session.add_turn("user", "a")
        await session.erase()

    result, requests = scripted([summary("s")], "compress", live(nothing), "--strategy", "llm")

    assert requests == []
    assert result.stderr == "nothing was written: no active turn may be covered\n"


def test_a_password_in_the_servers_url_is_refused_and_not_shown(run, live):
    place = ("--model", "m", "--base-url", "http://ada:sesame@127.0.0.1:9/v1", "--timeout", "0.1")

    result = run("compress", live(four_turns), *place)

    assert result.exit_code == 2
    assert "holds a user or a password" in result.stderr
    assert "sesame" not in result.output


def test_a_judge_that_says_nothing_of_use_is_asked_again_by_a_command(scripted, live):
    result, _ = scripted([text("garbage")], "maintain", live(and_a_node), "--judge", "llm")

    assert result.exit_code == 1
    assert result.stderr.endswith("the node stays pending, run `pgmem maintain` again\n")


def test_a_server_that_hangs_is_given_up_after_the_timeout(scripted, run, live):
    key = live(four_turns)

    result, requests = scripted([hanging()], "compress", key, "--timeout", "0.2")

    assert result.exit_code == 1
    assert "at most 0.2 s a request" in result.stderr
    assert "error: no summary for session" in result.stderr
    assert requests


def test_a_model_that_is_named_is_the_way_to_compress(scripted, run, live):
    key = live(four_turns)

    result, _ = scripted([summary("All four orders.")], "compress", key)

    assert result.exit_code == 0
    assert sent(run, key)[0].endswith("All four orders.")


def test_one_turn_and_one_token_are_said_in_the_singular(run, live):
    async def one(session):
        await session.add_turn("user", "a")

    key = live(one)

    assert "── user  1 token\n" in run("context", key).stdout
    assert "1 message, 1 token, as of fact 1" in run("context", key).stdout
    assert "1 turn verbatim, 1 token\n" in run("tree", key).stdout
    assert run("compress", key, "--summary", "b").stdout == "node 2 stands for turn 1: 1 token, now 1\n"
    assert "turn 1, 1 token " in run("tree", key).stdout


def test_a_model_judges_a_named_node_and_a_pass_is_success(scripted, run, live):
    key = live(and_a_node)

    result, requests = scripted([passing("fine\x1b[2J")], "maintain", key, 5, "--judge", "llm")

    assert (result.exit_code, result.stdout) == (0, "verdict 6 on node 5: pass by llm (m): fine\\x1b[2J\n")
    assert requests[0].asks_for == "judgement"
    assert run("maintain", key).stdout == "no node waits for a verdict; what tool_clear made is judged when you name it\n"


def test_a_model_s_fail_names_what_is_missing(scripted, live):
    result, _ = scripted([failing("no prices", ["299 EUR"])], "maintain", live(and_a_node), "--judge", "llm")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == ["verdict 6 on node 5: fail by llm (m): no prices", "  missing: 299 EUR"]


def test_revise_goes_back_to_a_turn_and_the_next_context_has_the_note(run, live):
    key = live(four_turns)

    result = run("revise", key, "--after-turn", 2, "--note", "names\x1b do not work", "--actor", "ada")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "branch 5 starts at the root: what stands from 3 to 4 is left behind",
        "the next context says: prior attempt: names\\x1b do not work",
    ]
    hint, *turns = sent(run, key)
    assert "prior attempt, left at turn 3: names" in hint
    assert len(turns) == 2
    assert "branch 5  revise by ada" in run("tree", key).stdout


def test_revise_can_leave_a_node_and_keep_its_turns(run, live):
    key = live(and_a_node)

    result = run("revise", key, 5, "--keep-turns")

    assert result.stdout == "branch 6 starts at the root: no turn is left behind\n"
    assert len(sent(run, key)) == 4


def test_revise_after_a_node_keeps_it(run, live):
    async def act(session):
        await and_a_node(session)
        await session.add_turn("user", "past it")

    key = live(act)

    assert run("revise", key, "--after", 5).stdout == "branch 7 starts after node 5: what stands at 6 is left behind\n"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["5", "--after-turn", "2"], 2, "name one point to go back to: NODE, --after or --after-turn"),
        (["99"], 1, "99"),
        (["--after-turn", "99"], 1, "has no turn 99; see `pgmem turns "),
        (["--note", "  "], 1, "the note is blank"),
    ],
)
def test_a_revise_that_cannot_work_says_why_and_writes_nothing(run, live, arguments, code, reason):
    key = live(and_a_node)
    before = run("tree", key).stdout

    result = run("revise", key, *arguments)

    assert result.exit_code == code
    assert reason in " ".join(result.stderr.split())
    assert run("tree", key).stdout == before


async def every_kind(session):
    """Turns 1 to 4, node 5, verdict 6, branch 7, turns 8 to 9, branch 10 that left 9, node 11, turn 12."""
    await and_a_node(session)
    await session.maintain(judge="coverage")
    await session.add_turns([{"role": "user", "content": "more"}, {"role": "assistant", "content": "and more"}])
    await session.revise(after_turn=8)
    await session.compress(summary="All of it.")
    await session.add_turn("user", "past it")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["maintain", 3], "has no node 3: 3 is a turn that node 11 stands for; see `{tree}`"),
        (["maintain", 12], "has no node 12: 12 is a turn; see `{tree}`"),
        (["maintain", 6], "has no node 6: 6 is the verdict on node 5; see `{tree}`"),
        (["maintain", 7], "has no node 7: 7 is a branch; see `{tree}`"),
        (["maintain", 99], "has no node 99; see `{tree}`"),
        (["revise", 12], "has no node 12: 12 is a turn, use --after-turn; see `{tree}`"),
        (["revise", "--after", 3], "has no node 3: 3 is a turn that node 11 stands for, use --after-turn; see `{tree}`"),
        (["revise", "--after-turn", 11], "has no turn 11: 11 is a node, use --after; see `{turns}`"),
        (["revise", "--after-turn", 6], "has no turn 6: 6 is the verdict on node 5; see `{turns}`"),
        (["revise", "--after-turn", 9], "turn 9 is abandoned: name one that is active or compressed, see `{turns}`"),
        (["revise", "--after-turn", 99], "has no turn 99; see `{turns}`"),
        (["revise", 5], "node 5 is failed and its turns are not active: name one that is on the path, see `{tree}`"),
    ],
)
def test_a_position_that_is_something_else_is_said_to_be_it(run, live, arguments, reason):
    async def act(session):
        await every_kind(session.namespace("scratch"))

    key = live(act)
    rest = f"{key} --namespace scratch"

    result = run(arguments[0], key, *arguments[1:], "--namespace", "scratch")

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(reason.format(tree=f"pgmem tree {rest}", turns=f"pgmem turns {rest}") + "\n")
    assert "()" not in result.stderr


def test_a_session_without_a_node_is_revised_by_a_turn(run, live):
    key = live(four_turns)

    result = run("revise", key)

    assert result.exit_code == 1
    assert result.stderr.endswith(f"has no node to revise: name a turn with --after-turn, see `pgmem turns {key}`\n")


def test_the_commands_that_an_error_names_can_be_typed(run, app_url, key):
    async def act():
        async with pgmem.open(app_url, tenant=key) as memory:
            await four_turns(await memory.session(f"it's {key}"))

    asyncio.run(act())

    result = run("maintain", f"it's {key}", 99, "--tenant", key)

    assert f"`pgmem tree 'it'\"'\"'s {key}' --tenant {key}`" in result.stderr


@pytest.mark.parametrize("command", [["compress", "--summary", "s"], ["maintain"], ["revise"]])
def test_no_command_makes_a_session_or_a_namespace(run, key, live, command):
    missing = run(command[0], key, *command[1:])
    live(four_turns)
    other = run(command[0], key, *command[1:], "--namespace", "scratch")

    assert missing.exit_code == other.exit_code == 1
    assert missing.stderr.startswith(f"error: tenant 'default' has no session '{key}'")
    assert other.stderr == f"error: session '{key}' has no namespace 'scratch': it has main\n"


def test_they_work_in_a_namespace_of_another_tenant(run, live, key):
    async def act(session):
        await four_turns(session.namespace("scratch"))

    place = [live(act, tenant=key), "--namespace", "scratch", "--tenant", key]

    assert run("compress", *place, "--summary", "nothing of it").exit_code == 0
    assert run("maintain", *place).exit_code == 1
    assert run("revise", *place).exit_code == 0
