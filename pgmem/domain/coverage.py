"""The ``coverage`` judge: which values and names a summary lost, and which it made up. It asks no model.

What must be kept is a matter of who used a value, not of what it is about. A summary must keep

1. what the user said: identifiers, dates, amounts; and the identifiers of the newest thing that the assistant said;
2. what calls were made with: an argument that is an identifier; a value or a full name that was told before or is used again;
3. where it stands for the memory too, the identifiers that the memory tells of,

at most so many of them: those used most and last. A list (a paste, a table, a result) obliges to nothing until somebody
takes a value up from it. The other way round, an identifier, a date or a price that no source holds is made up or changed.

A value is kept in any usual spelling: other case or separators, ``1,234.50`` for ``1234.5``, ``May 20th`` for ``2024-05-20``,
the end of a path. Not seen: true values that stand together wrongly, and what words say, as in a negated decision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from unicodedata import normalize

from pgmem.domain.asks import Judgement, JudgeRequest
from pgmem.domain.model import Outcome, Role, Turn
from pgmem.domain.tokens import call_name_and_arguments, content_text

_MOST_KEPT = 64
"""So many values a summary can be asked to keep."""

_LIST, _LINE_LIST = 24, 3
"""A text of more values is a list; so is a sentence of the memory of more."""

_ALL_CHARS, _LEAST_CHARS, _MOST_CHARS = 4_194_304, 8_192, 262_144
"""Of all sources so many characters are read for values; of one text at least and at most so many, from both its ends."""

_ARGUMENT_CHARS = 300
"""A longer argument, or one of several lines, is a text that a call carries."""

_MOST_SEARCHED, _MOST_HITS, _MOST_AMOUNTS = 64, 500, 512

_W = r"[^\W_\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
"""A letter or digit of a script that parts its words: in the others an identifier has letters for neighbours."""

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?\b\.?"
_DAY = r"\d\d?(?:st|nd|rd|th)?"
_DAY_OF_MONTH = rf"(?:{_MONTH}[ \t]{{1,2}}{_DAY}\b|{_DAY} (?:of )?{_MONTH})(?:,? (?:19|20)\d\d(?![\d-]))?"
_DATE = rf"(?<![\w-])(?:\d{{4}}-\d\d?-\d\d?(?![\d-])|{_DAY_OF_MONTH})"
_NUMBER = r"(?:\d{1,3}(?:[,.'’\u2009\u202f]\d{3})+(?:[.,]\d{1,8})?|\d{1,20}(?:[.,]\d{1,8})?)(?![.,]?\d)"
_TOKEN = re.compile(
    r"(?P<url>[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s\"'<>`)\]}|\\]+)"
    rf"|(?P<date>{_DATE})"
    rf"|(?P<money>[$€£¥₹] ?{_NUMBER}|(?<![\w.,]){_NUMBER} ?(?:[€£¥₹]|(?:USD|EUR|GBP|CHF|JPY|INR)\b))"
    rf"|(?P<number>(?<![\w./@-]){_NUMBER}(?![\w/@-]))"
    rf"|(?P<word>(?<!<)[~./]{{0,3}}{_W}+(?:[._/@~-]{{1,3}}{_W}+)*)"
)
_SENTENCE = re.compile(r"\n|(?<=[.!?;])\s")
_ATOM = re.compile(f"{_W}+")
_RUN = re.compile(r"\d+|[^\W\d_]+")
_QUANTITY = re.compile(r"\d{1,4}(?:\.\d+)?(?:-[a-z-]+|[a-z]{1,4}|-\d{1,4})")
_LABEL = re.compile(r"[A-Za-z]?[a-z]{2,}(?:[_-][a-z]+)*[_-]?\d{1,2}")
_FILE = re.compile(r"(?:.*/)?[\w.-]*\w{3}\.[a-z][a-z0-9]{0,4}", re.DOTALL)
_PLAIN = re.compile(r"[1-9]\d{0,6}(?:\.\d{1,2})?")
_SERIAL = re.compile(r"\d{5,}")
_HASH = re.compile(r"(?=.*\d)[0-9a-f-]{7,}")
_FULL_NAME = re.compile(r"[^\W\d_]+(?: [^\W\d_]+){1,3}")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf\"/\\])")

_CHECKED = ("identifier", "path", "date", "money")
"""What is made up where no source holds it: nobody derives it or knows it from elsewhere."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A token of a text.

    Attributes:
        text: as written.
        kind: its form: identifier, path, date, money, number, name, capitals, or plain, which is no value.
        gives: what who reads it knows; the first is the same for its spellings.
        needs: who knows any of these knows the value.
    """

    text: str
    kind: str
    gives: tuple[str, ...]
    needs: tuple[str, ...]


@dataclass(slots=True)
class _Use:
    """How the turns use a value; one that is owed must be kept."""

    value: _Value
    owed: bool = False
    said: bool = False
    turns: set[int] = field(default_factory=set)


def coverage(request: JudgeRequest) -> Judgement:
    """Fails a summary that lost a value that must be kept, or that tells one that no source holds.

    Deterministic, and linear in the size of the sources.

    Returns:
        The judgement; ``missing`` has the lost values as their source writes them, then those that are made up, marked.
    """
    summary = _ends(request.node.summary, _MOST_CHARS)
    written = list(_values(summary))
    owed, told = _read(request)
    kept, folded = _gives(written), _fold(summary)
    gone = [value.text for value in owed if kept.isdisjoint(value.needs) and not _stands(value.text, folded)]
    made_up = [value.text for value in _unknown(written, told, request)]
    lost = f"values that must be kept are gone: {', '.join(gone)}" if gone else ""
    wrong = f"values are in no source: {', '.join(made_up)}" if made_up else ""
    empty = "" if summary.strip() else "the summary is empty"
    failures = "; ".join(filter(None, (empty, lost, wrong)))
    return Judgement(
        outcome=Outcome.FAIL if failures else Outcome.PASS,
        reason=failures or "every value that must be kept is there, and none is made up",
        missing=(*gone, *(f"{text} (in no source)" for text in made_up)),
        judge="coverage",
    )


def _read(request: JudgeRequest) -> tuple[list[_Value], set[str]]:
    """The values that the summary must keep, those used most and last first; and what the sources tell."""
    size = min(_MOST_CHARS, max(_LEAST_CHARS, _ALL_CHARS // (len(request.turns) + 1)))
    uses: dict[str, _Use] = {}
    told = _gives(_values(_ends(request.goal or "", size)))
    for line in _SENTENCE.split(_ends(request.memory, size)):
        values = list(_values(line))
        told |= _gives(values)
        if request.node.cumulative:
            _owe(uses, filter(_is_exact, values), 0, most=_LINE_LIST)
    newest: list[_Value] = []
    for turn in request.turns:
        text = list(_values(_unescaped(_ends(content_text(turn.content), size))))
        if turn.role is Role.USER:
            _owe(uses, text, turn.no, said=True)
        arguments = list(_arguments(turn))
        for value, whole in arguments:
            _use(uses, value, turn.no, owed=whole or not told.isdisjoint(value.needs))
        if turn.role is Role.ASSISTANT and text:
            newest = list(filter(_is_exact, text))
            _mention(uses, newest, turn.no)
        told |= _gives(text) | _gives(value for value, _ in arguments)
    _owe(uses, newest, 0)
    owed = [use for use in uses.values() if use.owed or len(use.turns) > 1]
    owed.sort(key=lambda use: (use.said, len(use.turns), max(use.turns)), reverse=True)
    return [use.value for use in owed[:_MOST_KEPT]], told


def _owe(uses: dict[str, _Use], values: Iterable[_Value], no: int, *, said: bool = False, most: int = _LIST) -> None:
    """All values of a text must be kept, unless it is a list."""
    found = {value.gives[0]: value for value in values if value.kind not in ("plain", "capitals")}
    for value in found.values() if len(found) <= most else ():
        _use(uses, value, no, owed=True, said=said)


def _use(uses: dict[str, _Use], value: _Value, no: int, *, owed: bool, said: bool = False) -> None:
    use = uses.setdefault(value.gives[0], _Use(value))
    use.owed |= owed
    use.said |= said
    use.turns.add(no)


def _mention(uses: dict[str, _Use], values: Iterable[_Value], no: int) -> None:
    """Values that calls were made with are used again where the assistant tells of them."""
    for value in values:
        if value.gives[0] in uses:
            _use(uses, value, no, owed=False)


def _is_exact(value: _Value) -> bool:
    return value.kind in ("identifier", "path")


def _arguments(turn: Turn) -> Iterator[tuple[_Value, bool]]:
    """The values that the turn's calls were made with, and whether the argument is nothing else."""
    for call in turn.message.get("tool_calls") or ():
        for text in _strings(call_name_and_arguments(call)[1]):
            if _FULL_NAME.fullmatch(text) and all(word[0].isupper() for word in text.split()):
                yield _Value(text, "name", (_squashed(text),), (_squashed(text.split()[-1]),)), False
            for value in _values(text):
                if value.kind in ("identifier", "path", "capitals", "date"):
                    yield value, value.text == text and value.kind != "date"


