"""How well the `coverage` judge tells corrupt summaries from faithful ones, on real conversations. Asks no model.

    python benchmarks/judge_quality.py CONVERSATIONS.jsonl... [--json] [--seed N]

Each line of a file is {"messages": [OpenAI chat messages]}; a first system message is the caller's prompt and left out.

A conversation is cut into windows of 8 to 24 turns, as compaction would do. A window gets one faithful summary of each family,
which stands for the windows before it too; the summary before is the memory that goes in, up to three windows back.

Families: `tool_clear` is this project's own strategy. The others are written from the conversation by templates, as a model
would write: `bullets`, `prose`, `fields` (key: value) and `fenced` (facts in a code fence), each with a density by chance.
They reformat dates, amounts, paths and snake_case words, quote in part, shorten texts, leave out steps that repeat,
most of what results say, and what the assistant said. What they are assumed to keep, as a good summary would, is
*what matters*: identifiers, mail addresses, paths and dates
  - that the user said, or
  - that are a whole argument of a call, or part of an argument and shown in another turn too (a date: only the latter);
what the assistant said last; and of the memory that went in all but results without a value (facts stay until superseded).
`terse` keeps what the user said and what at least two turns hold: less than that assumption, so it has no floor.

Corruptions, each made from a summary that the family gives, one value each, changed everywhere that the summary has it:
  swapped   a value that matters, by one with one or two other characters (half), or by another of its kind from the turns
  dropped   a value that matters, by nothing
  forgotten dropped, only values that mattered in the windows before and that only the memory holds now
  later     dropped, only values that the conversation uses in a call *after* the window: what mattered in hindsight
  negated   one decision: a sentence turned into its opposite, values untouched
  invented  a sentence more, with an identifier, a mail address, a date or a price that nobody said
A corruption counts as caught where the judge names something that it does not name of the summary before.

`recaps` are messages that the conversations' own models wrote, long ones, judged against all before them: the share that is said
to tell a value of no source. They are real, but no summaries: whether they lost values says nothing.

What matters is found here by other code than the judge's, but by the notion that its docstring tells: the figures say how well
the judge keeps to that notion in texts that spell, shorten and order things otherwise, not how right the notion is; `later` and
`terse` say something of that. The judge was tuned on the half `tuned` only (halves by a hash of the first user message, so two
tries of one task may be on both sides); the floors are for `held out` and over all families but `terse`. Exit status 1: missed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pgmem.domain.asks import JudgeRequest
from pgmem.domain.coverage import coverage
from pgmem.domain.model import Node, Outcome, Strategy, Turn
from pgmem.domain.tokens import count_tokens
from pgmem.domain.tool_clear import Remembered, clear

FLOOR_CAUGHT, CEILING_REJECTED = 0.95, 0.05
STYLES = ("bullets", "prose", "fields", "fenced")
FAMILIES = ("tool_clear", *STYLES, "terse")
CORRUPTIONS = ("swapped", "dropped", "forgotten", "later", "negated", "invented")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

THING = re.compile(r"[\w/~][\w@./~-]*\w")
ISO_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
HOME = re.compile(r"^(?:/home/[^/]+/|/Users/[^/]+/|~/)(?:[^/]+/){0,3}?(?=[^/]+/)")
FLIPS = (
    (r"\bdo not\b|\bdon't\b|\bdid not\b|\bdoes not\b", "do"),
    (r"\bcannot\b|\bcan't\b|\bwill not\b|\bwon't\b|\bis not\b|\bnot\b", ""),
    (r"\b(confirmed|agreed|approved|accepted)\b", "declined"),
    (r"\b[Yy]es\b", "no"),
    (r"\b(is|was|will|can|has|have|are|should|need to|want to|wants to|would like to|asked to)\b", r"\1 not"),
)


def things(text: str) -> set[str]:
    """Identifiers, mail addresses, file paths and dates of a text, as they are written."""
    found = {thing.strip("-./~") if "/" not in thing else thing for thing in THING.findall(text)}
    return {thing for thing in found if is_thing(thing)}


def is_thing(thing: str) -> bool:
    if not THING.fullmatch(thing):
        return False
    if ISO_DATE.fullmatch(thing) or re.fullmatch(r"[\w.-]+@[\w-]+\.\w+", thing):
        return True
    if "/" in thing:
        return re.fullmatch(r"[\w.-]+\.[a-z]\w{0,5}", thing.rsplit("/", 1)[1]) is not None
    if re.fullmatch(r"\d{5,}", thing):
        return True
    mixed = re.search(r"\d", thing) and re.search(r"[^\W\d]", thing)
    return bool(mixed) and len(thing) >= 5 and not re.fullmatch(r"\d+(-[a-z]+|[a-z]{1,4})+|\d{4}-\d\d-\d\d.*", thing)


def scalars(value: Any) -> Iterator[str]:
    """The short scalars of a call's arguments."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from scalars(item)
    elif isinstance(value, str) and len(value) <= 300 and "\n" not in value:
        yield value.strip()


