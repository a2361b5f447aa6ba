"""Every `pip install` of the pages installs what it names: Forewarn from the clone or the built wheel.

Forewarn is not on a registry yet. A line that names it without a path would install somebody else's package.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.utils import canonicalize_name

from forewarn import __version__

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
PIP = re.compile(r"pip install ([^`\n]+)")
TOX = re.compile(r"^\[testenv\]\ndeps =\n((?:    .+\n)+)", re.MULTILINE)
BY_NAME = re.compile(r"(?<![\w./-])forewarn\[(?:server|testing|notify)[^\]]*\]|[\"'`]forewarn==")
WHEEL = f"forewarn-{__version__}-py3-none-any.whl"


class Line(NamedTuple):
    """What a line of a page installs."""

    page: str
    words: tuple[str, ...]


def lines(page: str, text: str) -> Iterator[Line]:
    """Yield the arguments of every `pip install`, and what tox installs."""
    for found in PIP.findall(text):
        yield Line(page, tuple(shlex.split(found)))
    for deps in TOX.findall(text):
        yield Line(page, tuple(deps.replace("{toxinidir}/", "./").split()))


LINES = [line for page in PAGES for line in lines(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]


def locked() -> set[str]:
    """Return the packages of the development environment."""
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/development.txt").read_text(), re.MULTILINE))


def wrong_words(line: Line) -> list[str]:
    """Return what is neither an option, nor Forewarn from a path, nor a package that the tests use."""
    options = {"--quiet", "--no-deps", "--require-hashes", "-r"}
    own = re.compile(
        rf"(?:\.|\.?\./forewarn|(?:\./)?(?:vendor/|dist/)?{re.escape(WHEEL)})(?:\[(server|testing|notify)\])?"
    )
    return [
        word
        for word in line.words
        if word not in options
        and not own.fullmatch(word)
        and not (word.startswith("requirements/") and (ROOT / word).is_file())
        and canonicalize_name(word) not in locked() - {"forewarn"}
    ]


def test_lines_are_found() -> None:
    pages = {line.page for line in LINES}
    assert {"docs/howto/install.md", "docs/howto/test-in-ci.md", "docs/tutorial/README.md"} <= pages


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{Path(line.page).stem} {' '.join(line.words)}")
def test_line_installs_forewarn_from_a_path(line: Line) -> None:
    assert wrong_words(line) == []


def test_no_page_or_message_names_forewarn_as_a_package_of_a_registry() -> None:
    files = [*PAGES, *ROOT.glob("src/**/*.py")]
    found = {str(file.relative_to(ROOT)): BY_NAME.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize("command", ["pip install forewarn", "pip install 'forewarn[server]'", "pip install leftpad"])
def test_wrong_line_is_found(command: str) -> None:
    assert [wrong_words(line) for line in lines("page", command)] != [[]]


def own_requirements() -> list[str]:
    """Return the different ways in which pages name Forewarn."""
    known = locked()
    return sorted({word for line in LINES for word in line.words if "forewarn" in word or word.startswith(".")} - known)


@pytest.mark.process
def test_pip_accepts_what_the_lines_name(tmp_path: Path) -> None:
    """pip finds Forewarn at each path, with the extra; it only pretends to install it."""
    work = tmp_path / "work"
    for directory in (work / "vendor", work / "dist"):
        directory.mkdir(parents=True)
    for link in (work / "forewarn", tmp_path / "forewarn"):
        link.symlink_to(ROOT)
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(work))
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True, timeout=250)
    for directory in (work / "vendor", work / "dist"):
        (directory / WHEEL).symlink_to(work / WHEEL)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--dry-run", "--no-deps")
    for named in own_requirements():
        directory = ROOT if named.startswith(".[") else work
        command = (*pip, "--ignore-installed", "--no-build-isolation", named)
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=250, check=False)
        assert (ended.returncode, "WARNING" in ended.stderr) == (0, False), ended.stdout + ended.stderr
        assert ended.stdout.splitlines()[-1] == f"Would install forewarn-{__version__}", ended.stdout


@pytest.mark.long
@pytest.mark.process
def test_set_up_of_the_lessons_leaves_nothing_in_the_clone(tmp_path: Path) -> None:
    """The commands of the page create the directory of the lessons beside the clone, and Forewarn works in it."""
    page = (ROOT / "docs/tutorial/README.md").read_text(encoding="utf-8")
    set_up = page.partition("## Set up")[2].partition("```sh\n")[2].partition("```")[0]
    clone = tmp_path / "forewarn"
    subprocess.run(("git", "clone", "-q", str(ROOT), str(clone)), check=True)
    script = f'set -e\npython3() {{ {shlex.quote(sys.executable)} "$@"; }}\n{set_up}\nforewarn --version\npwd\n'
    ended = subprocess.run(
        ("bash", "-c", script), cwd=tmp_path, capture_output=True, text=True, timeout=290, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == [f"forewarn {__version__}", str(tmp_path / "forewarn-lessons")]
    changed = ("git", "status", "--porcelain", "--ignored")
    assert subprocess.run(changed, cwd=clone, capture_output=True, text=True, check=True).stdout == ""
