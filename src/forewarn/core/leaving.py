"""What it means for open events that a VM leaves its scope or moves to another host."""

import msgspec

from forewarn.core.change import Change, Draft, derived_id, stamp
from forewarn.core.event import SETTLED, STUCK, Event, ImpactState, Move, State
from forewarn.core.journal import Did
from forewarn.core.progress import end_if_settled
from forewarn.core.schedule import told
from forewarn.core.scope import ApprovalRule, ScopeKind
from forewarn.core.vm import Vm


def leave(draft: Draft, vm: Vm, *, by: str, why: str) -> None:
    """Take a VM out of the scope and out of every open event."""
    draft.set(roster=draft.scope.roster.without(vm.name))
    draft.note(Did.VM_REMOVED, by=by, why=why, vms=(vm.name,))
    for event in draft.scope.events_naming(vm.name):
        if event.state is State.SCHEDULED:
            drop(draft, event, vm.name, by=by, why=f"{vm.name} has left the scope")
        else:
            _settle_gone(draft, event, vm.name, by=by)


def _settle_gone(draft: Draft, event: Event, vm: str, *, by: str) -> None:
    impact = event.impact(vm)
    if impact is None or impact.state in SETTLED:
        return
    why = f"{vm} has left the scope"
    given_up = impact.state in STUCK and not event.type.takes_away
    draft.put_impact(event, impact.turned(ImpactState.GIVEN_UP if given_up else ImpactState.GONE, why=why))
    end_if_settled(draft, event.id, by=by, why=why)


def drop(draft: Draft, event: Event, vm: str, *, by: str, why: str) -> None:
    """Take a VM out of a Scheduled event; an event without VMs is canceled. What the VM approved stays approved."""
    rest = tuple(name for name in event.vms if name != vm)
    if not rest:
        draft.move(event, Move.CANCEL, by=by, why=why, dropped=vm)
        return
    draft.move(msgspec.structs.replace(event, vms=rest), Move.SHRINK, by=by, why=why)


def relocate(draft: Draft, vm: Vm, host: str | None, *, by: str) -> None:
    """Put a VM on another host. Maintenance of the old host stays behind; what is meant for the VM goes along.

    Where the old host was not known, nobody can tell that the maintenance was for another one: it goes along, too.
    """
    draft.set(roster=draft.scope.roster.with_changed(msgspec.structs.replace(vm, host=host)))
    moved(draft, vm, host, by=by)


def moved(draft: Draft, vm: Vm, host: str | None, *, by: str) -> None:
    """Note that a VM, given as it was before, is on another host, and do with its events what that means."""
    draft.note(Did.VM_MOVED, by=by, why=f"from {_place(vm.host)} to {_place(host)}", vms=(vm.name,))
    for event in draft.scope.events_naming(vm.name):
        if event.state is not State.SCHEDULED:
            continue
        if event.is_planned and event.host is not None:
            drop(draft, event, vm.name, by=by, why=f"{vm.name} is no longer on {event.host}")
        elif len(event.vms) == 1:
            draft.put(msgspec.structs.replace(event, host=host))
        else:
            _split_off(draft, event, vm.name, host, by=by)


def _split_off(draft: Draft, event: Event, vm: str, host: str | None, *, by: str) -> None:
    """Give the VM an event of its own, approved as far as it was: the VMs of one event share a host."""
    why = f"{vm} is now on {_place(host)}"
    is_any = draft.scope.approval is ApprovalRule.ANY
    own = msgspec.structs.replace(
        event,
        id=derived_id(event.id, vm, host),
        vms=(vm,),
        host=host,
        approvals=tuple(approval for approval in event.approvals if is_any or approval.vm == vm),
        made_at=draft.now,
    )
    drop(draft, event, vm, by=by, why=why)
    draft.move(own, Move.SCHEDULE, by=by, why=why, not_before=stamp(own.not_before), **told(own))
    if not draft.has_room:
        draft.move(own, Move.CANCEL, by=by, why="the scope is full")


def _place(host: str | None) -> str:
    return host or "an unknown host"


def finish_or_remove(draft: Draft, *, by: str) -> Change[None]:
    """Close the draft. A standalone scope is its VM: it goes with it."""
    if draft.scope.kind is ScopeKind.STANDALONE and draft.before.roster and not draft.scope.roster:
        draft.note(Did.SCOPE_REMOVED, by=by, why="its VM is gone")
        return draft.remove(None)
    return draft.finish(None)