def arguments(call: dict[str, Any]) -> Any:
    try:
        return json.loads(call["function"]["arguments"])
    except ValueError:
        return {}


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def holds(text: str, thing: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(thing)}(?![^\W_])", text, re.IGNORECASE) is not None


def said_by_user(messages: list[dict[str, Any]]) -> set[str]:
    return {thing for m in messages if m["role"] == "user" and len(things(text_of(m))) <= 20 for thing in things(text_of(m))}


def used_by_calls(messages: list[dict[str, Any]]) -> tuple[set[str], set[str]]:
    """Whole arguments that are a thing, and all things in arguments."""
    texts = [text for m in messages for call in m.get("tool_calls") or () for text in scalars(arguments(call))]
    whole = {t for t in texts if (is_thing(t) or re.fullmatch("[A-Z]{5,}", t)) and not ISO_DATE.fullmatch(t)}
    return whole, {thing for t in texts for thing in things(t)}


def what_matters(messages: list[dict[str, Any]]) -> set[str]:
    whole, used = used_by_calls(messages)
    return said_by_user(messages) | whole | {thing for thing in used if turns_with(messages, thing) > 1}


def turns_with(messages: list[dict[str, Any]], thing: str) -> int:
    """How many turns hold a thing; a result that only repeats what its call was made with is not one."""
    count, asked = 0, False
    for message in messages:
        called = holds(" ".join(call["function"]["arguments"] for call in message.get("tool_calls") or ()), thing)
        shown = holds(text_of(message), thing) and not (asked and message["role"] == "tool")
        count += called or shown
        asked = called or (asked and message["role"] == "tool")
    return count


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of a summary: what kind of thing happened, and what."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Window:
    """The turns of one Compress, and what the conversation is about before and after."""

    turns: list[dict[str, Any]]
    before: list[list[dict[str, Any]]]
    after: list[dict[str, Any]]
    first_no: int
    matters: set[str]


def windows_of(messages: list[dict[str, Any]], rng: random.Random) -> Iterator[Window]:
    start, past = 0, []
    while start < len(messages) - 4:
        end = start + rng.randint(8, 24)
        while end < len(messages) and messages[end]["role"] == "tool":
            end += 1
        turns = messages[start:end]
        yield Window(turns, past[-3:], messages[end:], start + 1, what_matters(turns))
        past = [*past, turns]
        start = end


def facts_of(messages: list[dict[str, Any]], density: float, rng: random.Random) -> list[Fact]:
    """What a summary of these turns tells: all that matters, and of the rest more or less, by ``density``."""
    last_said = max((at for at, m in enumerate(messages) if m["role"] == "assistant" and text_of(m).strip()), default=-1)
    facts: list[Fact] = []
    for at, message in enumerate(messages):
        text = text_of(message)
        if message["role"] == "user" and text.strip():
            facts.append(Fact("request", quoted(text, 0.5 + density / 2, rng)))
        elif message["role"] == "assistant" and text.strip() and (at == last_said or rng.random() < density):
            facts.append(Fact("said", quoted(text, 1.0 if at == last_said else density / 2, rng)))
        elif message["role"] == "tool" and (rng.random() < density / 2 or text.lower().startswith("error")):
            facts.append(Fact("result", told_by_result(text, density, rng)))
        facts += [call_fact(call, density, rng) for call in message.get("tool_calls") or ()]
    facts = [fact for fact in dict.fromkeys(facts) if fact.text.strip()]
    told = "\n".join(fact.text for fact in facts)
    missing = sorted(thing for thing in what_matters(messages) if not holds(told, thing))
    return [*facts, *(Fact("note", ", ".join(missing[at : at + 3])) for at in range(0, len(missing), 3))]


