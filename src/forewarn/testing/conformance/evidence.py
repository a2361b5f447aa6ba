"""Evidence of a conformance rule: documented by Microsoft, observed in captured traffic, or Forewarn's own choice."""

from enum import StrEnum

import msgspec

PAGES = {
    "events": "Microsoft, “Scheduled Events for Linux VMs”",
    "metadata": "Microsoft, “Azure Instance Metadata Service”",
}
"""The pages that sources name, each with the section that has the sentence."""


class EvidenceKind(StrEnum):
    """How a rule is known. Only what is documented or observed can make an endpoint wrong."""

    DOCUMENTED = "documented"
    OBSERVED = "observed"
    OUR_CHOICE = "our choice"

    @property
    def mark(self) -> str:
        """Return the mark on the protocol page, without brackets."""
        return MARKS[self]


MARKS = {EvidenceKind.DOCUMENTED: "D", EvidenceKind.OBSERVED: "C", EvidenceKind.OUR_CHOICE: "O"}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of a rule and its source: the page with the sentence, or the capture."""

    kind: EvidenceKind
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.source) is (self.kind is EvidenceKind.OUR_CHOICE):
            raise ValueError(f"{self.kind}: the source is {self.source!r}; every kind but our choice needs one")

    def __str__(self) -> str:
        return f"{self.kind}: {self.source}" if self.source else self.kind.value


def documented(page: str, section: str) -> Evidence:
    """Return evidence of a sentence in a section of one of PAGES."""
    return Evidence(kind=EvidenceKind.DOCUMENTED, source=f"{PAGES[page]}, {section}")


def observed(capture: str) -> Evidence:
    """Return evidence of a capture: real traffic, or what real clients send or rely on."""
    return Evidence(kind=EvidenceKind.OBSERVED, source=capture)


OUR_CHOICE = Evidence(kind=EvidenceKind.OUR_CHOICE)

EVENT_PROPERTIES = documented("events", "Event properties")
START_AN_EVENT = documented("events", "Start an event")
SECURITY = documented("metadata", "Security and authentication")
EVENT_LOG = observed("the log of Azure/vm-scheduled-events, July 2021")
CAPTURED_RESPONSES = observed("captured responses of the real service")
