"""The rows as data: each has a name of its own and cites words that are on the page."""

import re
from pathlib import Path

import pytest

from forewarn.testing.conformance import RULES, Rule, plain_text
from forewarn.testing.conformance.rule import OWN_SECTIONS

PAGE = (Path(__file__).parents[3] / "docs/reference/guest-protocol.md").read_text(encoding="utf-8")

OWN_PARTS = {"forwarded", "forwarded-approval"}
"""Rows of a line that bears the mark, which do not go as far as the part that has it."""


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_row_has_a_name_of_its_own() -> None:
    ids = [row.id for row in RULES]
    assert sorted(ids) == sorted(set(ids))
    assert [id_ for id_ in ids if not re.fullmatch(r"[a-z0-9.-]+", id_)] == []


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id)
def test_row_cites_the_words_of_the_page(row: Rule) -> None:
    assert row.text in section(row.section)


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.id)
def test_citation_is_whole(row: Rule) -> None:
    """It stands alone in a table: what is opened is closed, and nothing is announced that does not come."""
    cited = plain_text(row.text)
    assert [cited.count(mark) for mark in "([{"] == [cited.count(mark) for mark in ")]}"]
    assert cited.count("`") % 2 == 0
    assert not cited.endswith((":", ",", ";"))


def test_links_lose_their_address_and_lists_keep_their_brackets() -> None:
    assert plain_text('| the [document](#the-document) | `["2020-07-01"]` |') == 'the document · `["2020-07-01"]`'


def test_section_that_is_all_our_own_says_so() -> None:
    assert {title for title in OWN_SECTIONS if "all of it (O)" in section(title)} == OWN_SECTIONS


def test_every_section_has_rows() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert list(dict.fromkeys(row.section for row in RULES)) == titles


@pytest.mark.parametrize("row", [row for row in RULES if not row.is_own], ids=lambda row: row.id)
def test_mark_is_not_cut_off(row: Rule) -> None:
    """What is our own choice must not be called wrong because the citation ends before the mark."""
    behind = section(row.section).split(row.text)[1]
    assert row.id in OWN_PARTS or not behind.removeprefix(" ").startswith(("(O", "400 (O", "403 (O"))