def quoted(text: str, share: float, rng: random.Random) -> str:
    """The sentences of a text that hold a value, and some of the others, long ones shortened."""
    said = [sentence.strip(" *#->") for sentence in SENTENCE.split(text)]
    said = [sentence for sentence in said if len(sentence) > 3]
    kept = [s for at, s in enumerate(said) if re.search(r"\d|\w[_/@.]\w", s) or at == 0 or rng.random() < share]
    if share < 0.5 and len(kept) > 3:
        kept = kept[:2]
    return " ".join(s if re.search(r"\d|\w[_/@.]\w", s) or len(s.split()) < 25 else " ".join(s.split()[:20]) + "…" for s in kept)


def call_fact(call: dict[str, Any], density: float, rng: random.Random) -> Fact:
    given = arguments(call)
    pairs = []
    for name, value in given.items() if isinstance(given, dict) else ():
        texts = [text for text in scalars(value) if text]
        plain = [t if len(t) < 80 or is_thing(t) else beginning(t, 60) for t in texts]
        plain = [t for t in plain if things(t) or t.isupper() or t.istitle() or rng.random() < 0.3 + density]
        if plain:
            pairs.append(f"{name}={', '.join(dict.fromkeys(plain))}")
        elif isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < density / 2:
            pairs.append(f"{name}={value}")
    return Fact("call", f"{call['function']['name']}: {'; '.join(pairs)}" if pairs else "")


def beginning(text: str, size: int) -> str:
    """The words of a text until ``size`` is reached."""
    end = text.find(" ", size)
    return text if end < 0 else text[:end] + "…"


