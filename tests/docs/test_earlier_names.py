"""Each reference page lists the earlier public names of its package, which are aliases."""

import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGES = {
    "forewarn.testing": "testing.md",
    "forewarn.testing.conformance": "conformance.md",
    "forewarn.testing.exam": "exam.md",
}


@pytest.mark.parametrize("package", PAGES)
def test_page_lists_the_aliases(package: str) -> None:
    page = (REFERENCE / PAGES[package]).read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", page.partition("## Earlier names\n")[2], re.MULTILINE)
    module = import_module(package)
    names_of_value: dict[int, set[str]] = defaultdict(set)
    for name in module.__all__:
        names_of_value[id(getattr(module, name))].add(name)
    assert sorted(map(set, listed), key=min) == sorted((n for n in names_of_value.values() if len(n) > 1), key=min)
    for _, name in listed:
        assert getattr(getattr(module, name), "__name__", name) == name
