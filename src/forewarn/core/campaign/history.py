"""History of a campaign in a scope, read from its journal: finished VMs, outcomes of waves, inventory changes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forewarn.core.campaign.actions import ScopeDiff
from forewarn.core.campaign.record import Wave, WaveState
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.scope import EventOutcome

OUTCOMES = {
    EntryKind.COMPLETED: EventOutcome.COMPLETED,
    EntryKind.CANCELED: EventOutcome.CANCELED,
    EntryKind.FAILED: EventOutcome.FAILED,
}

RELEVANT_KINDS = (
    EntryKind.SCHEDULED,
    EntryKind.IMPACT_DONE,
    *OUTCOMES,
    EntryKind.VM_ADDED,
    EntryKind.VM_REMOVED,
    EntryKind.VM_MOVED,
    EntryKind.VM_CHANGED,
)
"""The kinds of entries that are read."""


class ScopeHistory(NamedTuple):
    """What the campaign needs from a scope's journal before it announces a wave, and when all waves are settled."""

    done: frozenset[str]
    """The VMs on which the campaign's work is done; it is not repeated."""
    touched: frozenset[str]
    """The VMs whose events have ended with any outcome, except for those that left their event."""
    dropped: frozenset[str]
    """The VMs that left the host for which they had an event."""
    outcomes: dict[int, tuple[EventOutcome, ...]]
    """How the events of each wave ended; of a repeated wave, the last time."""
    differences: ScopeDiff
    seen: int
    """The last line that was read."""

    def covers(self, waves: Sequence[Wave]) -> bool:
        """Return whether it includes all waves that were carried out; otherwise the journal's beginning was deleted."""
        carried_out = (n for n, wave in enumerate(waves, 1) if wave.state is WaveState.DONE and wave.vms)
        return all(n in self.outcomes for n in carried_out)


def read_history(entries: Iterable[Entry], campaign: str, *, seen: int = 0) -> ScopeHistory:
    """Read the journal of a scope since the campaign began; changes of VMs count only after line `seen`."""
    waves: dict[str, int] = {}
    requested: dict[int, set[str]] = {}
    ended: dict[str, EventOutcome] = {}
    done: set[str] = set()
    touched: set[str] = set()
    dropped: set[str] = set()
    last = seen
    changes: dict[EntryKind, dict[str, None]] = {kind: {} for kind in RELEVANT_KINDS}
    for entry in entries:
        event, last = entry.event, max(last, entry.n)
        if event is None:
            if entry.n > seen:
                changes[entry.kind].update(dict.fromkeys(entry.vms))
        elif entry.kind is EntryKind.SCHEDULED:
            if entry.facts.get("campaign") == campaign:
                n = waves[event] = int(entry.facts.get("wave", "0")) or _wave_of_parent(waves)
                if requested.get(n, set()) <= ended.keys():
                    requested[n] = set()
                requested[n].add(event)
        elif event in waves:
            if entry.kind is EntryKind.IMPACT_DONE:
                done.update(entry.vms)
            elif entry.kind in OUTCOMES:
                ended[event] = OUTCOMES[entry.kind]
                (dropped if "dropped" in entry.facts else touched).update(entry.vms)
    outcomes = {n: tuple(ended[event] for event in events if event in ended) for n, events in requested.items()}
    return ScopeHistory(
        done=frozenset(done),
        touched=frozenset(touched | done),
        dropped=frozenset(dropped - done),
        outcomes=outcomes,
        differences=_diff(changes, done),
        seen=last,
    )


def _wave_of_parent(waves: dict[str, int]) -> int:
    """Return the wave of an event that was split off; it is the current one, because a scope has one at a time."""
    return next(reversed(waves.values()), 0)


def _diff(changes: dict[EntryKind, dict[str, None]], done: set[str]) -> ScopeDiff:
    """Return the changes, each VM once. A VM that came and left is omitted, and so is one that is done."""
    came, went = changes[EntryKind.VM_ADDED], changes[EntryKind.VM_REMOVED]
    known = done | came.keys() | went.keys()
    return ScopeDiff(
        came=tuple(vm for vm in came if vm not in went),
        went=tuple(vm for vm in went if vm not in came and vm not in done),
        moved=tuple(vm for vm in changes[EntryKind.VM_MOVED] if vm not in known),
        changed=tuple(vm for vm in changes[EntryKind.VM_CHANGED] if vm not in known),
    )
