"""Every example is complete: valid agent settings, executable programs, and a page that names its files."""

import os
import tomllib
from pathlib import Path

import pytest

from forewarn.agent.settings import read_settings
from tests.examples.example_settings import EXAMPLES

ALL = sorted(path for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.fixture(params=ALL, ids=lambda path: path.name)
def example(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_settings_are_valid(example: Path) -> None:
    settings = read_settings(example / "agent.toml", {})
    written = tomllib.loads((example / "agent.toml").read_text())
    assert {handler.name for handler in settings.handlers} == {*written["handlers"], "log"}
    assert len(settings.rules) == len(written["rules"])


def test_programs_are_executable(example: Path) -> None:
    programs = [path for path in example.rglob("*") if path.is_file() and path.read_text().startswith("#!")]
    assert [path.name for path in programs if not os.access(path, os.X_OK)] == []


def test_page_names_every_file(example: Path) -> None:
    page = (example / "README.md").read_text()
    files = [path.relative_to(example).as_posix() for path in example.rglob("*") if path.is_file()]
    assert [file for file in files if f"]({file})" not in page and file != "README.md"] == []


def test_overview_names_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert [path.name for path in ALL if f"({path.name}/README.md)" not in page] == []
