"""What tool_clear makes of a path: its own summaries are read back, all others are text."""

from __future__ import annotations

from datetime import UTC, datetime

from pgmem.domain.model import EMPTY_TREE, Node, Snapshot, Strategy, Turn
from pgmem.domain.plans import cleared_node
from pgmem.domain.tokens import count_tokens
from tests.support.talk import user

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FRAME = "[memory by #turn; = values of what was cut; 7 older gone]\n#{no} user: words of {no}\n[end]"


def node(no, strategy):
    return Node(
        no=no,
        branch=0,
        parent=None,
        first_no=no,
        last_no=no,
        kind="topic",
        label=None,
        strategy=strategy,
        summary=FRAME.format(no=no),
        cumulative=strategy is not Strategy.GIVEN,
        tokens=1,
        source_tokens=1,
        model=None,
        prompt_version=None,
        created_at=NOW,
    )


def cleared(*nodes, more_nodes=False):
    snapshot = Snapshot(EMPTY_TREE, nodes, more_nodes, kept=(), active=())
    covered = (Turn(9, 0, user("bye"), False, 200, None, NOW),)
    made = cleared_node(snapshot, covered, kind="topic", label=None, max_summary_tokens=8000, count=count_tokens)
    return made.summary.split("\n")


def test_of_a_path_only_the_summaries_by_tool_clear_are_read_back():
    lines = cleared(node(3, Strategy.TOOL_CLEAR), node(5, Strategy.GIVEN), node(7, Strategy.LLM))

    assert lines == [
        "[memory by #turn; = values of what was cut; 7 older gone]",
        "#3 user: words of 3",
        "#0 earlier: [memory by #turn; = values of what was cut; 7 older gone]",
        "\\#5 user: words of 5",
        "\\[end]",
        "#0 earlier: [memory by #turn; = values of what was cut; 7 older gone]",
        "\\#7 user: words of 7",
        "\\[end]",
        "#9 user: bye",
        "[end]",
    ]


def test_summaries_that_are_not_shown_are_said_to_be_missing_before_all_others():
    lines = cleared(node(5, Strategy.TOOL_CLEAR), more_nodes=True)

    assert lines[1:3] == ["#0 earlier: [pgmem: summaries of turns before 5 are not shown]", "#5 user: words of 5"]
