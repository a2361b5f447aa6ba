"""The lock files in requirements/: every package with its version and hashes, and nothing about where it comes from."""

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted(file.stem for file in (ROOT / "requirements").glob("*.txt"))
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
PLAIN: list[str] = PROJECT["project"]["dependencies"]
BUILD = [*PROJECT["build-system"]["requires"], "editables"]
DOCS = (ROOT / "requirements-docs.txt").read_text().splitlines()
DEVELOPMENT = (ROOT / "requirements-dev.txt").read_text().splitlines()

DIRECT = {
    "build": BUILD,
    "cluster": [*PLAIN, *EXTRAS["server"], *EXTRAS["cluster"]],
    "development": [*BUILD, *PLAIN, *chain(*EXTRAS.values()), *DOCS, *DEVELOPMENT],
    "docs": DOCS,
    "lock": ["uv"],
    "notify": [*PLAIN, *EXTRAS["notify"]],
    "plain": PLAIN,
    "server": [*PLAIN, *EXTRAS["server"]],
    "testing": [*PLAIN, *EXTRAS["server"], *EXTRAS["testing"]],
}
"""What each lock file is written for."""

PIN = re.compile(r"[a-z0-9-]+==[0-9][A-Za-z0-9.!+]*(?: ; [\w.'<>=!() ]+?)?(?: --hash=sha256:[0-9a-f]{64})+")
RENEW = "run `make lock` and commit the result"


def pins(name: str) -> list[str]:
    """Return the requirements of a lock file, each in one line."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    lines = re.sub(r" \\\n +", " ", text).splitlines()
    return [line for line in lines if not line.startswith("#")]


def pinned(name: str) -> dict[str, str]:
    """Return the versions of a lock file, by package."""
    found = [Requirement(line.partition(" --hash")[0]) for line in pins(name)]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in found}


def test_every_lock_file_is_written_for_something() -> None:
    assert sorted(DIRECT) == LOCKS


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_is_a_version_with_hashes(name: str) -> None:
    """No address, no option: any registry, mirror or folder that has the same files can be used."""
    assert [line for line in pins(name) if not PIN.fullmatch(line)] == []
    assert len(pinned(name)) == len(pins(name))


@pytest.mark.parametrize("name", LOCKS)
def test_every_direct_dependency_is_locked_at_an_allowed_version(name: str) -> None:
    versions = pinned(name)
    direct = [Requirement(line) for line in DIRECT[name]]
    wrong = [
        str(each)
        for each in direct
        if each.name != "forewarn"
        and (
            (version := versions.get(canonicalize_name(each.name))) is None
            or not each.specifier.contains(version, prereleases=True)
        )
    ]
    assert wrong == [], RENEW


@pytest.mark.parametrize("name", [name for name in LOCKS if name not in {"development", "lock"}])
def test_tests_use_the_versions_that_users_install(name: str) -> None:
    assert pinned(name).items() <= pinned("development").items(), RENEW


@pytest.mark.parametrize(
    "line",
    [
        "click==8.5.1",
        "click>=8 --hash=sha256:" + "0" * 64,
        "click @ https://example.org/click.whl --hash=sha256:" + "0" * 64,
        "--no-binary click",
    ],
    ids=["no hash", "no version", "an address", "an option"],
)
def test_other_lines_are_found(line: str) -> None:
    assert not PIN.fullmatch(line)
