"""Restored scopes: what changes in a scope of a backup, because guests and VMs have moved on since it was made."""

from datetime import datetime
from typing import NamedTuple

from forewarn.core.change import Change, Draft
from forewarn.core.event import Event, State, Trigger
from forewarn.core.impact import SETTLED, STUCK, Impact, ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope

RESTORE = "restore"
"""The actor of all changes that a restore makes."""

INCARNATION_STEP = 10_000
"""By how much a restored incarnation exceeds the highest known one. Guests may have seen documents of which neither the
backup nor the replaced data knows; the same number must not stand for another document."""


class RestoreResult(NamedTuple):
    """What a restore has stopped in a scope, for a person to decide."""

    unknown: tuple[tuple[Event, Impact], ...]
    """Work that had not ended: it may have been done since the backup."""
    canceled: tuple[Event, ...]
    """Events that a hold does not stop, such as requests of users: they may have happened since the backup."""


def restore(scope: Scope, *, epoch: str, shown: int, why: str, now: datetime) -> Change[RestoreResult]:
    """Begin a new epoch beyond every incarnation that guests may have seen, and stop all that would happen again.

    `shown` is the highest incarnation that guests are known to have seen. Planned maintenance is left to a hold.
    """
    draft = Draft(scope, now)
    draft.set(epoch=epoch, incarnation=max(scope.incarnation, shown) + INCARNATION_STEP)
    draft.add_entry(EntryKind.RESTORED, by=RESTORE, why=why, epoch=epoch)
    unknown = tuple(
        (event, impact)
        for event in scope.events
        for impact in event.impacts
        if impact.state not in SETTLED and impact.state not in STUCK
    )
    for event, impact in unknown:
        stopped = impact.with_state(ImpactState.UNKNOWN, why=f"{why}; the work may have been done since")
        draft.put_impact(draft.scope.event(event.id), stopped)
        draft.add_entry(EntryKind.IMPACT_UNKNOWN, by=RESTORE, why=stopped.why, event=event, vms=(impact.vm,))
    canceled = tuple(event for event in scope.events if event.state is State.SCHEDULED and not event.is_planned)
    for event in canceled:
        draft.apply(event, Trigger.CANCEL, by=RESTORE, why=f"{why}; it may have happened since")
    return draft.finish(RestoreResult(unknown, canceled))
