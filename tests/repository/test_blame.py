"""`.git-blame-ignore-revs` lists commits of this history."""

import re
import subprocess
from pathlib import Path

import pytest

ENTRY = re.compile(r"^# (.+)\n([0-9a-f]{40})$", re.MULTILINE)


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def history(root: Path) -> dict[str, str]:
    """Return the subject of every commit, by its hash."""
    if not (root / ".git").exists():
        pytest.skip("an archive of the sources has no history to compare with")
    if git(root, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("a shallow clone lacks the commits that are listed")
    return dict(line.split(" ", 1) for line in git(root, "log", "--format=%H %s").splitlines())


def missing_commits(listing: str, history: dict[str, str]) -> list[str]:
    """Return the commits that the history lacks, or has with another subject."""
    return [commit for subject, commit in ENTRY.findall(listing) if history.get(commit) != subject]


@pytest.mark.process
def test_listed_commits_are_in_the_history(root: Path, history: dict[str, str]) -> None:
    listing = (root / ".git-blame-ignore-revs").read_text()
    commits = [line for line in listing.splitlines() if line and not line.startswith("#")]
    assert [commit for _, commit in ENTRY.findall(listing)] == commits, "each hash follows its subject as a comment"
    assert missing_commits(listing, history) == []


def test_wrong_entries_are_found() -> None:
    history = {"a" * 40: "core: rename", "b" * 40: "wire: rename"}
    listing = f"# core: rename\n{'a' * 40}\n\n# wire: move\n{'b' * 40}\n\n# api: rename\n{'c' * 40}\n"
    assert missing_commits(listing, history) == ["b" * 40, "c" * 40]
