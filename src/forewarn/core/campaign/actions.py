"""Actions, which a campaign requests from the shell, and findings, which the shell and the scopes report: plain values.

An action is requested once and stays pending until its `ActionResult` is applied. A finding changes nothing by itself:
`core.campaign.rollout` applies it, and ignores one that is too late.

Actions are structs, because named tuples of different types are equal if their fields are.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from forewarn.core.campaign.limits import Load
from forewarn.core.scope import EventOutcome


class AnnounceWave(msgspec.Struct, frozen=True, gc=False):
    """Create the events of a wave, for the VMs that the scope has now."""

    scope: str
    n: int
    start: datetime
    load: Load
    """The expected load of the wave."""


class ClearWave(msgspec.Struct, frozen=True, gc=False):
    """Clear events of a wave, so that they can start."""

    scope: str
    n: int
    events: tuple[str, ...]
    loads: tuple[Load, ...]
    """The expected load of each event."""


class WithdrawEvent(msgspec.Struct, frozen=True, gc=False):
    """Cancel an event that is Scheduled, or give up the stuck impacts of a Started one."""

    scope: str
    event: str
    by: str
    why: str


class RetryEvent(msgspec.Struct, frozen=True, gc=False):
    """Retry the failed impacts of an event, except those that have failed since a person requested it."""

    scope: str
    event: str
    by: str
    seen: int | None
    """The scope's last journal entry when it was requested; None: unknown."""


class ReadOutcome(msgspec.Struct, frozen=True, gc=False):
    """Read from the journal how a wave ended that the scope no longer remembers."""

    scope: str
    n: int


class CloseScope(msgspec.Struct, frozen=True, gc=False):
    """Read from the journal whether VMs of the scope were in no wave."""

    scope: str


class CheckGate(msgspec.Struct, frozen=True, gc=False):
    """Check the health gate."""

    scope: str
    n: int


ScopeAction = AnnounceWave | ClearWave | WithdrawEvent | RetryEvent | ReadOutcome | CloseScope
"""An action that reads or changes a scope."""

Action = ScopeAction | CheckGate


class ScopeDiff(NamedTuple):
    """Changes of a scope's VMs since they were last read."""

    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class WaveAnnounced(NamedTuple):
    """The events of a wave were created."""

    scope: str
    n: int
    vms: int
    not_before: datetime | None
    """None: no VM is left in the wave."""
    seen: int
    """The last line of the scope's journal that was read."""
    differences: ScopeDiff = ScopeDiff()
    announced: bool = True
    """Whether the document of the VMs shows them."""


class WaveRefused(NamedTuple):
    """A rule refused to create the events of a wave."""

    scope: str
    n: int
    reason: str


class WaveEnded(NamedTuple):
    """The events of a wave have ended. Without outcomes: neither the scope nor the journal has them."""

    scope: str
    n: int
    outcomes: tuple[EventOutcome, ...]


class SkippedWaveEnded(NamedTuple):
    """An impact of a skipped wave has ended only now."""

    scope: str
    n: int
    at: int
    """The time, in seconds since the scope's base."""


class WaveStuck(NamedTuple):
    """Impacts of a wave are stuck until a person decides."""

    scope: str
    n: int
    reason: str
    unknown: bool
    """Whether an outcome is unknown, so that a retry might do the work twice."""


class WaveResumed(NamedTuple):
    """Failed impacts of a wave are being retried."""

    scope: str
    n: int


class ScopeRemoved(NamedTuple):
    """The scope was removed, so nothing is left to do there."""

    scope: str


class ScopeClosed(NamedTuple):
    """All waves of a scope are settled; these VMs were in none of them, by update domain."""

    scope: str
    left: tuple[tuple[int, int], ...] = ()


class GateOpened(NamedTuple):
    """The gate is open."""

    scope: str
    n: int
    asked_at: datetime


class GateClosed(NamedTuple):
    """The gate is closed."""

    scope: str
    n: int
    reason: str


Finding = (
    WaveAnnounced
    | WaveRefused
    | WaveEnded
    | SkippedWaveEnded
    | WaveStuck
    | WaveResumed
    | ScopeRemoved
    | ScopeClosed
    | GateOpened
    | GateClosed
)


class ActionResult(NamedTuple):
    """The end of an action, successful or not, with its finding; None: the scope itself will show the result."""

    action: Action
    finding: Finding | None = None
