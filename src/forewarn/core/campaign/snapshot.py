"""Snapshot of a scope for the planner: a projection that decodes only the fields that a plan needs, which is faster.

Records are validated when they are created; the planner does not validate them again.
"""

import msgspec

from forewarn.core.event import Event
from forewarn.core.scope import Hold


class TraitsSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The traits that selections use."""

    tags: dict[str, str] | None = None


class VmSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The identity and the place of a VM."""

    name: str
    update_domain: int = 0
    host: str | None = None
    traits: TraitsSnapshot = TraitsSnapshot()


class RosterSnapshot(msgspec.Struct, frozen=True, gc=False):
    """The VMs of a scope."""

    vms: tuple[VmSnapshot, ...] = ()


class ScopeSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A scope's VMs, its open events, its enablement and its hold."""

    id: str
    roster: RosterSnapshot = RosterSnapshot()
    traits: TraitsSnapshot = TraitsSnapshot()
    events: tuple[Event, ...] = ()
    enabled: bool = False
    hold: Hold | None = msgspec.field(default=None, name="held")
