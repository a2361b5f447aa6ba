"""Fixtures for tests of the repository: root, pyproject.toml and files."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def project(root: Path) -> dict[str, Any]:
    """The parsed pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="session")
def files(root: Path) -> tuple[Path, ...]:
    """Every file that is committed, or untracked and not ignored."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = (root / name for name in listing.stdout.split("\0") if name)
    return tuple(path for path in paths if path.is_file())
