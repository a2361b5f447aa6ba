"""A scope as far as a plan has to read it: decoded without all the rest, which takes a fraction of the time.

Records are checked when they are made; whoever only plans does not check them again.
"""

import msgspec

from forewarn.core.event import Event
from forewarn.core.scope import Held


class SeenTraits(msgspec.Struct, frozen=True, gc=False):
    """What selections ask for."""

    tags: dict[str, str] | None = None


class SeenVm(msgspec.Struct, frozen=True, gc=False):
    """Which VM it is and where."""

    name: str
    update_domain: int = 0
    host: str | None = None
    traits: SeenTraits = SeenTraits()


class SeenRoster(msgspec.Struct, frozen=True, gc=False):
    """The VMs of a scope."""

    vms: tuple[SeenVm, ...] = ()


class SeenScope(msgspec.Struct, frozen=True, gc=False):
    """A scope's VMs, its open events and who holds it."""

    id: str
    roster: SeenRoster = SeenRoster()
    traits: SeenTraits = SeenTraits()
    events: tuple[Event, ...] = ()
    held: Held | None = None