def _strings(arguments: str) -> Iterator[str]:
    """The strings in a call's arguments, but for texts that the call carries."""
    stack: list[Any] = [_parsed(arguments)]
    while stack:
        item = stack.pop()
        if isinstance(item, dict | list):
            stack += reversed(item.values() if isinstance(item, dict) else item)
        elif isinstance(item, str) and len(item) <= _ARGUMENT_CHARS and "\n" not in item:
            yield item.strip()


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _unknown(written: Iterable[_Value], told: set[str], request: JudgeRequest) -> Iterator[_Value]:
    """The values of a summary that the sources do not tell, nor hold anywhere."""
    suspects = {value.gives[0]: value for value in written if value.kind in _CHECKED and not _is_told(value, told)}
    folded = [_fold(source) for source in _sources(request)] if suspects else []
    for value in islice(suspects.values(), _MOST_SEARCHED):
        if value.kind == "money" and _is_worked_out(value, told):
            continue
        if not all(any(_stands(part, text) for text in folded) for part in _parts(value)):
            yield value


def _is_told(value: _Value, told: set[str]) -> bool:
    """Whether the sources tell a value as it is written; the number in an identifier alone does not vouch for the rest."""
    return not told.isdisjoint(value.needs[:1] if "_" in value.text and value.kind == "identifier" else value.needs)


