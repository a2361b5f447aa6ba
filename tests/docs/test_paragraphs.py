"""Pages stay short: no paragraph, list item or table cell of a page is longer than 500 characters."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 500
DECISIONS = ROOT / "docs/decisions"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "examples").rglob("*.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != DECISIONS or page.stem == "README"),
]
"""Every page that users read. Decisions are not edited after they are made, so their bodies stay as they are."""

FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
ITEM = re.compile(r" *(?:[-*]|\d+\.) ")
HEADING = re.compile(r"#+ ")
CELL_BORDER = re.compile(r"(?<!\\)\|")


def paragraphs(page: str) -> Iterator[str]:
    """Yield the paragraphs, list items and table cells of a page, without code and without targets of links."""
    text = LINK.sub(r"\1", COMMENT.sub("", FENCE.sub("", page)))
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_row = line.lstrip().startswith("|")
        if not line.strip() or is_row or ITEM.match(line) or HEADING.match(line):
            if lines:
                yield " ".join(lines)
            lines = []
        if is_row:
            yield from (cell.strip() for cell in CELL_BORDER.split(line))
        elif line.strip() and not HEADING.match(line):
            lines.append(line.strip())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paragraphs_are_short(page: Path) -> None:
    long = {text: len(text) for text in paragraphs(page.read_text(encoding="utf-8")) if len(text) > LIMIT}
    assert long == {}, "split the paragraph, make a list or a table of it, or cut it"


def test_parts_of_a_page_are_measured_separately() -> None:
    page = (
        "# Title\nOne [link](https://example.org)\nparagraph.\n\n- item\n  goes on\n- item\n\n"
        "| a | b \\| c |\n|---|---|\n\n```\ncode\n```\n\n1. step\n\n   ```sh\n   code\n   ```\n\n"
        "<!-- a\n\ncomment -->\nend"
    )
    found = [text for text in paragraphs(page) if text]
    assert found == ["One link paragraph.", "- item goes on", "- item", "a", "b \\| c", "---", "---", "1. step", "end"]


def test_long_paragraph_is_found() -> None:
    assert [len(text) for text in paragraphs(f"short\n\n{'word ' * 120}\n")] == [5, 599]
