"""Expectations of the user if several behaviours are correct: approve, ignore or either, by event type and source."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from forewarn.core.base_error import BaseError
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.testing.exam.trace import EventKind

SHARED_EVENTS = "shared"
"""The key for events of any type that name other VMs besides the handler's own."""


KINDS = {
    kind.casefold(): kind
    for type_ in EventType
    for kind in (f"{type_.value}/{source.value}" for source in EVENT_TYPES[type_].sources)
}
"""All types with their sources."""


class Expectation(StrEnum):
    """What the handler is expected to do about a Scheduled event of its own VM."""

    APPROVE = "approve"
    IGNORE = "ignore"
    EITHER = "either"


class InvalidExpectation(BaseError, ValueError):
    """Invalid text of an expectation."""

    template = (
        "{value}: use approve, ignore or either, or one of them for a type, such as Freeze=ignore "
        f"({', '.join((*EventType, SHARED_EVENTS))}), or for a type and its source, such as Reboot/User=ignore "
        f"({', '.join(KINDS.values())})"
    )
    value: str


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation for each event type, or type and source.

    `for_others`: the handler may approve events that name only other VMs.
    """

    by_type: Mapping[str, Expectation] = {}
    default: Expectation = Expectation.APPROVE
    shared: Expectation = Expectation.EITHER
    for_others: bool = False

    def for_kind(self, kind: EventKind) -> Expectation:
        """Return the expectation for an event's type and source; that for the source takes precedence."""
        return self.by_type.get(kind.text, self.by_type.get(kind.type, self.default))

    def for_event(self, kind: EventKind, *, is_shared: bool) -> Expectation:
        """Return the expectation for an event, which may also name other VMs."""
        expectation = self.for_kind(kind)
        return self.shared if is_shared and expectation is Expectation.APPROVE else expectation


def parse_expectations(values: Sequence[str], *, for_others: bool = False) -> Expectations:
    """Parse expectations such as `approve`, `Freeze=ignore` and `Reboot/User=ignore`; later ones win.

    Raises InvalidExpectation.
    """
    types = {kind.value.casefold(): kind.value for kind in EventType}
    by_type: dict[str, Expectation] = {}
    default, shared = Expectation.APPROVE, Expectation.EITHER
    for value in values:
        kind, separator, text = value.rpartition("=")
        try:
            expectation = Expectation(text.strip().casefold())
        except ValueError:
            raise InvalidExpectation(value) from None
        match kind.strip().casefold():
            case "" if not separator:
                default, by_type = expectation, {}
            case name if name == SHARED_EVENTS:
                shared = expectation
            case name if name in types:
                by_type = {key: one for key, one in by_type.items() if not key.startswith(f"{types[name]}/")}
                by_type[types[name]] = expectation
            case name if name in KINDS:
                by_type[KINDS[name]] = expectation
            case _:
                raise InvalidExpectation(value)
    return Expectations(by_type=by_type, default=default, shared=shared, for_others=for_others)
