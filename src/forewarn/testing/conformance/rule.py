"""A conformance rule: protocol section, cited text, check and precondition; and the finding it leads to."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from forewarn.testing.conformance.probe import Probe

OWN_MARK = "(O"
OWN_SECTIONS = frozenset({"Waiting instead of polling"})
"""Sections of the page that bear the mark as a whole."""

Check: TypeAlias = Callable[[Probe], None]
"""Returns if the endpoint does as the rule says; else raises Mismatch, CheckSkipped or RequestFailed."""


class Precondition(StrEnum):
    """What a rule needs to be checked at all."""

    NOTHING = "nothing"
    EVENT = "an event"
    SCHEDULED = "a Scheduled event"
    STARTED = "a Started event"
    PREEMPT = "a Preempt event"
    TERMINATE = "a Terminate event"
    PREEMPT_OR_TERMINATE = "a Preempt or Terminate event"
    VM = "an event of a VM that is no role instance"
    ROLE_INSTANCE = "an event of a role instance"
    WAIT = "`Forewarn-Wait`"
    APPROVE = "`--approve` of a Scheduled event"
    APPROVE_ANY = "`--approve`"
    ENDED = "`--approve` of an event that has ended"
    BURST = "`--burst`"
    UNKNOWN_CALLER = "to be asked from no VM"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the protocol, as data."""

    id: str
    section: str
    """The heading in docs/reference/guest-protocol.md."""
    text: str
    """The words of that section, exactly."""
    check: Check
    precondition: Precondition = Precondition.NOTHING

    @property
    def is_own(self) -> bool:
        """Whether the rule is Forewarn's own choice, so that another endpoint may do otherwise without being wrong."""
        return OWN_MARK in self.text or self.section in OWN_SECTIONS


class Verdict(StrEnum):
    """What was found."""

    PASSED = "passed"
    WRONG = "wrong"
    DIFFERS = "differs"
    """Otherwise than Forewarn does it, where nobody knows how the real service does."""
    UNCHECKED = "not checked"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a rule."""

    row: str
    section: str
    rule: str
    is_own: bool
    verdict: Verdict
    why: str = ""
    """What was seen instead, or why nothing could be seen."""
    seen: tuple[str, ...] = ()
    """The requests on which a bad verdict stands, each with its answer."""
    seconds: float = 0.0
    """How long it took. A rule that only needs requests of rules before it takes no time."""
