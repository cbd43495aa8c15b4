"""``pgmem tree`` and the picture that it draws."""

import io
import re
from datetime import UTC, datetime

from rich.console import Console

import pgmem
from pgmem import Branch, Cause, Node, NodeStatus, Outcome, Strategy, TurnStatus, Verdict
from pgmem.cli.drawing import Run, Shape, draw

NOW = datetime(2031, 3, 12, tzinfo=UTC)


def node(no, first_no, last_no, *, branch=0, parent=None, status=NodeStatus.PENDING, cumulative=True, label=None):
    return Node(
        no=no,
        branch=branch,
        parent=parent,
        first_no=first_no,
        last_no=last_no,
        kind="topic",
        label=label,
        strategy=Strategy.TOOL_CLEAR,
        summary="s",
        cumulative=cumulative,
        tokens=10,
        source_tokens=1000,
        model=None,
        prompt_version=None,
        created_at=NOW,
        status=status,
    )


def branch(no, cause, *, base=None, note=None, actor=None):
    return Branch(no=no, cause=cause, base=base, left_from=1, left_to=no - 1, note=note, actor=actor, created_at=NOW)


def verdict(no, of, outcome, *, reason=None, missing=(), judge="coverage", model=None, reopened=None):
    return Verdict(
        no=no,
        node=of,
        outcome=outcome,
        reason=reason,
        missing=missing,
        judge=judge,
        model=model,
        prompt_version=None,
        created_at=NOW,
        reopened=reopened,
    )


def drawn(shape):
    page = Console(file=io.StringIO(), width=200)
    page.print(draw(shape))
    return [line.rstrip() for line in page.file.getvalue().splitlines()]


def shape(nodes=(), path=(), shown=(), branches=(), runs=(), verdicts=()):
    sets = frozenset(path), frozenset(shown)
    return Shape("s", "main", tuple(nodes), *sets, tuple(branches), tuple(runs), tuple(verdicts))


def test_a_tree_without_facts_says_so():
    assert drawn(shape()) == ["s  namespace main", "└── nothing yet"]


def test_nodes_are_marked_by_what_the_model_sees_of_them_and_active_turns_come_last():
    lines = drawn(
        shape(
            nodes=[node(3, 1, 2, label="[b]one[/b]"), node(6, 4, 5, parent=3)],
            path=[3, 6],
            shown=[6],
            runs=[Run(0, TurnStatus.ACTIVE, 7, 9, 3, 42)],
        )
    )

    assert lines == [
        "s  namespace main",
        "├── ◐ node 3  pending  turns 1–2, 1,000 tokens  → memory of 10 (tool_clear)  “[b]one[/b]”",
        "├── ● node 6  pending  turns 4–5, 1,000 tokens  → memory of 10 (tool_clear)",
        "└── ● turns 7–9  active  3 turns verbatim, 42 tokens",
    ]


def test_a_branch_hangs_from_the_node_where_it_starts():
    lines = drawn(
        shape(
            nodes=[node(3, 1, 2), node(6, 4, 5, parent=3, status=NodeStatus.ABANDONED), node(10, 8, 9, branch=7, parent=3)],
            path=[3, 10],
            shown=[10],
            branches=[branch(7, Cause.REVISE, base=3, note="wrong way", actor="ada")],
            runs=[Run(7, TurnStatus.ACTIVE, 11, 11, 1, 5)],
        )
    )

    assert [line[:34].rstrip() for line in lines] == [
        "s  namespace main",
        "├── ◐ node 3  pending  turns 1–2,",
        "│   └── branch 7  revise by ada, “",
        "│       ├── ● node 10  pending  tu",
        "│       └── ● turn 11  active  1 t",
        "└── ○ node 6  abandoned  turns 4–5",
    ]


def test_an_erased_tree_shows_what_was_left_behind_and_the_branch_that_began(run, live):
    async def act(session):
        await session.add_turns([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
        await session.compress(summary="s")
        await session.add_turn("user", "c")
        await session.erase(actor="[red]ada")
        await session.add_turn("user", "d")

    result = run("tree", live(act))

    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[1].startswith("├── ○ node 3  abandoned  turns 1–2, 2 tokens  → summary of 1 (given)")
    assert lines[2].startswith("├── ○ turn 4  erased  1 token")
    assert lines[3].startswith("└── branch 5  erase by [red]ada, ")
    assert lines[4].startswith("    └── ● turn 6  active  1 turn verbatim, 1 token")


def test_only_the_newest_cumulative_node_is_marked_as_shown(run, live):
    async def act(session):
        for at in range(3):
            await session.add_turns([{"role": "user", "content": f"{at}"}, {"role": "assistant", "content": "b"}])
            await session.compress(summary="s", cumulative=at == 1)

    marks = [line[4] for line in run("tree", live(act)).stdout.splitlines() if " node " in line]

    assert marks == ["◐", "●", "●"]


def test_a_verdict_is_drawn_under_its_node_and_the_reopen_points_at_it(run):
    lines = drawn(
        shape(
            nodes=[node(3, 1, 2, status=NodeStatus.FAILED), node(6, 1, 2, branch=5, status=NodeStatus.COMPRESSED)],
            path=[6],
            shown=[6],
            branches=[branch(5, Cause.REOPEN, note="drops the price")],
            verdicts=[
                verdict(4, 3, Outcome.FAIL, reason="drops\x1b[2J the price", missing=("299 EUR", "a\nb"), reopened=5),
                verdict(7, 6, Outcome.PASS, judge="llm", model="m-1"),
            ],
        )
    )

    assert lines == [
        "s  namespace main",
        "├── ○ node 3  failed  turns 1–2, 1,000 tokens  → memory of 10 (tool_clear)",
        "│   └── verdict 4  fail by coverage: “drops\\x1b[2J the price”; missing: 299 EUR; a b",
        "└── branch 5  reopen after verdict 4, 2031-03-12 00:00:00+0000",
        "    └── ● node 6  compressed  turns 1–2, 1,000 tokens  → memory of 10 (tool_clear)",
        "        └── verdict 7  pass by llm (m-1)",
    ]


def test_a_failed_node_is_dimmed_and_its_status_is_red():
    page = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="standard")
    page.print(draw(shape(nodes=[node(3, 1, 2, status=NodeStatus.FAILED)])))

    assert "\x1b[2;31mfailed" in page.file.getvalue().replace("  failed", "failed")


def test_turns_that_a_failed_node_covered_are_drawn_where_they_went(run, live):
    async def fails(request):
        return pgmem.Judgement(outcome=Outcome.FAIL, reason="no", judge="me")

    async def act(session):
        await session.add_turns([{"role": "user", "content": str(at)} for at in range(4)])
        await session.compress(summary="s")
        await session.maintain(judge=fails)
        await session.revise(after_turn=2, note="that way is closed", actor="ada")

    lines = run("tree", live(act)).stdout.splitlines()

    assert [re.sub(r", 20\d\d.*", "", line) for line in lines[1:-1]] == [
        "├── ○ node 5  failed  turns 1–4, 4 tokens  → summary of 1 (given)",
        "│   └── verdict 6  fail by me: “no”",
        "├── ○ turns 3–4  abandoned  2 tokens",
        "├── branch 7  reopen after verdict 6",
        "└── branch 8  revise by ada, “that way is closed”",
        "    └── ● turns 1–2  active  2 turns verbatim, 2 tokens",
    ]
