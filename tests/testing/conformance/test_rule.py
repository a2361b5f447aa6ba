"""Conformance rules: which are Forewarn's own."""

import pytest

from forewarn.testing.conformance.rule import Finding, Precondition, Rule, Verdict


@pytest.mark.parametrize(
    ("section", "text", "own"),
    [
        ("Responses", "The response has an ETag.", False),
        ("Responses", "The response has an ETag (O3).", True),
        ("Waiting instead of polling", "The endpoint holds the request.", True),
    ],
)
def test_rule_is_our_own_by_its_mark_or_its_section(section: str, text: str, own: bool) -> None:
    rule = Rule(id="r", section=section, text=text, check=lambda _: None)
    assert (rule.is_own, rule.precondition) == (own, Precondition.NOTHING)


def test_finding_has_no_evidence_by_default() -> None:
    finding = Finding(row="r", section="s", rule="t", is_own=False, verdict=Verdict.PASSED)
    assert (finding.why, finding.seen, finding.seconds) == ("", (), 0.0)
