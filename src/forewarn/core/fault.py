"""Faults to inject into the guest endpoint: errors, delays and wrong responses to test handlers against."""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope
from forewarn.core.text import join_choices


class FaultKind(StrEnum):
    """What goes wrong with a request to `/metadata/scheduledevents`."""

    STATUS_410 = "status-410"
    STATUS_429 = "status-429"
    STATUS_500 = "status-500"
    EMPTY_BODY = "empty-body"
    SLOW = "slow"
    HANG = "hang"
    RESET = "reset"
    TRUNCATED = "truncated"
    WRONG_CONTENT_TYPE = "wrong-content-type"
    UNKNOWN_EVENT_TYPE = "unknown-event-type"
    EXTRA_FIELD = "extra-field"
    LATE_FIRST_ANSWER = "late-first-answer"
    WRONG_DATE = "wrong-date"


STATUSES = {FaultKind.STATUS_410: 410, FaultKind.STATUS_429: 429, FaultKind.STATUS_500: 500}

DEFAULT_AMOUNTS = {
    FaultKind.SLOW: timedelta(seconds=5),
    FaultKind.LATE_FIRST_ANSWER: timedelta(minutes=2),
    FaultKind.WRONG_DATE: timedelta(hours=1),
}
"""The kinds that have an amount, with its default: the delay of a response, or how far ahead its date is."""

MAX_AMOUNTS = {
    FaultKind.SLOW: timedelta(minutes=10),
    FaultKind.LATE_FIRST_ANSWER: timedelta(minutes=2),
    FaultKind.WRONG_DATE: timedelta(days=3650),
}
MAX_TIMES = 1_000_000


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A configured fault: which VM it affects, until when, and for how many requests.

    `vm` is `scope/name`, or None for all VMs. With neither `until` nor `times` it lasts until it is cleared; with both,
    the first limit that is reached ends it. `until` is a time of the service's clock; `amount` is always real time.
    """

    id: str
    kind: FaultKind
    vm: str | None = None
    until: datetime | None = None
    times: int | None = None
    amount: timedelta | None = None
    by: str
    set_at: datetime
    hits: int = 0
    """How many requests it has affected so far."""

    def __post_init__(self) -> None:
        if self.times is not None and not 1 <= self.times <= MAX_TIMES:
            raise Invalid(f"times must be 1 to {MAX_TIMES} requests, got {self.times}")
        if self.amount is not None:
            _check_amount(self.kind, self.amount)

    @property
    def is_exhausted(self) -> bool:
        """Whether it has affected its maximum number of requests."""
        return self.times is not None and self.hits >= self.times

    @property
    def facts(self) -> dict[str, str]:
        """The facts of its journal entry."""
        facts = {"fault": self.id, "kind": self.kind.value, "vm": self.vm or "all"}
        if self.amount is not None:
            facts["amount"] = format_signed_duration(self.amount)
        if self.times is not None:
            facts["times"] = str(self.times)
        if self.until is not None:
            facts["until"] = f"{self.until:%Y-%m-%dT%H:%M:%SZ}"
        return facts


def parse_fault_kind(text: str) -> FaultKind:
    """Parse a kind as users write it; the number of a status is enough."""
    name = text.strip().lower()
    try:
        return FaultKind(f"status-{name}" if name.isdecimal() else name)
    except ValueError:
        raise Invalid(f"unknown fault {text!r}: use {join_choices(FaultKind)}") from None


def default_amount(kind: FaultKind) -> timedelta | None:
    """Return the default amount of the kind; None if the kind has no amount."""
    return DEFAULT_AMOUNTS.get(kind)


def format_signed_duration(amount: timedelta) -> str:
    """Format a duration that may be negative: an hour behind is `-1h`."""
    return f"-{format_duration(-amount)}" if amount < timedelta(0) else format_duration(amount)


def parse_signed_duration(text: str) -> timedelta:
    """Parse a duration that may be negative."""
    return -parse_duration(text.removeprefix("-")) if text.startswith("-") else parse_duration(text)


def add_fault_entry(
    scope: Scope, entry_kind: EntryKind, fault: Fault, *, by: str, why: str = "", now: datetime
) -> Change[None]:
    """Add a journal entry on a fault of one of the scope's VMs; the fault itself is not stored."""
    draft = Draft(scope, now)
    draft.add_entry(
        entry_kind,
        by=by,
        why=why,
        event=None,
        vms=((fault.vm or "").rpartition("/")[2],),
        **fault_facts(fault, entry_kind),
    )
    return draft.finish(None)


def fault_facts(fault: Fault, entry_kind: EntryKind) -> dict[str, str]:
    """Return the facts of a journal entry; those of the fault's end include the number of affected requests."""
    return fault.facts if entry_kind is EntryKind.FAULT_SET else {**fault.facts, "hits": str(fault.hits)}


def _check_amount(kind: FaultKind, amount: timedelta) -> None:
    most = MAX_AMOUNTS.get(kind)
    if most is None:
        raise Invalid(f"{kind.value} has no amount: only {', '.join(MAX_AMOUNTS)} have one")
    if kind is FaultKind.WRONG_DATE and not amount:
        raise Invalid("the amount of wrong-date must not be 0: use a positive or a negative duration")
    if kind is not FaultKind.WRONG_DATE and amount <= timedelta(0):
        raise Invalid(f"the amount of {kind.value} must be positive, got {format_signed_duration(amount)}")
    if abs(amount) > most:
        raise Invalid(
            f"the amount of {kind.value} must be at most {format_duration(most)}, got {format_signed_duration(amount)}"
        )