def told_by_result(text: str, density: float, rng: random.Random) -> str:
    try:
        found = [item for item in scalars(json.loads(text)) if len(item) < 60]
    except ValueError:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return beginning(lines[0], 120) if lines else ""
    picked = sorted(rng.sample(range(len(found)), min(len(found), round(1 + 6 * density))))
    return ", ".join(found[at] for at in picked)


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one summary writes values; `respell` does the same to every text, so that a value can be found again."""

    day: str
    path: str
    mark: str
    thousands: bool

    @classmethod
    def by_chance(cls, rng: random.Random) -> Spelling:
        days = ("%Y-%m-%d", "%B %-d, %Y", "%-d %b %Y", "%B %-d")
        return cls(rng.choice(days), rng.choice(("whole", "home", "end")), rng.choice(("", "", "`", "**")), rng.random() < 0.5)

    def respell(self, text: str) -> str:
        text = ISO_DATE.sub(lambda found: self._day(found[0]), text)
        if self.thousands:
            text = re.sub(r"(?<![\w.-])\$?\d{4,6}\.\d{1,2}(?![\w.])|\$\d{4,6}\b", lambda found: grouped(found[0]), text)
        return THING.sub(lambda found: self._thing(found[0]), text)

    def _day(self, text: str) -> str:
        try:
            return date.fromisoformat(text).strftime(self.day)
        except ValueError:
            return text

    def _thing(self, text: str) -> str:
        if not is_thing(text) or ISO_DATE.fullmatch(text):
            return text
        if "/" in text and self.path != "whole":
            text = HOME.sub("", text) if self.path == "home" else "/".join(text.split("/")[-2:])
        return f"{self.mark}{text}{self.mark}"


def grouped(amount: str) -> str:
    return ("$" if amount.startswith("$") else "") + f"{float(amount.lstrip('$')):,.2f}"


WORDS = {
    "request": ("The user said: {}", "User asked: {}", "The user's words: “{}”"),
    "call": ("The assistant called {}.", "Used {}.", "Then ran {}."),
    "result": ("That showed {}.", "It returned {}.", "Result: {}."),
    "said": ("The assistant answered: {}", "The user was told: {}", "Reply: {}"),
    "note": ("Also of note: {}.", "Involved: {}.", "Keep in mind {}."),
}
HEADINGS = {"request": "Goal and Requests", "call": "Actions", "result": "Findings", "said": "Decisions", "note": "Key Values"}


def written(facts: list[Fact], style: str, spelling: Spelling, rng: random.Random) -> str:
    """The text of a summary; see the families above."""
    told = [Fact(fact.kind, spelling.respell(fact.text)) for fact in facts]
    if style == "prose":
        sentences = [rng.choice(WORDS[fact.kind]).format(fact.text.rstrip(".")) for fact in told]
        return "\n\n".join(" ".join(sentences[at : at + 6]) for at in range(0, len(sentences), 6))
    if style == "fields":
        return "\n".join(f"{fact.kind}_{at}: {fact.text}" for at, fact in enumerate(told, 1))
    if style == "fenced":
        lines = "\n".join(f"{fact.kind:8} {fact.text}" for fact in told if fact.kind != "request")
        said = " ".join(fact.text for fact in told if fact.kind == "request")
        return f"The user wants the following. {said}\n\n```\n{lines}\n```"
    parts = [(kind, [fact.text for fact in told if fact.kind == kind]) for kind in HEADINGS]
    return "\n\n".join(f"## {HEADINGS[kind]}\n" + "\n".join(f"- {text}" for text in texts) for kind, texts in parts if texts)


@dataclass(frozen=True, slots=True)
class Case:
    """A faithful summary of a window, and what it was made from."""

    window: Window
    family: str
    memory: str
    summary: str

    def verdict(self, summary: str) -> tuple[bool, tuple[str, ...]]:
        """Whether the judge rejects ``summary`` in this place, and what it names."""
        turns = tuple(turn_of(no, message) for no, message in enumerate(self.window.turns, self.window.first_no))
        judgement = coverage(JudgeRequest(node=node_of(summary, turns), turns=turns, memory=self.memory))
        return judgement.outcome is Outcome.FAIL, judgement.missing


def turn_of(no: int, message: dict[str, Any]) -> Turn:
    return Turn(no, 0, message, False, 1, None, EPOCH)


def node_of(summary: str, turns: tuple[Turn, ...]) -> Node:
    first, last = (turns[0].no, turns[-1].no) if turns else (0, 0)
    return Node(last + 1, 0, None, first, last, "topic", None, Strategy.LLM, summary, True, 1, 1, None, None, EPOCH)


def cases_of(window: Window, rng: random.Random) -> Iterator[Case]:
    """One case of each family; the memory of a templated family is the summary of the windows before by another style."""
    memory = ""
    for number, turns in enumerate(window.before):
        memory = cleared(memory, turns, number * 100)
    yield Case(window, "tool_clear", memory, cleared(memory, window.turns, 400))
    for family in (*STYLES, "terse"):
        density = 0.0 if family == "terse" else rng.random()
        facts = [facts_of(turns, density, rng) for turns in (*window.before, window.turns)]
        if family == "terse":
            facts = [terse(turns, rng) for turns in (*window.before, window.turns)]
        style = rng.choice(STYLES[:3]) if family == "terse" else family
        earlier = [fact for part in facts[:-1] for fact in part]
        memory = written(earlier, rng.choice(STYLES), Spelling.by_chance(rng), rng) if earlier else ""
        kept = [fact for fact in earlier if fact.kind != "result" or things(fact.text) or rng.random() < density]
        yield Case(window, family, memory, written([*kept, *facts[-1]], style, Spelling.by_chance(rng), rng))


def cleared(memory: str, messages: list[dict[str, Any]], no: int) -> str:
    turns = tuple(turn_of(no + at, message) for at, message in enumerate(messages))
    return clear([Remembered(memory, own=True)] if memory else [], turns, max_tokens=8000, count=count_tokens)


def terse(messages: list[dict[str, Any]], rng: random.Random) -> list[Fact]:
    used = sorted(thing for thing in used_by_calls(messages)[1] if turns_with(messages, thing) > 1)
    requests = [Fact("request", quoted(text_of(m), 0.2, rng)) for m in messages if m["role"] == "user" and text_of(m).strip()]
    return [*requests, *(Fact("note", ", ".join(used[at : at + 3])) for at in range(0, len(used), 3))]


def spellings(thing: str) -> list[str]:
    """All ways in which a summary may write a date; the number of an identifier names it too."""
    if not ISO_DATE.fullmatch(thing):
        return [thing, *re.findall(r"(?<=_)\d{5,}$", thing)]
    day = date.fromisoformat(thing)
    ordinal = f"{day.day}{'th' if 10 < day.day < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day.day % 10, 'th')}"
    forms = ("%B %-d, %Y", "%B %-d", "%b %-d", "%-d %B", "%-d %b")
    return [thing, *(day.strftime(form) for form in forms), day.strftime(f"%B {ordinal}"), day.strftime(f"%b {ordinal}")]


def changed(summary: str, old: str, new: str) -> str:
    """``summary`` with another value wherever it writes ``old``; where ``new`` is empty, with none."""
    if "/" in old:
        end = old.rsplit("/", 1)[1]

        def same(found: str) -> bool:
            bare = found.lstrip("~./")
            return bare == end or f"/{old.lstrip('~./')}".endswith(f"/{bare}") or f"/{bare}".endswith(f"/{old.lstrip('~./')}")

        put = new.rsplit("/", 1)[-1]
        return THING.sub(lambda m: (m[0].removesuffix(end) + put if new else "it") if same(m[0]) else m[0], summary)
    for was, put in zip(spellings(old), [*spellings(new), new] if new else ["it"] * 9, strict=False):
        summary = re.sub(rf"(?<![^\W_]){re.escape(was)}(?![^\W_])", put, summary, flags=re.IGNORECASE)
    return summary


def with_typo(thing: str, rng: random.Random) -> str:
    """``thing`` with one or two other characters of the same kind; a date gets another day."""
    if ISO_DATE.fullmatch(thing):
        return thing[:8] + f"{rng.choice([day for day in range(1, 29) if day != int(thing[8:])]):02}"
    start = thing.rfind("/") + 1
    stem = thing[start:].split("@")[0].rsplit(".", 1)[0] if "/" in thing or "@" in thing else thing
    places = [start + at for at, char in enumerate(stem) if char.isascii() and char.isalnum()]
    letters = list(thing)
    for at in rng.sample(places, min(len(places), rng.choice((1, 2)))):
        kind = "0123456789" if letters[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
        other = rng.choice([char for char in kind if char != letters[at].lower()])
        letters[at] = other.upper() if letters[at].isupper() else other
    return "".join(letters)


def kind_of(thing: str) -> str:
    if ISO_DATE.fullmatch(thing):
        return "date"
    return "path" if "/" in thing else "mail" if "@" in thing else "number" if thing.isdigit() else "identifier"


def swapped(case: Case, thing: str, rng: random.Random) -> str:
    there = {t for message in case.window.turns for t in things(text_of(message))}
    others = sorted(t for t in there if kind_of(t) == kind_of(thing) and t.rsplit("/", 1)[-1] != thing.rsplit("/", 1)[-1])
    new = rng.choice(others) if others and rng.random() < 0.5 else with_typo(thing, rng)
    return changed(case.summary, thing, new)


def negated(case: Case, rng: random.Random) -> str:
    lines = case.summary.split("\n")
    for at in rng.sample(range(len(lines)), len(lines)):
        for pattern, put in FLIPS:
            line = re.sub(pattern, put, lines[at], count=1)
            if line != lines[at] and things(line) == things(lines[at]):
                return "\n".join((*lines[:at], line, *lines[at + 1 :]))
    return case.summary


def invented(case: Case, rng: random.Random) -> str:
    code = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") if at % 2 else rng.choice("23456789") for at in range(6))
    made_up = rng.choice(
        (
            f"order {code}",
            f"ticket {rng.randint(10**6, 10**7)}",
            f"the address {code.lower()}@example.org",
            f"the date {date(2027, rng.randint(1, 12), rng.randint(1, 28))}",
            f"a price of ${rng.randint(11, 9999)}",
        )
    )
    lines = case.summary.split("\n")
    at = rng.randint(0, len(lines))
    return "\n".join((*lines[:at], f"- The user also mentioned {made_up}.", *lines[at:]))


def corrupted(case: Case, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Each corruption of the case's summary that can be made."""
    have = [thing for thing in sorted(case.window.matters) if changed(case.summary, thing, "") != case.summary]
    earlier = {thing for turns in case.window.before for thing in what_matters(turns)}
    now = "\n".join(text_of(m) + json.dumps(m.get("tool_calls")) for m in case.window.turns)
    only_memory = [t for t in sorted(earlier) if holds(case.memory, t) and not holds(now, t) and kind_of(t) != "date"]
    later = [t for t in sorted(used_by_calls(case.window.after)[1]) if any(holds(text_of(m), t) for m in case.window.turns)]
    for thing in rng.sample(have, min(2, len(have))):
        yield "swapped", swapped(case, thing, rng)
    for name, from_ in (("dropped", have), ("dropped", have), ("forgotten", only_memory), ("later", later)):
        if from_:
            yield name, changed(case.summary, rng.choice(from_), "")
    yield "negated", negated(case, rng)
    yield "invented", invented(case, rng)


