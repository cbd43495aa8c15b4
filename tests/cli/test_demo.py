"""``pgmem demo``: it runs, and what it claims is so."""

import asyncio
import dataclasses
import json
import re

import pytest

import pgmem
from pgmem.cli.demo import pages, story
from pgmem.cli.demo import task as task_module
from pgmem.cli.demo.audit import ask
from pgmem.cli.demo.pages import Place
from pgmem.cli.demo.story import HEADING, POLICY, SCRATCH, Story, conversations, live
from pgmem.cli.demo.task import NOTE, Task, live_task
from pgmem.settings import Settings
from pgmem.testing import failing, passing, summary

PLACE = Place("your Postgres", "", "psql", "")


@pytest.fixture
def told(app_url, key) -> Story:
    async def tell():
        async with pgmem.open(app_url, tenant="demo", policy=POLICY) as memory:
            return await live(memory, key)

    return asyncio.run(tell())


@pytest.fixture
def task(app_url, key) -> Task:
    return asyncio.run(live_task(app_url, tenant="demo", key=f"{key}/task"))


def test_the_demo_runs_on_a_given_server_and_shows_all_its_parts(run):
    result = run("demo")

    assert result.exit_code == 0, result.output
    heads = re.findall(r"^── (.+?) ─", result.stdout, re.MULTILINE)
    assert heads == [
        "Tokens",
        "What the model is sent",
        "What it still knows",
        "The tree",
        "Any context of the past",
        "A namespace, erased",
        "A summary that drops a decision",
        "Raw turns in its place",
        "The second attempt, with a hint",
        "An attempt that is left behind",
        "All of it in one tree",
        "Audit by SQL",
        "Go on",
    ]
    assert "the same, byte for byte" in result.stdout
    assert "whole, no fact was edited" in result.stdout
    assert "It is scripted" in result.stdout
    assert "4 messages" in result.stdout
    assert "0 messages" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "\x1b" not in result.stdout
    assert result.stderr == "Playing the conversation, a few seconds more ...\n"


@pytest.mark.parametrize("there", [True, False])
def test_the_demo_says_how_the_command_is_found_where_the_shell_finds_none(run, monkeypatch, there):
    monkeypatch.setattr("shutil.which", lambda name: "/bin/pgmem" if there else None)

    shown = run("demo").stdout

    assert (re.search(r"^  \. \S*bin/activate$", shown, re.MULTILINE) is None) == there


def test_what_the_demo_ends_with_can_be_run(run):
    shown = run("demo").stdout
    tree, second_tree = re.findall(r"^  pgmem (tree \S+ --tenant demo)$", shown, re.MULTILINE)
    turns = re.search(r"^  pgmem (turns \S+ --tenant demo)", shown, re.MULTILINE)[1]

    assert "● node" in run(*tree.split()).stdout
    assert "verdict 13  pass by llm (scripted)" in run(*second_tree.split()).stdout
    assert len(run(*turns.split()).stdout.splitlines()) == 50


def test_two_runs_say_the_same_but_for_keys_and_times(run):
    def shown():
        return re.sub(r"20\d\d\d\d\d\dT[\d.]+Z|20\d\d-\d\d-\d\d [\d:]+\+0000", "WHEN", run("demo").stdout)

    assert shown() == shown()


def test_the_conversation_is_small_and_compacts_several_times(told):
    main, side_track = conversations()
    turns = [*main.turns(), *side_track.turns()]

    assert main.system is not None
    assert sum(len(json.dumps(message)) for _, message in turns) < 40_000
    assert told.figures.turns == len(list(main.turns())) == 49
    assert told.figures.nodes >= 4
    assert told.figures.reduction > 0.4


def test_the_last_tool_call_s_ids_come_out_of_the_memory(told):
    recalled = told.recalled
    (sent,) = [moment.context for moment in told.moments if moment.call == len(told.moments) - 1]
    verbatim = [json.dumps(message) for message in sent.messages if not str(message["content"]).startswith(HEADING)]

    assert len(recalled.values) == 12
    assert len(recalled.kept) >= 10
    assert all(value in recalled.memory for value in recalled.kept)
    assert not any(value in text for value in recalled.values for text in verbatim)


def test_the_moments_are_before_in_the_middle_and_at_the_end(told):
    before, middle, end = told.shown()

    assert (before.context.nodes, before.sent_tokens) == ((), before.full_tokens)
    assert middle.context.nodes
    assert end is told.moments[-1]
    assert end.sent_tokens < end.full_tokens / 2


