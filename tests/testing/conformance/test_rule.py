"""Conformance rules: evidence is required, and only Forewarn's own choices are our own."""

import msgspec
import pytest

from forewarn.testing.conformance.evidence import OUR_CHOICE, Evidence, documented, observed
from forewarn.testing.conformance.rule import Finding, Precondition, Rule, Verdict


def rule(evidence: Evidence) -> Rule:
    return Rule(id="r", section="The document", text="It has an ETag.", evidence=evidence, check=lambda _: None)


@pytest.mark.parametrize(
    ("evidence", "is_own"),
    [(documented("events", "Headers"), False), (observed("a capture"), False), (OUR_CHOICE, True)],
)
def test_rule_is_our_own_by_its_evidence(evidence: Evidence, is_own: bool) -> None:
    assert (rule(evidence).is_own, rule(evidence).precondition) == (is_own, Precondition.NOTHING)


def test_rule_without_evidence_is_refused() -> None:
    """So that a module with such a rule cannot be imported."""
    fields = {"id": "r", "section": "s", "text": "t", "check": lambda _: None}
    with pytest.raises(TypeError, match="evidence"):
        Rule(**fields)  # type: ignore[arg-type]  # evidence is missing on purpose
    assert "evidence" in {field.name for field in msgspec.structs.fields(Rule) if field.required}


def test_rule_cites_the_anchor_of_its_section() -> None:
    assert rule(OUR_CHOICE).anchor == "docs/reference/guest-protocol.md#the-document"


def test_finding_has_no_evidence_by_default() -> None:
    finding = Finding(row="r", section="s", rule="t", is_own=False, verdict=Verdict.PASSED)
    assert (finding.why, finding.seen, finding.seconds, finding.source) == ("", (), 0.0, "")
