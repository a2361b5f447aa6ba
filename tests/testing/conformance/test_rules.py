"""Tests of the rules as data: unique ids, and texts that are on the protocol page."""

import re
from pathlib import Path

import pytest

from forewarn.testing.conformance import RULES, Rule, plain_text
from forewarn.testing.conformance.rule import OWN_SECTIONS

PAGE = (Path(__file__).parents[3] / "docs/reference/guest-protocol.md").read_text(encoding="utf-8")

OWN_PARTS = {"forwarded", "forwarded-approval"}
"""Rules that quote only the beginning of a line; the mark (O) belongs to its later part."""


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_rules_have_unique_ids() -> None:
    ids = [row.id for row in RULES]
    assert sorted(ids) == sorted(set(ids))
    assert [id_ for id_ in ids if not re.fullmatch(r"[a-z0-9.-]+", id_)] == []


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id)
def test_text_of_a_rule_is_on_the_page(row: Rule) -> None:
    assert row.text in section(row.section)


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id)
def test_citation_is_complete(row: Rule) -> None:
    """It stands alone in a table: brackets are balanced, and it does not end in the middle of a sentence."""
    cited = plain_text(row.text)
    assert [cited.count(mark) for mark in "([{"] == [cited.count(mark) for mark in ")]}"]
    assert cited.count("`") % 2 == 0
    assert not cited.endswith((":", ",", ";"))


def test_plain_text_removes_links_but_keeps_brackets() -> None:
    assert plain_text('| the [document](#the-document) | `["2020-07-01"]` |') == 'the document · `["2020-07-01"]`'


def test_own_sections_are_marked_on_the_page() -> None:
    assert {title for title in OWN_SECTIONS if "all of it (O)" in section(title)} == OWN_SECTIONS


def test_every_section_has_rules() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert list(dict.fromkeys(row.section for row in RULES)) == titles


@pytest.mark.parametrize("row", [row for row in RULES if not row.is_own], ids=lambda row: row.id)
def test_citation_includes_the_mark_for_own_behaviour(row: Rule) -> None:
    """Otherwise a difference from Forewarn's own behaviour would count as wrong."""
    behind = section(row.section).split(row.text)[1]
    assert row.id in OWN_PARTS or not behind.removeprefix(" ").startswith(("(O", "400 (O", "403 (O"))
