"""Expectations of the user if several behaviours are correct: approve, ignore or either, by event type."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from forewarn.client.document import Event
from forewarn.core.base_error import BaseError
from forewarn.core.event import EventType

SHARED_EVENTS = "shared"
"""The key for events of any type that name other VMs besides the handler's own."""


class Expectation(StrEnum):
    """What the handler is expected to do about a Scheduled event of its own VM."""

    APPROVE = "approve"
    IGNORE = "ignore"
    EITHER = "either"


class InvalidExpectation(BaseError, ValueError):
    """Invalid text of an expectation."""

    template = (
        "{value}: use approve, ignore or either, or one of them for a type, such as Freeze=ignore "
        f"({', '.join((*EventType, SHARED_EVENTS))})"
    )
    value: str


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """The expectation for each event type. `for_others`: the handler may approve events that name only other VMs."""

    by_type: Mapping[str, Expectation] = {}
    default: Expectation = Expectation.APPROVE
    shared: Expectation = Expectation.EITHER
    for_others: bool = False

    def for_event(self, event: Event) -> Expectation:
        """Return the expectation for the event's type."""
        return self.by_type.get(str(event.type), self.default)


def parse_expectations(values: Sequence[str], *, for_others: bool = False) -> Expectations:
    """Parse expectations such as `approve` and `Freeze=ignore`; later ones win. Raises InvalidExpectation."""
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
                by_type[types[name]] = expectation
            case _:
                raise InvalidExpectation(value)
    return Expectations(by_type=by_type, default=default, shared=shared, for_others=for_others)
