"""Source and pages are written in plain technical English: the markers of a literary register do not come back."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"\b(whoever|nobody|anew|is told|is said|unless said|for ever|story)\b", re.IGNORECASE)
ALLOWED = {
    "docs/reference/guest-protocol.md": {"is said"},  # rules of the conformance kit cite these sentences
    "docs/reference/testing.md": {"story"},  # a public name
    "src/forewarn/testing/event.py": {"story"},  # a public name
    "src/forewarn/testing/sandbox/__init__.py": {"nobody"},  # a hostname
    "src/forewarn/testing/sandbox/egress.py": {"nobody"},  # a user
}


def markers(root: Path) -> dict[str, set[str]]:
    """Return the markers in each file of the source and the pages, except decisions, which are kept as written."""
    files = [*root.glob("src/**/*.py"), *root.glob("docs/**/*.md"), root / "README.md", root / "CONTRIBUTING.md"]
    found = {
        path.relative_to(root).as_posix(): {match[0].lower() for match in MARKER.finditer(path.read_text())}
        for path in files
        if path.is_file() and "decisions" not in path.parts
    }
    return {path: words for path, words in found.items() if words}


def test_no_marker_of_the_literary_register_is_left() -> None:
    assert markers(ROOT) == ALLOWED


@pytest.mark.parametrize("sentence", ["Whoever asks is told.", "It is kept for ever, unless said."])
def test_marker_is_found(tmp_path: Path, sentence: str) -> None:
    (tmp_path / "README.md").write_text(sentence)
    assert markers(tmp_path) == {"README.md": {match.lower() for match in MARKER.findall(sentence)}}