Counts = Counter[tuple[str, str, str, str]]
"""How many, by half, family, corruption, and whether the judge rejected them (or ``n`` for all)."""


def measured(conversations: list[list[dict[str, Any]]], seed: int, look: Callable[..., None] = lambda *_: None) -> Counts:
    counts: Counts = Counter()
    for number, messages in enumerate(conversations):
        rng = random.Random(f"{seed}/{number}")
        half = half_of(messages)
        for case in (case for window in windows_of(messages, rng) for case in cases_of(window, rng)):
            _, before = case.verdict(case.summary)
            for name, summary in (("faithful", case.summary), *corrupted(case, rng)):
                if name != "faithful" and summary == case.summary:
                    continue
                rejected, missing = case.verdict(summary)
                rejected = rejected and (name == "faithful" or not set(missing) <= set(before))
                counts[half, case.family, name, "n"] += 1
                counts[half, case.family, name, "rejected"] += rejected
                look(half, case, name, summary, rejected, missing)
    return counts


def half_of(messages: list[dict[str, Any]]) -> str:
    first = next((text_of(message) for message in messages if message["role"] == "user"), "")
    return "tuned" if zlib.crc32(first.encode()) % 2 else "held out"


def recaps(conversations: list[list[dict[str, Any]]]) -> Counter[str]:
    """Long messages of the conversations' own models, and how many are said to tell a value of no source."""
    counts: Counter[str] = Counter()
    for messages in conversations:
        for at, message in enumerate(messages):
            if message["role"] == "assistant" and len(text_of(message)) > 200:
                case = Case(Window(messages[:at], [], [], 1, set()), "recaps", "", "")
                _, missing = case.verdict(text_of(message))
                counts["n"] += 1
                counts["rejected"] += any(text.endswith("(in no source)") for text in missing)
    return counts


