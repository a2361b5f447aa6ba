"""Expectations of the user where several behaviours are right: approve, ignore or either, by event type."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from forewarn.client.document import Event
from forewarn.core.base_error import BaseError
from forewarn.core.event import EventType

SHARED_EVENTS = "shared"
"""How events are called that name other VMs besides the handler's own, whatever their type."""


class Expectation(StrEnum):
    """What the handler is to do about an event of its own VM that waits for approval."""

    APPROVE = "approve"
    IGNORE = "ignore"
    EITHER = "either"


class InvalidExpectation(BaseError, ValueError):
    """The text is not an expectation."""

    template = (
        "{value}: use approve, ignore or either, or one of them for a type, such as Freeze=ignore "
        f"({', '.join((*EventType, SHARED_EVENTS))})"
    )
    value: str


class Expectations(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected for each type. `for_others`: the handler may approve what names only other VMs."""

    by_type: Mapping[str, Expectation] = {}
    default: Expectation = Expectation.APPROVE
    shared: Expectation = Expectation.EITHER
    for_others: bool = False

    def for_event(self, event: Event) -> Expectation:
        """Return what is expected for an event by its type alone."""
        return self.by_type.get(str(event.type), self.default)


def parse_expectations(values: Sequence[str], *, for_others: bool = False) -> Expectations:
    """Read expectations such as `approve` and `Freeze=ignore`; what is said later counts. Raises InvalidExpectation."""
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
