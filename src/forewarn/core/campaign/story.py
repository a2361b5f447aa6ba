"""What the journal of a scope says of a campaign: which VMs it is done with, how its waves ended, what has changed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forewarn.core.campaign.actions import Differences
from forewarn.core.campaign.record import Wave, WaveState
from forewarn.core.journal import Did, Entry
from forewarn.core.scope import Outcome

ENDS = {Did.COMPLETED: Outcome.COMPLETED, Did.CANCELED: Outcome.CANCELED, Did.FAILED: Outcome.FAILED}

READ = (
    Did.SCHEDULED,
    Did.IMPACT_DONE,
    *ENDS,
    Did.VM_ADDED,
    Did.VM_REMOVED,
    Did.VM_MOVED,
    Did.VM_CHANGED,
)
"""The lines that matter."""


class Story(NamedTuple):
    """What is to be known of a scope before a wave of it is announced, and when all of them are settled."""

    done: frozenset[str]
    """The VMs on which the campaign's work is done: it is not done twice."""
    touched: frozenset[str]
    """The VMs whose events have ended in whatever way, but for those that have left their event."""
    dropped: frozenset[str]
    """The VMs that have moved away from the host for which they had an event."""
    outcomes: dict[int, tuple[Outcome, ...]]
    """How the events of each wave have ended; of one that was asked for again, the last time."""
    differences: Differences
    seen: int
    """The last line that was read."""

    def tells_of(self, waves: Sequence[Wave]) -> bool:
        """Tell whether every wave that was carried out is in it; else its beginning is no longer kept."""
        carried_out = (n for n, wave in enumerate(waves, 1) if wave.state is WaveState.DONE and wave.vms)
        return all(n in self.outcomes for n in carried_out)


def read(entries: Iterable[Entry], campaign: str, *, seen: int = 0) -> Story:
    """Read the journal of a scope since the campaign began; differences are told after line `seen`."""
    waves: dict[str, int] = {}
    asked: dict[int, set[str]] = {}
    ended: dict[str, Outcome] = {}
    done: set[str] = set()
    touched: set[str] = set()
    dropped: set[str] = set()
    last = seen
    told: dict[Did, dict[str, None]] = {did: {} for did in READ}
    for entry in entries:
        event, last = entry.event, max(last, entry.n)
        if event is None:
            if entry.n > seen:
                told[entry.did].update(dict.fromkeys(entry.vms))
        elif entry.did is Did.SCHEDULED:
            if entry.facts.get("campaign") == campaign:
                n = waves[event] = int(entry.facts.get("wave", "0")) or _wave_of_parent(waves)
                if asked.get(n, set()) <= ended.keys():
                    asked[n] = set()
                asked[n].add(event)
        elif event in waves:
            if entry.did is Did.IMPACT_DONE:
                done.update(entry.vms)
            elif entry.did in ENDS:
                ended[event] = ENDS[entry.did]
                (dropped if "dropped" in entry.facts else touched).update(entry.vms)
    outcomes = {n: tuple(ended[event] for event in events if event in ended) for n, events in asked.items()}
    return Story(
        done=frozenset(done),
        touched=frozenset(touched | done),
        dropped=frozenset(dropped - done),
        outcomes=outcomes,
        differences=_differences(told, done),
        seen=last,
    )


def _wave_of_parent(waves: dict[str, int]) -> int:
    """An event that was split off another one says nothing of its wave: a scope has one at a time."""
    return next(reversed(waves.values()), 0)


def _differences(told: dict[Did, dict[str, None]], done: set[str]) -> Differences:
    """Say it of each VM once. One that came and went was never there; for those that are done, it makes none."""
    came, went = told[Did.VM_ADDED], told[Did.VM_REMOVED]
    known = done | came.keys() | went.keys()
    return Differences(
        came=tuple(vm for vm in came if vm not in went),
        went=tuple(vm for vm in went if vm not in came and vm not in done),
        moved=tuple(vm for vm in told[Did.VM_MOVED] if vm not in known),
        changed=tuple(vm for vm in told[Did.VM_CHANGED] if vm not in known),
    )