def conversations_in(path: Path, *, with_prompt: bool = False) -> list[list[dict[str, Any]]]:
    found = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [m if with_prompt or m[0]["role"] != "system" else m[1:] for m in found]


def table(counts: Counts) -> dict[str, Any]:
    """The figures by half, family and what was done to the summary: how many were rejected, of how many."""
    return {
        half: {
            family: {
                name: {"rejected": counts[half, family, name, "rejected"], "n": counts[half, family, name, "n"]}
                for name in ("faithful", *CORRUPTIONS)
            }
            for family in FAMILIES
        }
        for half in ("tuned", "held out")
    }


def totals(figures: dict[str, Any]) -> dict[str, float]:
    """The shares that have a floor, over all families of the half that was held out but `terse`."""
    shares = {}
    for name in ("faithful", "swapped", "dropped"):
        cells = [figures["held out"][family][name] for family in FAMILIES if family != "terse"]
        shares[name] = sum(cell["rejected"] for cell in cells) / max(1, sum(cell["n"] for cell in cells))
    return shares


def shown(figures: dict[str, Any], told: Counter[str]) -> str:
    lines = []
    for half, families in figures.items():
        lines.append(f"{half:12}" + "".join(f"{name:>20}" for name in ("faithful rejected", *CORRUPTIONS)))
        for family, cells in families.items():
            row = (f"{cell['rejected'] / max(1, cell['n']):7.1%} of {cell['n']:<4}" for cell in cells.values())
            lines.append(f"  {family:10}" + "".join(f"{text:>20}" for text in row))
    lines.append(f"recaps said to tell a value of no source: {told['rejected']} of {told['n']}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("conversations", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts = measured([c for path in options.conversations for c in conversations_in(path)], options.seed)
    told = recaps([c for path in options.conversations for c in conversations_in(path, with_prompt=True)])
    figures = table(counts)
    shares = totals(figures)
    reached = shares["faithful"] <= CEILING_REJECTED and min(shares["swapped"], shares["dropped"]) >= FLOOR_CAUGHT
    if options.json:
        print(json.dumps({"seed": options.seed, "halves": figures, "held_out": shares, "recaps": told, "reached": reached}))
        return int(not reached)
    print(shown(figures, told))
    print("held out, all families but terse: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items()))
    print("the floors are reached" if reached else f"MISSED: caught >= {FLOOR_CAUGHT:.0%}, rejected <= {CEILING_REJECTED:.0%}")
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
