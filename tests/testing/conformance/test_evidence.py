"""Evidence of a rule: its kind, its mark and its source."""

import pytest

from forewarn.testing.conformance.evidence import OUR_CHOICE, PAGES, Evidence, EvidenceKind, documented, observed


def test_kinds_have_the_marks_of_the_protocol_page() -> None:
    assert {kind.value: kind.mark for kind in EvidenceKind} == {"documented": "D", "observed": "C", "our choice": "O"}


@pytest.mark.parametrize("kind", [EvidenceKind.DOCUMENTED, EvidenceKind.OBSERVED])
def test_evidence_without_a_source_is_refused(kind: EvidenceKind) -> None:
    with pytest.raises(ValueError, match="needs one"):
        Evidence(kind=kind)


def test_our_own_choice_has_no_source() -> None:
    assert (OUR_CHOICE.source, str(OUR_CHOICE)) == ("", "our choice")
    with pytest.raises(ValueError, match="our choice: the source is 'a page'"):
        Evidence(kind=EvidenceKind.OUR_CHOICE, source="a page")


def test_documented_evidence_names_page_and_section() -> None:
    assert str(documented("events", "Headers")) == f"documented: {PAGES['events']}, Headers"
    with pytest.raises(KeyError):
        documented("blog", "Headers")


def test_observed_evidence_names_the_capture() -> None:
    assert str(observed("a log of 2021")) == "observed: a log of 2021"
