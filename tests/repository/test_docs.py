"""The documentation is consistent: links and paths exist, and the table of packages is complete."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE_PATH = re.compile(r"(?<![\w./-])(?:src|tests|tools)/[\w/-]+(?:\.[a-z]+)?")
SHORT_PATH = re.compile(r"`([a-z]+/[a-z0-9_/]+\.py)`")
"""A path below `src/forewarn`, as decisions write it. (Dotted names are checked in test_vocabulary.py.)"""


def prose_of(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text())


def anchors_of(page: Path) -> set[str]:
    """The anchors of the page's headings."""
    titles = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose_of(page)))
    return {title.strip().replace(" ", "-") for title in titles}


def broken_links(page: Path) -> Iterator[str]:
    for target in LINK.findall(prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            yield target


@pytest.mark.process
def test_internal_links_exist(files: tuple[Path, ...]) -> None:
    broken = {str(page): links for page in files if page.suffix == ".md" and (links := list(broken_links(page)))}
    assert broken == {}


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n[self](#a-page) [web](https://example.org) [gone](gone.md) [nowhere](page.md#nowhere)\n")
    assert list(broken_links(page)) == ["gone.md", "page.md#nowhere"]


def test_every_page_is_reached_from_the_index(root: Path) -> None:
    reached: set[Path] = set()
    to_read = [root / "docs/README.md"]
    while to_read:
        page = to_read.pop()
        reached.add(page)
        links = ((page.parent / link.partition("#")[0]).resolve() for link in LINK.findall(prose_of(page)))
        to_read += [link for link in links if link.suffix == ".md" and link.exists() and link not in reached]
    assert set((root / "docs").rglob("*.md")) - reached == set()


def test_first_screen_of_the_readme_lists_the_supported_systems(root: Path) -> None:
    """Above the first picture and the first heading, so that a reader sees it without scrolling."""
    first_screen = (root / "README.md").read_text().partition("![")[0].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", first_screen, re.MULTILINE))
    assert rows == {
        "part": "runs on",
        "service, `forewarn exam`, `forewarn run`": "Linux",
        "client library, agent, `forewarn` command": "anything with Python 3.11+",
        "`forewarn up`, the emulator": "Linux; macOS should work but is not tested",
    }


def test_table_of_packages_is_complete(root: Path) -> None:
    page = (root / "docs/explanation/architecture.md").read_text()
    first_cells = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    listed = [package for cell in first_cells for package in re.findall(r"`([\w/]+)`", cell)]
    source = root / "src/forewarn"
    packages = {path.parent.relative_to(source).as_posix() for path in source.glob("*/**/__init__.py")}
    inner = {"testing/conformance/rules", "testing/exam/scenarios"}
    modules = {path.stem for path in source.glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(packages - inner | modules)


def missing_paths(root: Path, page: str) -> list[str]:
    """Return the paths of code in the page that do not exist."""
    paths = [root / path for path in CODE_PATH.findall(page)]
    packages = {path.stem for path in (root / "src/forewarn").iterdir()}
    paths += [root / "src/forewarn" / path for path in SHORT_PATH.findall(page) if path.partition("/")[0] in packages]
    return [path.relative_to(root).as_posix() for path in paths if not path.exists()]


@pytest.mark.process
def test_every_path_of_code_exists(root: Path, files: tuple[Path, ...]) -> None:
    missing = {
        str(page): paths for page in files if page.suffix == ".md" and (paths := missing_paths(root, page.read_text()))
    }
    assert missing == {}


def test_missing_paths_are_found(root: Path) -> None:
    page = "See `tests/desk`, `tests/core`, `core/scope.py`, `core/desk.py`, `hooks/desk.py` and tools/desk.py."
    assert missing_paths(root, page) == ["tests/desk", "tools/desk.py", "src/forewarn/core/desk.py"]
