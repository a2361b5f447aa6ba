"""What a campaign asks of the shell (actions), and what the shell and the scopes show it (findings): plain values.

An action is requested once and stays pending until its `ActionResult` is applied. A finding changes nothing by itself:
`core.campaign.rollout` applies it, and one that comes too late is ignored."""

from datetime import datetime
from typing import NamedTuple

from forewarn.core.campaign.limits import Load
from forewarn.core.scope import EventOutcome


class AnnounceWave(NamedTuple):
    """Make the events of a wave, with the VMs that the scope has now."""

    scope: str
    n: int
    start: datetime
    load: Load
    """What it is expected to have in impact."""


class ClearWave(NamedTuple):
    """Let events of a wave start."""

    scope: str
    n: int
    events: tuple[str, ...]
    loads: tuple[Load, ...]
    """What each of them will have in impact."""


class WithdrawEvent(NamedTuple):
    """Cancel an event that is Scheduled, and give up the work of one that is stuck: the campaign is done with it."""

    scope: str
    event: str
    by: str
    why: str


class RetryEvent(NamedTuple):
    """Have the failed work of an event done once more."""

    scope: str
    event: str
    by: str


class ReadOutcome(NamedTuple):
    """Find out from the journal how a wave has ended that the scope does not remember."""

    scope: str
    n: int


class CloseScope(NamedTuple):
    """Find out from the journal whether VMs of the scope are left over."""

    scope: str


class CheckGate(NamedTuple):
    """Ask the health gate."""

    scope: str
    n: int


Action = AnnounceWave | ClearWave | WithdrawEvent | RetryEvent | ReadOutcome | CloseScope | CheckGate


class ScopeDiff(NamedTuple):
    """What has happened to the VMs of a scope since they were last looked at."""

    came: tuple[str, ...] = ()
    went: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class WaveAnnounced(NamedTuple):
    """The events of a wave are made."""

    scope: str
    n: int
    vms: int
    not_before: datetime | None
    """None: no VM is left for it."""
    seen: int
    """Up to this line the scope's journal was read."""
    differences: ScopeDiff = ScopeDiff()


class WaveRefused(NamedTuple):
    """A rule does not let the events of a wave be made."""

    scope: str
    n: int
    reason: str


class WaveEnded(NamedTuple):
    """The events of a wave have ended; without outcomes, in a way that neither scope nor journal tells."""

    scope: str
    n: int
    outcomes: tuple[EventOutcome, ...]


class SkippedWaveEnded(NamedTuple):
    """Work of a wave that was skipped has ended only now."""

    scope: str
    n: int
    at: int
    """When, in the scope's seconds."""


class WaveStuck(NamedTuple):
    """Work of a wave goes on only when a person decides."""

    scope: str
    n: int
    reason: str
    unknown: bool
    """Whether it is not known if all of it was done: a retry might do it twice."""


class WaveResumed(NamedTuple):
    """Work of a wave that had failed is being done once more."""

    scope: str
    n: int


class ScopeRemoved(NamedTuple):
    """The scope is gone, and with it everything that there was to do."""

    scope: str


class ScopeClosed(NamedTuple):
    """All waves of a scope are settled; these VMs are left over, by update domain."""

    scope: str
    left: tuple[tuple[int, int], ...] = ()


class GateOpened(NamedTuple):
    """The gate was found open."""

    scope: str
    n: int
    asked_at: datetime


class GateClosed(NamedTuple):
    """The gate was found closed."""

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
    """An action is over, done or not, and what was found out by it; None: its scope shows what has become of it."""

    action: Action
    finding: Finding | None = None