def _is_worked_out(amount: _Value, known: Iterable[str]) -> bool:
    """Whether an amount is a sum, a difference or a small multiple of amounts that are known."""
    cents = {round(float(key) * 100) for key in known if _PLAIN.fullmatch(key)}
    numbers = sorted(number for number in cents if number > 999)[:_MOST_AMOUNTS]
    mine = round(float(amount.needs[0]) * 100)
    pairs = any(mine - number in cents or mine + number in cents for number in numbers)
    return pairs or any(mine / times in cents for times in range(2, 10))


def _sources(request: JudgeRequest) -> Iterator[str]:
    yield request.goal or ""
    yield request.memory
    for turn in request.turns:
        calls = turn.message.get("tool_calls") or ()
        ids = (str(item.get(key)) for item in (turn.message, *calls) for key in ("id", "name", "tool_call_id"))
        text = "\n".join((content_text(turn.content), *ids, *("\n".join(call_name_and_arguments(call)) for call in calls)))
        yield text
        if "\\" in text:
            yield _unescaped(text)


def _parts(value: _Value) -> list[str]:
    """What must stand in the sources, each by itself: the steps of a path, what is joined with a plain word."""
    if value.kind == "path":
        return [step for step in value.text.split("/") if len(step) > 2]
    parts = [part for part in re.split(r"[-/]", value.text) if any(map(str.isdigit, part)) or not part.islower()]
    return parts if parts and "://" not in value.text and all(len(part) > 3 for part in parts) else [value.text]


