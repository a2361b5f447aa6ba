"""Actions that a rollout requests from the shell, as values, and the scope diff that comes back."""

from datetime import datetime
from typing import NamedTuple


class AnnounceWave(NamedTuple):
    """Make the events of a wave, with the VMs that the scope has now."""

    scope: str
    n: int
    start: datetime


class ClearWave(NamedTuple):
    """Let events of a wave start."""

    scope: str
    n: int
    events: tuple[str, ...]


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
