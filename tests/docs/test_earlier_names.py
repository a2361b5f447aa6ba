"""Public names of commit 450409b remain, and the reference pages list those that have become aliases."""

import json
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

from tests.stored.public_names import PACKAGES, PLUGIN, public_names
from tests.stored.records import EXPECTED

REFERENCE = Path(__file__).parents[2] / "docs/reference"
CHAPTERS = {
    "forewarn.client": None,
    "forewarn.testing": ("testing.md", "Earlier names"),
    "forewarn.testing.conformance": ("conformance.md", "Earlier names"),
    "forewarn.testing.exam": ("exam.md", "Earlier names"),
    "forewarn.testing.sandbox": ("testing.md", "Earlier names of the sandbox"),
}
"""Where the aliases of each package are listed; None: nothing of it was renamed."""

PINNED: dict[str, list[str]] = json.loads((EXPECTED / "public-names.json").read_text())


def listed_aliases(package: str) -> dict[str, str]:
    """Return the earlier names that a page lists, each with the current name."""
    chapter = CHAPTERS[package]
    if chapter is None:
        return {}
    page, title = chapter
    text = (REFERENCE / page).read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", text, re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES)
def test_page_lists_the_aliases(package: str) -> None:
    listed = listed_aliases(package)
    module = import_module(package)
    names_of_value: dict[int, set[str]] = defaultdict(set)
    for name in module.__all__:
        names_of_value[id(getattr(module, name))].add(name)
    aliases = (names for names in names_of_value.values() if len(names) > 1)
    assert sorted(map(set, listed.items()), key=min) == sorted(aliases, key=min)
    for name in listed.values():
        assert getattr(getattr(module, name), "__name__", name) == name


@pytest.mark.parametrize("package", PACKAGES)
def test_earlier_public_names_remain(package: str) -> None:
    module = import_module(package)
    assert set(PINNED[package]) - set(module.__all__) == set()
    current = listed_aliases(package)
    assert set(current) <= set(PINNED[package])
    for name in PINNED[package]:
        value = getattr(module, name)
        assert value is getattr(module, current.get(name, name))
        if isinstance(value, type | FunctionType):
            assert value.__name__ == current.get(name, name)


def test_every_package_with_public_names_is_compared() -> None:
    assert set(PINNED) == {*PACKAGES, PLUGIN} == set(public_names())


@pytest.mark.parametrize("name", PINNED[PLUGIN])
def test_earlier_fixtures_remain(request: pytest.FixtureRequest, name: str) -> None:
    assert type(request.getfixturevalue(name)).__module__.startswith("forewarn.testing.")
