"""``pgmem replay``."""

import asyncio
import json
import re
from pathlib import Path

import pytest

import pgmem
from pgmem.domain.tokens import count_tokens
from pgmem.testing import ScriptedModel, failure, summary, text
from tests.cli.conftest import talk

DATA = Path(__file__).parents[3] / "shared" / "data"

CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"id": "ORDER-77123"}'}}
WITH_TOOLS = {
    "messages": [
        {"role": "user", "content": "where is it?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "it is in DEPOT-9"},
        {"role": "assistant", "content": "in DEPOT-9"},
    ]
}


def figures(result):
    return json.loads(result.stdout)


def test_conversations_are_played_and_counted(run, write):
    file = write(talk(12), WITH_TOOLS)

    result = run("replay", file, "--threshold", 6, "--keep-recent", 2, "--json")

    found = figures(result)
    assert result.exit_code == 0
    assert (found["conversations"], found["turns"], found["contexts"], found["skipped"]) == (2, 16, 8, [])
    assert found["nodes"] == 2
    assert found["round_trips"] > 2 * 16 + 8
    assert found["append_ms"]["median"] > 0
    assert found["context_ms"]["p95"] >= found["context_ms"]["median"]


def test_the_full_history_is_what_came_before_each_assistant_message_without_the_prompt(run, write):
    file = write(talk(4, system="A prompt of some length, sent with each context."))
    sizes = [count_tokens(message["content"]) for message in talk(4)["messages"][1:]]

    found = figures(run("replay", file, "--json"))

    assert found["tokens_full"] == found["tokens_sent"] == sizes[0] + sum(sizes[:3])
    assert found["reduction"] == 0.0
    assert found["largest_context_tokens"] == sum(sizes[:3])


def test_every_context_is_dumped_with_its_place_and_what_would_have_been_sent(run, write, tmp_path):
    conversation = talk(30)
    file, dump = write(b"", conversation), tmp_path / "contexts.jsonl"

    result = run("replay", file, "--threshold", 6, "--keep-recent", 2, "--dump", dump)

    contexts = [json.loads(line) for line in dump.read_text().splitlines()]
    messages = conversation["messages"]
    assert result.exit_code == 0
    places = [(context["conversation"], context["index"]) for context in contexts]
    assert places == [(1, at) for at, message in enumerate(messages) if message["role"] == "assistant"]
    for context in contexts:
        sent, history = context["messages"], messages[1 : context["index"]]
        assert sent[0] == messages[0]
        verbatim = [message for message in sent[1:] if message in history]
        assert verbatim == [message for message in history if message in verbatim]
        assert sent[-1] == history[-1]
        assert len(sent) - 1 - len(verbatim) in (0, 1)
    assert contexts[-1]["messages"][1]["content"].startswith("Conversation memory")


def test_a_bad_line_is_named_skipped_as_a_whole_and_the_exit_code_says_so(run, write):
    half_good = {"messages": [{"role": "user", "content": "kept out"}, {"role": "robot", "content": "x"}]}
    file = write(talk(2), half_good, b"\xff\xfe", talk(2), name="mixed lines.jsonl")

    result = run("replay", file, "--json")

    found = figures(result)
    assert result.exit_code == 1
    assert (found["conversations"], found["turns"]) == (2, 4)
    assert [(bad["conversation"], bad["line"]) for bad in found["skipped"]] == [(1, 2), (2, 3)]
    assert "skipped: conversation 1 (line 2): messages[1]: the role 'robot'" in result.stderr
    assert "skipped: conversation 2 (line 3): not UTF-8 at byte 0" in result.stderr
    sessions = run("sessions", "replay/mixed lines/", "--tenant", "replay", "--json").stdout
    assert [json.loads(line)["key"].rsplit("/", 1)[1] for line in sessions.splitlines()] == ["0", "3"]


def test_a_context_over_the_budget_is_counted_and_left_out_and_the_conversation_goes_on(run, write, tmp_path):
    file, dump = write(talk(6)), tmp_path / "contexts.jsonl"
    size = count_tokens("Be kind.") + count_tokens(talk(1)["messages"][1]["content"])

    result = run("replay", file, "--budget-tokens", size, "--dump", dump, "--json")

    found = figures(result)
    assert result.exit_code == 0
    assert (found["turns"], found["contexts"], found["over_budget"]) == (6, 1, 2)
    assert len(dump.read_text().splitlines()) == 1


def test_messages_that_no_text_can_hold_are_played_and_dumped(run, write, tmp_path):
    odd = "\ud83d\x00\x1b[2J"
    file = write({"messages": [{"role": "user", "content": odd}, {"role": "assistant", "content": "?"}]})
    dump = tmp_path / "contexts.jsonl"

    result = run("replay", file, "--dump", dump)

    assert result.exit_code == 0
    assert json.loads(dump.read_text())["messages"] == [{"role": "user", "content": odd}]


def test_the_table_has_every_figure_and_no_colour_in_a_pipe(run, write):
    result = run("replay", write(talk(8)), "--threshold", 4, "--keep-recent", 2)

    lines = dict(line.rsplit("  ", 1) for line in result.stdout.splitlines() if line.strip())
    names = {name.strip() for name in lines}
    assert {"conversations", "turns added", "nodes made", "tokens sent", "reduction", "round trips"} <= names
    assert "\x1b" not in result.output


def test_each_run_has_sessions_of_its_own(run, write):
    file = write(talk(2), name="twice.jsonl")

    run("replay", file)
    run("replay", file)

    keys = [
        json.loads(line)["key"] for line in run("sessions", "replay/twice/", "--tenant", "replay", "--json").stdout.splitlines()
    ]
    assert len(set(keys)) == len(keys) == 2


@pytest.fixture
def scripted(run, monkeypatch):
    """Runs a replay with a scripted model that writes the summaries; gives the result and what the model was asked."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run_scripted(answers, *arguments):
        async def serve():
            async with ScriptedModel(answers) as endpoint:
                options = ("--strategy", "llm", "--model", "m", "--base-url", endpoint.base_url)
                return await asyncio.to_thread(run, "replay", *arguments, *options), endpoint.requests

        return asyncio.run(serve())

    return run_scripted


def test_a_model_writes_the_summaries_and_what_it_read_and_wrote_is_counted(scripted, write, tmp_path):
    file, dump = write(talk(8), talk(8)), tmp_path / "contexts.jsonl"
    answer = summary("The gist.").counting(input_tokens=100, output_tokens=7)

    result, requests = scripted([answer], file, "--threshold", 6, "--keep-recent", 2, "--dump", dump, "--json")

    found = figures(result)
    assert result.exit_code == 0
    assert (found["nodes"], found["model_calls"], len(requests), found["no_summary"]) == (2, 2, 2, 0)
    assert (found["model_input_tokens"], found["model_output_tokens"]) == (200, 14)
    assert json.loads(dump.read_text().splitlines()[-1])["messages"][1]["content"].endswith("The gist.")


def test_the_table_shows_what_the_model_did_only_when_one_was_asked(scripted, run, write):
    file = write(talk(8))

    with_model, _ = scripted([summary("The gist.")], file, "--threshold", 6, "--keep-recent", 2)

    assert "model calls that made a node" in with_model.stdout
    assert "model" not in run("replay", file).stdout


def test_a_summary_that_cannot_stand_is_counted_and_the_conversation_goes_on(scripted, write):
    result, _ = scripted([summary("  ")], write(talk(8)), "--threshold", 8, "--keep-recent", 2, "--json")

    found = figures(result)
    assert result.exit_code == 0
    assert (found["turns"], found["nodes"], found["no_summary"], found["model_calls"]) == (8, 0, 1, 0)


def test_why_there_was_no_summary_is_said_with_how_often(scripted, write):
    file = write(*[talk(8)] * 3)
    answers = [text("garbage\x1b")] * 6 + [summary("  ")]
    options = (file, "--threshold", 8, "--keep-recent", 2)

    shown, _ = scripted(answers, *options)
    counted, _ = scripted(answers, *options, "--json")

    assert [line.split()[-1] for line in shown.stdout.splitlines() if line.startswith("compactions without")] == ["3"]
    last = shown.stdout.splitlines()[-1]
    assert re.match(r"no summary, most often \(2 of 3 times\): ModelAnswerInvalid: m at http://.* could not be understood: ", last)
    assert "\x1b" not in shown.stdout
    causes = figures(counted)["no_summary_causes"]
    assert [(cause["error"], cause["times"]) for cause in causes] == [("ModelAnswerInvalid", 2), ("EmptySummary", 1)]
    assert "could not be understood" in causes[0]["first"]


def test_what_the_model_read_and_wrote_is_said_to_be_for_what_made_nodes(scripted, write):
    result, _ = scripted([summary("  ")], write(talk(8)), "--threshold", 8, "--keep-recent", 2)

    names = [line.rsplit("  ", 1)[0].strip() for line in result.stdout.splitlines()]
    assert {"model calls that made a node", "tokens read for these nodes", "tokens written for these nodes"} <= set(names)


def test_the_help_lists_the_strategies(run):
    assert "tool_clear|llm" in run("replay", "--help").stdout


def test_who_is_asked_is_said_once_on_standard_error(scripted, write):
    result, requests = scripted(
        [summary("The gist.")], write(talk(8), talk(8)), "--threshold", 6, "--keep-recent", 2, "--json", "--timeout", 9
    )

    assert len(requests) == 2
    assert re.fullmatch(r"asking m at http://127\.0\.0\.1:\d+/v1: at most 9 s a request, 300 s in all\n", result.stderr)
    assert figures(result)["nodes"] == 2


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(run, write, monkeypatch):
    monkeypatch.setattr("pgmem.cli.replay.TOLD_EVERY_SECONDS", 0.001)

    result = run("replay", write(*[talk(30)] * 3), "--json")

    lines = result.stderr.splitlines()
    assert lines
    assert all(re.fullmatch(r"[0-3] of 3 conversations, \d+ turns?, \d+ s", line) for line in lines)
    assert figures(result)["turns"] == 90


def test_a_server_that_refuses_ends_the_replay_with_a_sentence(scripted, write):
    result, _ = scripted([failure(401, message="no such key")], write(talk(8)), "--threshold", 6, "--keep-recent", 2, "--json")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "\nerror: no summary for session" in result.stderr


@pytest.mark.parametrize("error", [pgmem.StaleTree("it moved on"), KeyError("of ours")], ids=["ours", "unexpected"])
def test_a_conversation_that_fails_is_named_and_counted_and_the_next_one_goes_on(run, write, monkeypatch, error):
    compact, calls = pgmem.Session.compact, []

    async def failing_once(session):
        calls.append(session.key)
        if len(calls) == 3:
            raise error
        return await compact(session)

    monkeypatch.setattr(pgmem.Session, "compact", failing_once)
    file = write(talk(6), talk(6))

    result = run("replay", file, "--json")

    found = figures(result)
    assert result.exit_code == 1
    assert (found["conversations"], found["turns"], found["skipped"]) == (2, 3 + 6, [])
    assert [(bad["conversation"], bad["line"]) for bad in found["failed"]] == [(0, 1)]
    assert "failed: conversation 0 (line 1): " in result.stderr
    assert str(error) in found["failed"][0]["reason"]


def test_a_database_that_fails_ends_the_replay(run, write, monkeypatch):
    async def compact(session):
        raise pgmem.DatabaseUnavailable("the server is gone")

    monkeypatch.setattr(pgmem.Session, "compact", compact)

    result = run("replay", write(talk(2), talk(2)), "--json")

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "error: the server is gone\n")


def test_a_file_that_holds_no_conversation_is_no_success(run, write):
    result = run("replay", write(b"", b""))

    assert result.exit_code == 1
    assert "holds no conversation that can be played" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.jsonl"], "No such file"),
        (["."], "Is a directory"),
        (["binary.jsonl"], "binary file"),
        (["good.jsonl", "--dump", "good.jsonl"], "is the file that is played"),
        (["good.jsonl", "--dump", "no/such/folder"], "cannot be written"),
        (["good.jsonl", "--threshold", "3", "--keep-recent", "3"], "keep_recent must be below it"),
        (["good.jsonl", "--strategy", "magic"], "'magic' is not one of 'tool_clear', 'llm'"),
        (["good.jsonl", "--strategy", "llm"], "--strategy llm needs a model"),
        (["good.jsonl", "--model", "m"], "--model, --base-url and --timeout are for --strategy llm"),
        (["good.jsonl", "--budget-tokens", "0"], "--budget-tokens"),
        ([], "Missing argument"),
    ],
)
def test_a_command_line_that_cannot_work_is_refused_before_anything_is_done(run, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    good = json.dumps(talk(2))
    (tmp_path / "good.jsonl").write_text(good)
    (tmp_path / "binary.jsonl").write_bytes(b"\x1f\x8b\0\0")

    result = run("replay", *arguments)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert (tmp_path / "good.jsonl").read_text() == good


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not here")
def test_real_conversations_leave_no_context_out_and_get_shorter(run, tmp_path):
    whole = DATA / "tau_airline" / "trajectories.jsonl"
    file, dump = tmp_path / "some.jsonl", tmp_path / "contexts.jsonl"
    lines = whole.read_text().splitlines()[::6]
    file.write_text("\n".join(lines))

    found = figures(run("replay", file, "--threshold", 8, "--keep-recent", 4, "--dump", dump, "--json"))

    assistants = sum(message["role"] == "assistant" for line in lines for message in json.loads(line)["messages"])
    assert found["contexts"] == len(dump.read_text().splitlines()) == assistants
    assert found["reduction"] > 0.25
