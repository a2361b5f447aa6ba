"""Tests of the rules as data: unique ids, texts that are on the protocol page, and kinds that match its marks."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from forewarn.testing.conformance import RULES, EvidenceKind, Rule, plain_text
from forewarn.testing.conformance.rule import PROTOCOL_PAGE

PAGE = (Path(__file__).parents[3] / "docs/reference/guest-protocol.md").read_text(encoding="utf-8")

MARK = re.compile(r"\(([DCO])(?=[):])")
"""A mark with or without an explanation: (D), (O: on Azure, …)."""

OWN_SECTION = "Waiting instead of polling"
"""The section that begins with the mark for all of it."""

NEVER_WRONG = {
    "approve-body", "body-error", "body-too-large", "expect-continue", "expect-other", "expect-refused",
    "head-too-large", "header-empty", "header-false", "header-name-case", "header-other", "header-twice",
    "header-value-case", "method-delete", "method-head", "method-options", "method-put", "not-http", "rate-response",
    "request-id", "unknown-path", "version-missing-body", "version-unsupported-body",
}  # fmt: skip
"""Limits of head and body, bytes that are not HTTP, bodies of 404 and 405, `Allow`, HEAD, `Retry-After` and the body of
429, bodies for missing and unsupported versions, `Expect`, the request id, and variants of the header: nothing is
documented or captured."""


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


@pytest.mark.parametrize("row", [row for row in RULES if row.section != OWN_SECTION], ids=lambda row: row.id)
def test_mark_on_the_page_is_the_kind_of_the_rule(row: Rule) -> None:
    """The last mark of the quotation counts: an earlier one is that of another rule about the same line."""
    assert MARK.findall(row.text)[-1:] == [row.evidence.kind.mark]


def test_own_section_is_marked_as_a_whole() -> None:
    assert "all of it (O)." in section(OWN_SECTION).split("\n\n")[0]
    own = [row for row in RULES if row.section == OWN_SECTION]
    assert {row.evidence.kind for row in own} == {EvidenceKind.OUR_CHOICE}


def test_page_has_no_other_marks() -> None:
    """A mark in another form would not count."""
    marks = re.findall(r"\((?:[A-Z])\b[^)]{0,12}\)?", PAGE)
    assert [mark for mark in marks if not MARK.match(mark)] == []


def statements() -> list[str]:
    """Return the statements of the page about requests and responses: list entries and rows of tables."""
    body = PAGE.split("\n## Requests\n")[1].split("\n## The instance document\n")[0]
    lines = [line for line in body.splitlines() if line.startswith(("- ", "| "))]
    heads = {lines for lines, below in pairwise(body.splitlines()) if below.startswith("|---")}
    return [line for line in lines if line not in heads]


@pytest.mark.parametrize("statement", statements(), ids=lambda line: line[:40])
def test_every_statement_of_the_page_has_a_mark(statement: str) -> None:
    assert MARK.search(statement)


def test_rules_without_evidence_cannot_be_wrong() -> None:
    assert {row.id for row in RULES if row.is_own} >= NEVER_WRONG


def test_every_kind_has_rules() -> None:
    assert {row.evidence.kind for row in RULES} == set(EvidenceKind)


def test_every_rule_cites_an_anchor_of_the_page() -> None:
    anchors = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)}
    assert {row.anchor for row in RULES} == {f"{PROTOCOL_PAGE}#{anchor}" for anchor in anchors}


def test_every_section_has_rules() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert list(dict.fromkeys(row.section for row in RULES)) == titles