def _ends(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size * 3 // 4] + "\n" + text[-size // 4 :]


def _unescaped(text: str) -> str:
    """What ``text`` says where it is JSON, or holds some."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else " "


def _fold(text: str) -> str:
    return text.lower() if text.isascii() else normalize("NFKC", text).casefold()


def _stands(value: str, folded: str) -> bool:
    """Whether a text holds ``value`` by itself, with any marks or none where it has some or letters meet digits."""
    runs = _RUN.findall(_fold(value))
    if not runs or runs[0] not in folded:
        return False
    for found in islice(re.finditer(r"[\W_]{0,3}".join(map(re.escape, runs)), folded), _MOST_HITS):
        around = folded[max(found.start() - 1, 0) : found.start() + 1], folded[found.end() - 1 : found.end() + 1]
        if not any(len(pair) == 2 and _ATOM.fullmatch(pair) for pair in around):
            return True
    return False


def _gives(values: Iterable[_Value]) -> set[str]:
    return {key for value in values for key in value.gives}


def _values(text: str) -> Iterator[_Value]:
    """The tokens of ``text``, in order."""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if match["url"]:
            yield _url(token.rstrip(".,;:!?"))
        elif match["date"]:
            yield _date(token)
        elif match["money"] or match["number"]:
            yield _amount(token, is_money=match["money"] is not None)
        elif "/" in token:
            yield from _path(token)
        else:
            yield _word(token)


def _url(text: str) -> _Value:
    address = _fold(text).split("://", 1)[1].rstrip("/")
    keys = (address, re.split(r"[?#]", address)[0].rstrip("/"))
    return _Value(text, "identifier", keys, keys)


def _date(text: str) -> _Value:
    """A date; one without a year is that day of any year."""
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if text[:4].isdecimal():
        year, month, day = numbers
    else:
        name = next(name for name in re.findall(r"[A-Z][a-z]{2}", text))
        month, day, year = _MONTHS.index(name.lower()) + 1, numbers[0], (*numbers, 0)[1]
    some, full, bare = f"*-{month}-{day}", f"{year}-{month}-{day}", f"0-{month}-{day}"
    return _Value(text, "date", (some, full), (full, bare) if year else (some,))


def _amount(text: str, *, is_money: bool) -> _Value:
    keys = _readings(re.sub(r"[^\d.,]", "", _fold(text)))
    digits = text if text.isdecimal() else ""
    kind = "money" if is_money else "plain"
    if not is_money and (len(digits) > 3 or not digits):
        kind = "identifier" if len(digits) > 4 else "number"
    return _Value(text, "plain" if re.fullmatch("(?:19|20)\\d\\d", text) else kind, keys, keys)


def _readings(number: str) -> tuple[str, ...]:
    """What ``number`` may mean: three digits behind its last mark may be thousands or decimals."""
    *groups, last = re.split(r"[.,]", number)
    if not groups:
        return (number.lstrip("0") or "0",)
    whole = "".join(groups).lstrip("0") or "0"
    decimals = last.rstrip("0")
    readings = (f"{whole}.{decimals}" if decimals else whole,)
    return (*readings, (whole + last).lstrip("0")) if len(last) == 3 else readings


def _path(text: str) -> Iterator[_Value]:
    """A path, known by its end; or the words that a slash separates."""
    steps = _fold(text).lstrip("~./").split("/")
    rooted = text[0] in "~./"
    if not rooted and not _FILE.fullmatch(text) and (len(steps) < 3 or not re.search(r"[\d_.]", text)):
        yield from map(_word, text.split("/"))
        return
    ends = ["/".join(steps[start:]) for start in range(max(0, len(steps) - 12), len(steps))]
    whole = "/".join(steps)
    gives = ("/".join(steps[-2:]), whole, *(f"<{end}" for end in ends), *(_squashed(step) for step in steps))
    yield _Value(text, "path" if len(steps) > 1 and "." in steps[-1] else "name", gives, (f"<{whole}", *ends))


def _word(text: str) -> _Value:
    folded = _fold(text)
    if text.isascii() and text.isalpha():
        return _Value(text, "capitals" if len(text) > 4 and text.isupper() else "plain", (folded,), (folded,))
    squashed = _squashed(text)
    atoms = _ATOM.findall(folded)
    gives = [squashed, folded, f"<{folded}", *(atom for atom in atoms if len(atom) > 3)]
    needs = [squashed]
    if _HASH.fullmatch(folded):
        whole, short = ("", "…") if len(squashed) > 19 else ("…", "")
        gives.append(f"#{squashed[:7]}{whole}")
        needs.append(f"#{squashed[:7]}{short}")
    elif all(atom.isalpha() or _SERIAL.fullmatch(atom) for atom in atoms):
        needs += [atom for atom in atoms if not atom.isalpha()]
    return _Value(text, _kind(text), tuple(gives), tuple(needs))


def _squashed(text: str) -> str:
    return "".join(_ATOM.findall(_fold(text)))


def _kind(text: str) -> str:
    """What a word is by its form."""
    if _LABEL.fullmatch(text):
        return "name"
    digits = sum(map(str.isdecimal, text))
    mixed = digits and len(text) > 3 and not _QUANTITY.fullmatch(text) and (digits > 4 or any(map(str.isalpha, text)))
    if "@" in text[1:] or mixed:
        return "identifier"
    if "_" in text or "." in text[1:-1]:
        return "path" if _FILE.fullmatch(text) and re.search(r"[_-]", text) and text.count(".") == 1 else "name"
    return "capitals" if text.isupper() and len(text) > 4 else "plain"
