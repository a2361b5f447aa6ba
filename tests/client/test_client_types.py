"""User code is type-checked against the installed package: correct code passes, and wrong code is reported."""

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
    """The report of mypy about files in a separate directory, where Forewarn is only an installed package."""

    def __init__(self, directory: Path, sources: dict[str, str]) -> None:
        for name, source in sources.items():
            (directory / name).write_text(source, encoding="utf-8")
        # With an empty settings file, mypy does not read the user's settings.
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


def test_correct_programs_type_check(checked: Checked) -> None:
    assert [error for error in checked.errors if error[0] != "mistakes.py"] == [], checked.report


def test_wrong_programs_are_reported(checked: Checked) -> None:
    """This proves that mypy knows the types: it does only for a package with `py.typed`."""
    lines = (HERE / "mistakes.txt").read_text(encoding="utf-8").splitlines()
    expected = {
        ("mistakes.py", number, found[1])
        for number, line in enumerate(lines, start=1)
        if (found := EXPECTED.search(line)) is not None
    }
    assert len(expected) == 13
    assert checked.errors == expected, checked.report


def test_nothing_else_is_reported(checked: Checked) -> None:
    """A missing stub or an untyped import would add another line."""
    assert re.search(r"py\.typed|untyped|stub", checked.report) is None, checked.report
    assert re.fullmatch(r"Found \d+ errors in 1 file .*", checked.report.splitlines()[-1])


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_library_type_checks_for_other_platforms(platform: str, tmp_path: Path) -> None:
    """The types of the standard library show what each system has, as far as a test on one system can tell."""
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
