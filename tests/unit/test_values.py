"""What counts as a value, in texts of many kinds that were made up for this file."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgmem.domain.values import RANKS, argument_values, rank, row_from, row_text, rows_of, trim

NGINX = """\
2025-03-14T09:12:44.120Z ERROR [req-9f2c11ab] web-3.eu-west.internal nginx: upstream timed out from 10.4.17.201 status=504
2025-03-14T09:12:45.007Z INFO [req-77aa01cd] web-3.eu-west.internal nginx: request was served from 10.4.17.202 status=200"""
PODS = """\
NAMESPACE     NAME                        READY   STATUS             RESTARTS   AGE
payments      ledger-7d9f8b6c5d-x2x7k     1/1     Running            0          12d
kube-system   coredns-558bd4d5db-4qk9m    0/1     CrashLoopBackOff   41         90d"""
PSQL = """\
 customer_id |     created_at      | total
-------------+---------------------+-------
 C-100233    | 2024-11-02 10:31:00 |  5420
 C-100871    | 2024-11-03 18:02:00 |   990
(2 rows)"""
CSV = "sample,site,species\nS-4411A,Lower Marsh,Carex nigra\nS-4412B,Upper Marsh,Carex acuta\nS-4413C,Spring,Typha minor"
SEARCH = """\
1. Bridges of Lake Constance
   https://www.wayfarers.example/guides/bridges-17.html?lang=en
   A guide to what there is to see for walkers who have only an afternoon. Written by Ines Dubois in 1998 for the Alpine Club."""
API = json.dumps(
    {
        "data": [
            {
                "id": "3f1d2c7e-8a55-4a0e-9d0b-3f6f0e8a1b22",
                "attributes": {"owner": "Priya Natarajan", "slug": "blue_kettle", "active": True},
                "links": {"self": "/v2/spaces/3f1d2c7e"},
            }
        ],
        "next": "b64:eyJvZmZzZXQiOjQwfQ==",
    }
)
CODE = """\
   118\tclass LedgerMismatch(Exception):
   119\t    def settle_batch(self, rows, *, retries=3):
   120\t        raise LedgerMismatch("batch is already settled")"""
CYRILLIC = "Клиент Иван Петров обратился по договору №48213, менеджер отправил счёт на почту ivan@пример.рф."
JAPANESE = "昨日、田中太郎さんから注文番号AX-2291について電話がありました。"
ARABIC = json.dumps({"العميل": "محمد علي", "رقم": "ط-5521"}, ensure_ascii=False)
TREE = "./billing/rates.py\n./billing/invoices/pdf_export.py\n.env.local\nREADME.md"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (NGINX, ["2025-03-14T09:12:44.120Z", "req-9f2c11ab", "web-3.eu-west.internal", "10.4.17.202", "status=504"]),
        (PODS, ["payments", "ledger-7d9f8b6c5d-x2x7k", "coredns-558bd4d5db-4qk9m", "CrashLoopBackOff"]),
        (PSQL, ["customer_id", "C-100233", "2024-11-03 18:02:00", "5420"]),
        (CSV, ["S-4411A", "Lower Marsh", "Carex acuta", "Typha minor"]),
        (SEARCH, ["Bridges of Lake Constance", "https://www.wayfarers.example/guides/bridges-17.html?lang=en"]),
        (SEARCH, ["Ines Dubois", "1998", "Alpine Club"]),
        (API, ["3f1d2c7e-8a55-4a0e-9d0b-3f6f0e8a1b22", "Priya Natarajan", "blue_kettle", "b64:eyJvZmZzZXQiOjQwfQ=="]),
        (CODE, ["118", "LedgerMismatch", "settle_batch", "batch is already settled"]),
        (CYRILLIC, ["Иван Петров", "48213", "ivan@пример.рф"]),
        (JAPANESE, ["田中太郎", "AX-2291"]),
        (ARABIC, ["محمد علي", "ط-5521"]),
        (TREE, ["./billing/rates.py", "./billing/invoices/pdf_export.py", ".env.local", "README.md"]),
    ],
)
def test_what_distinguishes_stays_whatever_the_kind_of_text(text, values):
    shown = "\n".join(map(row_text, rows_of(text)))

    assert [value for value in values if value not in shown] == []


@pytest.mark.parametrize(
    ("text", "guessable"),
    [
        (NGINX, "upstream timed out"),
        (SEARCH, "who have only an afternoon"),
        (SEARCH, "walkers"),
        (API, "true"),
        (CODE, "119"),
        (CYRILLIC, "обратился"),
        (JAPANESE, "がありました"),
        ("The depot will call. Please wait for it at home until then.", "Please"),
    ],
)
def test_running_words_booleans_and_counters_go(text, guessable):
    shown = "\n".join(map(row_text, rows_of(text)))

    assert guessable not in shown


def test_a_field_that_is_as_in_the_record_above_is_not_said_again():
    records = [{"day": "2024-05-24", "from": "LIS"}, {"day": "2024-05-24", "from": "OSL"}]

    assert rows_of(json.dumps(records)) == [("2024-05-24", "LIS"), ("OSL",)]


def test_a_number_goes_with_its_key():
    assert rows_of('{"price": 1249, "seats": 3}') == [("price=1249",)]


def test_a_key_that_is_an_identifier_is_a_value():
    assert rows_of('{"card_8812034": {"brand": "visa"}}') == [("card_8812034", "visa")]


def test_long_arguments_are_texts_and_short_ones_stay_whole():
    short, long = argument_values(json.dumps({"path": "/srv/app.py", "content": "import os\nAPI_ROOT = '/v2/x'\n"}))

    assert short == ("/srv/app.py",)
    assert long == [("API_ROOT", "/v2/x")]


def test_arguments_that_are_not_json_still_show_their_values():
    assert argument_values('{"path": "/srv/app.py", ') == ((), [("path", "/srv/app.py")])


def test_paths_and_addresses_rank_over_identifiers_over_numbers_over_names_over_words():
    ranked = ["/srv/www/app/main.py", "AX-22913", "1998", "Ines", "economy"]

    assert [rank(value) for value in ranked] == [4, 3, 2, 1, 0]


def test_trim_keeps_the_values_that_distinguish_most_in_their_order():
    rows = [("Ines", "AX-22913"), ("economy",), ("BX-10044", "Ines")]

    assert trim(rows, [20] * RANKS) == (("AX-22913",), ("BX-10044",))


def test_trim_leaves_out_first_what_is_known_elsewhere():
    assert trim([("AX-22913", "BX-10044")], [10] * RANKS, {"AX-22913"}) == (("BX-10044",),)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1).filter(lambda v: v[0] not in "\"'`"))
)
def test_a_row_of_words_is_read_back_as_it_was_shown(row):
    assert row_from(row_text(tuple(row))) == tuple(row)


def test_a_row_of_values_with_spaces_and_quotes_is_read_back_as_it_was_shown():
    row = ("Lower Marsh", 'say "no" twice', "it's not so", "plain")

    assert row_from(row_text(row)) == row


@given(st.text(st.characters(codec=None)))
def test_any_text_has_rows_of_single_lines(text):
    assert all("\n" not in value and value for row in rows_of(text) for value in row)


@pytest.mark.parametrize(
    "unit",
    ["a", "\x00", '"', "'", "a-", "http://", "[", '{"a":', "1\n", "| ", "\ud800", "= ", "漢", "a,b,c\n", "  "],
)
def test_a_huge_body_of_anything_takes_bounded_time(unit):
    body = unit * (16 * 1024 * 1024 // len(unit))
    start = time.perf_counter()

    rows_of(body)
    argument_values(body)

    assert time.perf_counter() - start < 5


def test_of_a_huge_body_the_beginning_and_the_end_are_looked_at():
    shown = "\n".join(map(row_text, rows_of("first_thing\n" + "noise is here\n" * 100_000 + "last_thing")))

    assert shown == "first_thing\nlast_thing"


def test_json_of_any_depth_is_walked_without_recursion():
    assert rows_of("[" * 900 + '"AX-22913"' + "]" * 900) == [("AX-22913",)]
    rows_of("[" * 100_000 + "]" * 100_000)
