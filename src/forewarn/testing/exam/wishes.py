"""What the user wants of the handler, where more than one thing is right."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from forewarn.client.document import Event
from forewarn.core.event import EventType

SHARED = "shared"
"""How events are called that name other VMs besides the handler's own, whatever their type."""


class Wish(StrEnum):
    """What the handler is to do about an event of its own VM that waits for approval."""

    APPROVE = "approve"
    IGNORE = "ignore"
    EITHER = "either"


class UnknownWish(ValueError):
    """This is no expectation."""

    def __init__(self, said: str) -> None:
        kinds = ", ".join((*EventType, SHARED))
        super().__init__(
            f"{said}: say approve, ignore or either, or one of them for a type, like Freeze=ignore ({kinds})"
        )


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected for each type. `for_others`: the handler may approve what names only other VMs."""

    by_type: Mapping[str, Wish] = {}
    default: Wish = Wish.APPROVE
    shared: Wish = Wish.EITHER
    for_others: bool = False

    def of(self, event: Event) -> Wish:
        """Return what is expected for an event by its type alone."""
        return self.by_type.get(str(event.type), self.default)


def wishes_of(said: Sequence[str], *, for_others: bool = False) -> Wishes:
    """Read expectations such as `approve` and `Freeze=ignore`; what is said later counts. Raises UnknownWish."""
    types = {kind.value.casefold(): kind.value for kind in EventType}
    by_type: dict[str, Wish] = {}
    default, shared = Wish.APPROVE, Wish.EITHER
    for one in said:
        kind, mark, word = one.rpartition("=")
        try:
            wish = Wish(word.strip().casefold())
        except ValueError:
            raise UnknownWish(one) from None
        match kind.strip().casefold():
            case "" if not mark:
                default, by_type = wish, {}
            case name if name == SHARED:
                shared = wish
            case name if name in types:
                by_type[types[name]] = wish
            case _:
                raise UnknownWish(one)
    return Wishes(by_type=by_type, default=default, shared=shared, for_others=for_others)
