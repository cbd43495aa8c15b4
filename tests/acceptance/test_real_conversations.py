"""The main job on real input: conversations replayed as an agent would, and scored by a scorer that is not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"
SCORER = SHARED / "tools" / "score_contexts.py"

pytestmark = pytest.mark.skipif(not SCORER.is_file(), reason="the real conversations are not here")


def replayed(app_url: str, tmp_path: Path, conversations: Path, *options: str) -> dict:
    """The score of what a replay sent."""
    dump = tmp_path / "contexts.jsonl"
    environment = os.environ | {"PGMEM_DATABASE_URL": app_url}
    command = [sys.executable, "-m", "pgmem", "replay", str(conversations), "--dump", str(dump), "--json", *options]
    subprocess.run(command, check=True, env=environment, timeout=280, capture_output=True)
    scored = subprocess.run(
        [sys.executable, str(SCORER), str(conversations), str(dump), "--json"],
        check=True,
        timeout=280,
        capture_output=True,
        text=True,
    )
    return json.loads(scored.stdout)


def assert_honest(score: dict) -> None:
    assert (score["invalid"], score["missing"], score["no_user"]) == ({}, 0, 0)


def test_customer_support_sends_a_third_less_and_loses_nothing_that_a_later_call_needs(app_url, tmp_path):
    conversations = SHARED / "data" / "tau_airline" / "trajectories.jsonl"

    score = replayed(app_url, tmp_path, conversations, "--threshold", "8", "--keep-recent", "4")

    assert_honest(score)
    assert score["reduction"] >= 0.33
    assert score["survival"] >= 0.98


def test_coding_agents_send_a_fifth_and_keep_what_later_calls_need(app_url, tmp_path):
    score = replayed(app_url, tmp_path, SHARED / "data" / "coding_agent" / "transcripts.jsonl")

    assert_honest(score)
    assert score["reduction"] >= 0.82
    assert score["survival"] >= 0.92


@pytest.mark.parametrize("policy", [("--threshold", "2", "--keep-recent", "0"), ("--threshold", "30", "--keep-recent", "29")])
def test_any_policy_gives_valid_contexts(app_url, tmp_path, policy):
    assert_honest(replayed(app_url, tmp_path, SHARED / "data" / "tau_airline" / "trajectories.jsonl", *policy))
