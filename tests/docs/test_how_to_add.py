"""The page for contributors names files that exist, for everything that can be added."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/contributing/how-to-add.md"
FILE = re.compile(r"`((?:src|tests|docs|tools)/[^`<\s]+)`")
SUBJECTS = [
    "A setting",
    "An API field",
    "A campaign policy key",
    "A property of VMs",
    "An event type",
    "A conformance rule",
    "An agent handler",
    "A CLI command",
    "A store",
    "A platform",
]


def missing_files(page: str) -> list[str]:
    """Return the files that the page names and that do not exist."""
    return [name for name in FILE.findall(page) if not (ROOT / name).exists()]


def test_every_file_exists() -> None:
    assert missing_files(PAGE.read_text()) == []


def test_missing_file_is_found() -> None:
    assert missing_files("`src/forewarn/core/event.py`, `docs/gone.md`") == ["docs/gone.md"]


def test_each_section_lists_code_tests_and_documentation() -> None:
    sections = PAGE.read_text().split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == SUBJECTS
    for section in sections:
        folders = {name.partition("/")[0] for name in FILE.findall(section)}
        assert folders >= {"src", "tests", "docs"}, section
