"""A conformance rule (protocol section, cited text, evidence, check and precondition) and its finding."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from forewarn.testing.conformance.evidence import Evidence, EvidenceKind
from forewarn.testing.conformance.probe import Probe

PROTOCOL_PAGE = "docs/reference/guest-protocol.md"

Check: TypeAlias = Callable[[Probe], None]
"""Returns if the endpoint follows the rule; otherwise raises Mismatch, CheckSkipped or RequestFailed."""


class Precondition(StrEnum):
    """What a rule needs so that it can be checked."""

    NOTHING = "nothing"
    EVENT = "an event"
    SCHEDULED = "a Scheduled event"
    STARTED = "a Started event"
    PREEMPT = "a Preempt event"
    TERMINATE = "a Terminate event"
    PREEMPT_OR_TERMINATE = "a Preempt or Terminate event"
    VM = "an event of a VM that is not a role instance"
    ROLE_INSTANCE = "an event of a role instance"
    INSTANCE = "`/metadata/instance`"
    VERSIONS = "`/metadata/versions`"
    WAIT = "`Forewarn-Wait`"
    APPROVE = "`--approve` of a Scheduled event"
    APPROVE_ANY = "`--approve`"
    APPROVE_SEVERAL = "`--approve` of two Scheduled events"
    ENDED = "`--approve` of an event that has ended"
    WATCH = "`--watch` of a Scheduled event"
    BURST = "`--burst`"
    UNKNOWN_CALLER = "a caller that is not a VM"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the protocol."""

    id: str
    section: str
    """The heading in docs/reference/guest-protocol.md."""
    text: str
    """An exact quotation from that section; its last mark, (D), (C) or (O), is the rule's kind."""
    evidence: Evidence
    check: Check
    precondition: Precondition = Precondition.NOTHING

    @property
    def is_own(self) -> bool:
        """Whether the rule is Forewarn's own choice: another endpoint may differ without being wrong."""
        return self.evidence.kind is EvidenceKind.OUR_CHOICE

    @property
    def anchor(self) -> str:
        """Return the place of the rule: page and anchor of its section."""
        return f"{PROTOCOL_PAGE}#{self.section.lower().replace(' ', '-')}"


class Verdict(StrEnum):
    """The verdict on a rule."""

    PASSED = "passed"
    WRONG = "wrong"
    DIFFERS = "differs"
    """The endpoint differs from Forewarn's own choice; the behaviour of the real service is not known."""
    UNCHECKED = "not checked"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, its verdict and the evidence."""

    row: str
    section: str
    rule: str
    is_own: bool
    verdict: Verdict
    why: str = ""
    """What was observed instead, or why the rule was not checked."""
    seen: tuple[str, ...] = ()
    """The requests that led to a bad verdict, each with its response."""
    seconds: float = 0.0
    """The time of the check; close to 0 if earlier rules have already sent its requests."""
    kind: EvidenceKind = EvidenceKind.OUR_CHOICE
    source: str = ""
    """The page that documents the rule, or the capture; empty for Forewarn's own choice."""
    anchor: str = ""
    """The place of the rule on the protocol page."""
