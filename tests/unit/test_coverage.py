"""The `coverage` judge: what it misses in a summary, what it finds made up, and what it lets pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgmem.domain.asks import Judgement, JudgeRequest
from pgmem.domain.coverage import coverage
from pgmem.domain.model import Node, Outcome, Strategy, Turn

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
CONVERSATIONS = (DATA / "tau_airline" / "trajectories.jsonl", DATA / "coding_agent" / "transcripts.jsonl")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(**arguments: Any) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c1", "content": text}


def judged(
    summary: str, *messages: dict[str, Any], memory: str = "", goal: str | None = None, cumulative: bool = True
) -> Judgement:
    turns = tuple(Turn(no, 0, message, False, 1, None, NOW) for no, message in enumerate(messages, 1))
    node = Node(99, 0, None, 1, len(turns), "topic", None, Strategy.LLM, summary, cumulative, 1, 1, None, None, NOW)
    return coverage(JudgeRequest(node=node, turns=turns, memory=memory, goal=goal))


ORDER = (
    user("Hi, where is order A-10427? I am ann.lee@example.com and I paid $1,234.50 on May 20th."),
    call(order_id="A-10427", limit=20),
    result('{"order_id": "A-10427", "parcel": "ZX81-4410", "stops": ["DEPOT-77", "DEPOT-78"], "paid": 1234.5}'),
    call(parcel="ZX81-4410"),
    result('{"state": "on its way", "hub": "DEPOT-78"}'),
    assistant("It is on its way."),
)
FAITHFUL = "The user (ann.lee@example.com) asked for order A-10427, paid $1,234.50 on May 20th. Parcel ZX81-4410 is on its way."


def test_a_faithful_summary_passes():
    verdict = judged(FAITHFUL, *ORDER)

    assert (verdict.outcome, verdict.missing, verdict.judge) == (Outcome.PASS, (), "coverage")
    assert verdict.reason


@pytest.mark.parametrize("value", ["A-10427", "ann.lee@example.com", "$1,234.50", "May 20th", "ZX81-4410"])
def test_a_dropped_value_is_named(value):
    verdict = judged(FAITHFUL.replace(value, "it"), *ORDER)

    assert (verdict.outcome, verdict.missing) == (Outcome.FAIL, (value,))
    assert value in verdict.reason


@pytest.mark.parametrize(
    ("value", "other"),
    [("A-10427", "A-10472"), ("ann.lee@example.com", "ann.lea@example.com"), ("ZX81-4410", "ZX81-4401"), ("May 20th", "May 21st")],
)
def test_a_swapped_value_is_named_with_what_stands_in_its_place(value, other):
    verdict = judged(FAITHFUL.replace(value, other), *ORDER)

    assert (verdict.outcome, verdict.missing) == (Outcome.FAIL, (value, f"{other} (in no source)"))
    assert other in verdict.reason


def test_a_value_swapped_for_another_of_the_conversation_is_missed():
    verdict = judged(FAITHFUL.replace("ZX81-4410", "DEPOT-78"), *ORDER)

    assert verdict.missing == ("ZX81-4410",)


@pytest.mark.parametrize(
    "made_up",
    ["RT-55931", "bob@example.com", "2027-03-09", "$7,777", "https://example.com/x/91", "/srv/app/main_loop.py", "4410772"],
)
def test_an_invented_value_is_named(made_up):
    verdict = judged(f"{FAITHFUL} The user also mentioned {made_up}.", *ORDER)

    assert (verdict.outcome, verdict.missing) == (Outcome.FAIL, (f"{made_up} (in no source)",))


@pytest.mark.parametrize(
    "summary",
    [
        FAITHFUL.upper().replace("MAY 20TH", "20 May"),
        FAITHFUL.replace("$1,234.50", "1234.5"),
        FAITHFUL.replace("$1,234.50", "1.234,50 €"),
        FAITHFUL.replace("May 20th", "2024-05-20"),
        FAITHFUL.replace("May 20th", "20 May 2024"),
        FAITHFUL.replace("A-10427", "`a 10427`").replace("ZX81-4410", "**ZX81_4410**"),
        f"Known so far:\n```json\n{json.dumps({'facts': FAITHFUL.split(', ')})}\n```",
    ],
)
def test_a_value_is_kept_in_any_usual_spelling(summary):
    assert judged(summary, *ORDER).outcome is Outcome.PASS


def test_a_path_is_kept_by_its_end_and_not_by_that_of_another():
    turns = (call(file_path="/home/ann/shop/src/cart/total.ts"), result("1 export const total = 1"), assistant("Read it."))

    assert judged("Read src/cart/total.ts.", *turns).outcome is Outcome.PASS
    assert judged("Read total.ts.", *turns).outcome is Outcome.PASS
    assert judged("Read src/basket/total.ts.", *turns).outcome is Outcome.FAIL


def test_the_number_of_an_identifier_stands_for_it_but_does_not_vouch_for_another_name():
    turns = (call(payment="credit_card_4421486"), result("charged"))

    assert judged("Paid with card 4421486.", *turns).outcome is Outcome.PASS
    assert judged("Paid with cradit_card_4421486.", *turns).missing == ("cradit_card_4421486 (in no source)",)


def test_the_beginning_of_a_hash_stands_for_it():
    turns = (user("Revert 3f9c2d7e81ab45f0c6d2e9b7a1034c5d8e6f7a90 please"),)

    assert judged("Asked to revert 3f9c2d7.", *turns).outcome is Outcome.PASS
    assert judged("Asked to revert 3f9c2d8.", *turns).outcome is Outcome.FAIL


def test_what_only_a_result_showed_may_go():
    assert "DEPOT-77" not in FAITHFUL
    assert judged(FAITHFUL, *ORDER).outcome is Outcome.PASS


def test_what_a_result_showed_and_a_call_took_up_must_stay():
    turns = (
        call(query="boots"),
        result("sku BT-4471 red\nsku BT-4472 blue"),
        call(command="reserve BT-4472 --days 3"),
        result("ok"),
    )

    assert judged("Reserved BT-4472 after a look at the boots.", *turns).outcome is Outcome.PASS
    assert judged("Reserved the blue boots.", *turns).missing == ("BT-4472",)


def test_a_list_that_the_user_pastes_need_not_be_kept():
    pasted = "\n".join(f"request RQ-{number} failed" for number in range(10_000, 10_200))

    assert judged("The user pasted 200 failed requests.", user(pasted)).outcome is Outcome.PASS


def test_the_newest_answer_is_kept_and_an_older_one_may_go():
    turns = (assistant("I can offer HX-100 or HX-200."), user("Neither."), assistant("Then there is HX-300."))

    assert judged("Offered HX-300 after two that were refused.", *turns).outcome is Outcome.PASS
    assert judged("Made three offers.", *turns).missing == ("HX-300",)


def test_a_cumulative_summary_keeps_the_identifiers_of_the_memory():
    memory = "The customer is C-88120.\nThe claim is CL-5521."

    assert judged("C-88120, claim CL-5521, says thanks.", user("thanks"), memory=memory).outcome is Outcome.PASS
    assert judged("Customer C-88120 says thanks.", user("thanks"), memory=memory).missing == ("CL-5521",)
    assert judged("Customer C-88120 says thanks.", user("thanks"), memory=memory, cumulative=False).outcome is Outcome.PASS


def test_memory_and_goal_are_sources():
    assert judged("For T-90210: note N-4410.", user("go on"), memory="Note N-4410.", goal="Close T-90210").outcome is Outcome.PASS


def test_an_amount_that_is_the_sum_of_two_is_not_made_up():
    turns = (result("fares: 152.00 and 103.00"),)

    assert judged("The fares are $255 together.", *turns).outcome is Outcome.PASS
    assert judged("The fares are $257 together.", *turns).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "words", ["step_3 of phase-2, a 24-hour limit and/or 10am, v2, Q3", "next_steps: none. Open Threads: none"]
)
def test_words_of_the_summary_itself_are_not_made_up_values(words):
    assert judged(f"{FAITHFUL} {words}", *ORDER).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("said", "kept", "lost"),
    [
        ("昨日、注文番号AX-2291について電話がありました。", "注文AX-2291の電話。", "注文の電話。"),
        ("Клиент Иван спросил про договор №48213-Б.", "Вопрос о договоре 48213-б.", "Вопрос о договоре."),
        ("الطلب ط-55219 متأخر", "الطلب ط-55219", "الطلب"),
        ("주문 KR-7741을 취소해 주세요", "KR-7741 취소 요청", "취소 요청"),
        ("order ＡＸ－２２９１", "order AX-2291", "order"),
    ],
)
def test_identifiers_are_found_in_any_script(said, kept, lost):
    assert judged(kept, user(said)).outcome is Outcome.PASS
    assert judged(lost, user(said)).outcome is Outcome.FAIL


def test_a_full_name_that_was_said_and_used_is_kept_by_its_last_word():
    turns = (user("Book it for Zoë Müller please"), call(passenger="Zoë Müller"), result("booked"))

    assert judged("Booked for Ms Müller.", *turns).outcome is Outcome.PASS
    assert judged("Booked.", *turns).missing == ("Zoë Müller",)


def test_values_in_escaped_json_are_sources():
    turns = (result(json.dumps({"log": "first\nERR-90871\tfailed for \u00fc-4471"})),)

    assert judged("It failed with ERR-90871.", *turns).outcome is Outcome.PASS


def test_nothing_to_cover_passes():
    assert judged("They greeted each other.", user("hello"), assistant("hello, how can I help?")).outcome is Outcome.PASS
    assert judged("Nothing happened.").outcome is Outcome.PASS


@pytest.mark.parametrize("summary", ["", " \n\t"])
def test_an_empty_summary_fails(summary):
    verdict = judged(summary, user("hello"))

    assert verdict.outcome is Outcome.FAIL
    assert "empty" in verdict.reason


def test_the_same_request_gets_the_same_verdict():
    assert len({repr(judged("Order A-1 of X-99123, Y-12345", *ORDER)) for _ in range(5)}) == 1


@pytest.mark.parametrize(
    "piece", ["A-10427 of 2024-05-20 for $12.50\n", "1,", "a-", "../", "/a", "May ", "a:", "あa1", "x.", "\\u0041"]
)
def test_texts_of_16_mib_are_bounded_work(piece):
    text = piece * (2**24 // len(piece))
    started = time.monotonic()

    judged(text, user(text[:100_000]), result(text), call(text=text[:200_000]), memory=text)
    judged("NO-99871 and " + text[:1000], result(text), memory=text)

    assert time.monotonic() - started < 60


@given(st.text(), st.text(), st.text())
def test_any_texts_are_judged_and_a_copy_of_them_passes(memory, said, shown):
    copy = "\n".join((memory, said, shown, "."))

    assert judged(copy, user(said), result(shown), memory=memory).outcome is Outcome.PASS


@pytest.mark.skipif(not os.environ.get("PGMEM_TEST_LONG"), reason="takes two minutes: set PGMEM_TEST_LONG=1")
@pytest.mark.skipif(not all(map(Path.is_file, CONVERSATIONS)), reason="the real conversations are not here")
def test_the_floors_are_reached_on_real_conversations(tmp_path):
    shorter = tmp_path / "coding_agent.jsonl"
    lines = [json.loads(line) for line in CONVERSATIONS[1].read_text(encoding="utf-8").splitlines()]
    shorter.write_text("\n".join(json.dumps({"messages": line["messages"][:80]}) for line in lines), encoding="utf-8")
    command = [sys.executable, str(ROOT / "benchmarks" / "judge_quality.py"), str(CONVERSATIONS[0]), str(shorter), "--json"]

    run = subprocess.run(command, check=False, timeout=280, capture_output=True, text=True, cwd=ROOT)

    assert run.returncode == 0, run.stdout + run.stderr
    reached = json.loads(run.stdout)["held_out"]
    assert reached["faithful"] <= 0.05
    assert min(reached["swapped"], reached["dropped"]) >= 0.95
