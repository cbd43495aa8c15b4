"""The documentation's pages and the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!-- (.*?) -->\n*\Z")
PRINTS = "It prints:"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: the page's path from the root.
        line: where its code begins, from 1.
        language: after the fence.
        body: the code.
        mark: what the comment right before it says; empty without one.
        prints: what the page says that it prints; None when it says nothing of it.
    """

    page: str
    line: int
    language: str
    body: str
    mark: str
    prints: str | None

    @property
    def runs(self) -> bool:
        return not self.mark.startswith("not run")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    made = []
    for at, fence in enumerate(found):
        mark = COMMENT.search(text[: fence.start()])
        after = found[at + 1] if at + 1 < len(found) else None
        says = after is not None and text[fence.end() : after.start()].strip() == PRINTS
        made.append(
            Block(
                page=name_of(page),
                line=text.count("\n", 0, fence.start()) + 2,
                language=fence["language"],
                body=fence["body"],
                mark=mark[1] if mark else "",
                prints=after["body"] if says and after is not None else None,
            )
        )
    return [block for block in made if block.language == language]


def without_code(page: Path) -> str:
    """The page's prose: fenced blocks and inline code are gone."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The page's headings, as links name them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
