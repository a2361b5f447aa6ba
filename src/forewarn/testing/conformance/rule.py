"""A conformance rule (protocol section, cited text, check and precondition) and its finding."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from forewarn.testing.conformance.probe import Probe

OWN_MARK = "(O"
OWN_SECTIONS = frozenset({"Waiting instead of polling"})
"""Sections of the protocol page that describe only Forewarn's own behaviour."""

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
    WAIT = "`Forewarn-Wait`"
    APPROVE = "`--approve` of a Scheduled event"
    APPROVE_ANY = "`--approve`"
    ENDED = "`--approve` of an event that has ended"
    BURST = "`--burst`"
    UNKNOWN_CALLER = "a caller that is not a VM"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the protocol."""

    id: str
    section: str
    """The heading in docs/reference/guest-protocol.md."""
    text: str
    """An exact quotation from that section."""
    check: Check
    precondition: Precondition = Precondition.NOTHING

    @property
    def is_own(self) -> bool:
        """Whether the rule is Forewarn's own behaviour: another endpoint may differ without being wrong."""
        return OWN_MARK in self.text or self.section in OWN_SECTIONS


class Verdict(StrEnum):
    """The verdict on a rule."""

    PASSED = "passed"
    WRONG = "wrong"
    DIFFERS = "differs"
    """The endpoint differs from Forewarn, and the behaviour of the real service is not known."""
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