def test_equality_with_the_past_is_computed(told, task, capsys, monkeypatch, app_url, key):
    class Forgetful(pgmem.Session):
        async def context(self, system=None, *, budget_tokens=None, as_of=None):
            built = await super().context(system, budget_tokens=budget_tokens, as_of=as_of)
            return built if as_of is None else dataclasses.replace(built, messages=built.messages[:-1])

    async def tell():
        async with pgmem.open(app_url, tenant="demo", policy=POLICY) as memory:
            return await live(memory, key + "-forgetful")

    monkeypatch.setattr("pgmem.memory.memory.Session", Forgetful)
    forged = asyncio.run(tell())
    pages.show(forged, task, (), place=PLACE)

    assert told.rebuilt_equal
    assert not forged.rebuilt_equal
    assert "NOT the same" in capsys.readouterr().out


def test_the_erased_namespace_is_empty_and_its_turns_are_there(told):
    erasure = told.erasure

    assert len(erasure.before.messages) == 4
    assert erasure.after.messages == []
    assert [turn.status for turn in erasure.turns] == ["erased"] * 4
    assert erasure.shape.namespace == SCRATCH


def test_the_summary_that_drops_the_decision_fails_and_its_turns_are_sent_raw(task):
    first = task.first

    assert "Maren decided" not in first.node.summary
    assert (first.verdict.outcome, first.verdict.judge, len(first.verdict.missing)) == ("fail", "llm", 2)
    assert [len(first.shown.messages), len(first.after.messages)] == [2, 8]
    assert "rate-engine depends on its limit of 4" in json.dumps(first.after.messages)
    assert first.after.tokens > first.shown.tokens


def test_the_second_request_has_the_judge_s_words_and_its_summary_passes(task):
    told = "\n".join(task.told)

    assert task.first.verdict.reason in told
    assert all(item in told for item in task.first.verdict.missing)
    assert "<<" not in told
    assert (task.second.verdict.outcome, task.requests) == ("pass", 4)
    assert "Maren decided" in json.dumps(task.second.after.messages)


def test_the_attempt_that_is_left_is_a_prior_attempt_in_the_next_context(task):
    sent = json.dumps(task.next.messages)

    assert (task.branch.note, task.branch.actor, task.branch.base) == (NOTE, task_module.ACTOR, task.second.node.no)
    assert f"prior attempt, left at turn {task.branch.left_from}: {NOTE}" in sent
    assert "chg-90301 is open" not in sent


def test_the_demo_shows_what_the_model_says_and_not_what_it_should_say(app_url, key, monkeypatch, capsys, told):
    script = (summary("A first text."), failing("Too short."), summary("A second text."), passing("Good enough."))
    monkeypatch.setattr(task_module, "SCRIPT", script)

    other = asyncio.run(live_task(app_url, tenant="demo", key=f"{key}/other"))
    pages.show(told, other, (), place=PLACE)

    shown = capsys.readouterr().out
    assert "A first text." in shown
    assert "verdict: fail. Too short." in shown
    assert "Too short." in "\n".join(other.told)
    assert "verdict: pass. Good enough." in shown


def test_the_audit_is_asked_as_the_reader_who_sees_views_only(told, server, database):
    reader = server.on(database, "pgmem_reader")

    where, who, erased = asyncio.run(ask(reader, Settings(), told.key))

    assert {row["asked_by"] for row in where.rows} == {"pgmem_reader"}
    assert [(row["namespace"], row["status"]) for row in where.rows] == [
        ("main", "active"),
        ("main", "compressed"),
        ("scratch", "erased"),
    ]
    assert sum(row["turns"] for row in where.rows) == 53
    assert all("chg-90257" in message for message in _contents(told, who))
    assert {row["actor"] for row in erased.rows} == {story.ACTOR}
    assert all(len(line) <= 98 for answer in (where, who, erased) for line in answer.statement.splitlines())


def _contents(told, who):
    numbers = [row["no"] for row in who.rows]
    assert len(numbers) >= 4
    main, _ = conversations()
    turns = [json.dumps(message) for _, message in main.turns()]
    nodes = sorted(node.no for node in told.shape.nodes)
    return [turns[no - 1 - sum(node < no for node in nodes)] for no in numbers]
