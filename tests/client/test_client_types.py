"""User code is type-checked against the installed package: what is right passes, and what is wrong is found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import programs

pytestmark = pytest.mark.process

HERE = Path(__file__).parent / "typed_programs"
LESSON = Path(__file__).parents[2] / "docs/tutorial/first-handler.md"
EXPECTED = re.compile(r"# \[([a-z-]+)\]$")
REPORTED = re.compile(r"^([\w.]+):(\d+): error: .*\[([a-z-]+)\]$", re.MULTILINE)


class Checked:
    """What mypy says of some files in a directory of their own: it knows Forewarn as an installed package alone."""

    def __init__(self, directory: Path, sources: dict[str, str]) -> None:
        for name, source in sources.items():
            (directory / name).write_text(source, encoding="utf-8")
        # An empty file of settings keeps mypy from reading those of the user.
        (directory / "mypy.ini").write_text("[mypy]\n")
        ended = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "--cache-dir", "cache", *sources],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        self.report = ended.stdout + ended.stderr
        self.errors = {(name, int(line), code) for name, line, code in REPORTED.findall(ended.stdout)}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    sources = {
        "user_programs.py": (HERE / "user_programs.py").read_text(encoding="utf-8"),
        "mistakes.py": (HERE / "mistakes.txt").read_text(encoding="utf-8"),
    }
    return Checked(tmp_path_factory.mktemp("user"), sources | programs(LESSON))


def test_programs_of_users_and_of_the_lesson_are_right(checked: Checked) -> None:
    assert [error for error in checked.errors if error[0] != "mistakes.py"] == [], checked.report


def test_mistakes_are_found(checked: Checked) -> None:
    """So the types are known, which they are for a package that ships `py.typed` alone."""
    lines = (HERE / "mistakes.txt").read_text(encoding="utf-8").splitlines()
    expected = {
        ("mistakes.py", number, found[1])
        for number, line in enumerate(lines, start=1)
        if (found := EXPECTED.search(line)) is not None
    }
    assert len(expected) == 13
    assert checked.errors == expected, checked.report


def test_nothing_else_is_reported(checked: Checked) -> None:
    """A missing stub, or a note about an untyped import, would come in a line of its own."""
    assert re.search(r"py\.typed|untyped|stub", checked.report) is None, checked.report
    assert re.fullmatch(r"Found \d+ errors in 1 file .*", checked.report.splitlines()[-1])


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_library_needs_nothing_that_another_system_does_not_have(platform: str, tmp_path: Path) -> None:
    """The types of the standard library say what each system has, as far as a test on one of them can know."""
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--platform", platform, "--cache-dir", tmp_path, "src/forewarn/client"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
