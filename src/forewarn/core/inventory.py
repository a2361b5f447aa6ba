"""Inventory rules: create, change and remove scopes and VMs, and adjust the open events of a VM that leaves or moves.

Addresses and VM ids are unique over all scopes (`core.vm.unique_keys`); here within a scope, in the fleet over all.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from forewarn.core.change import Change, Draft, derive_id, format_timestamp
from forewarn.core.diff import changed_field_names
from forewarn.core.errors import HostInUse, Invalid, ResourceExists, ResourceInUse
from forewarn.core.event import Event, EventType, State, Trigger
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.idempotency import IdempotencyKey, attach_key
from forewarn.core.impact import SETTLED, STUCK, ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.lifecycle import end_if_settled, start_ready_events
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import event_facts
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Traits, Vm, check_addresses, describe_key, unique_keys

DOMAIN_ADVICE = "cancel them before you change its update domain"
"""What to do about the open events of a VM whose update domain changes."""


def detach_vm(draft: Draft, vm: Vm, *, by: str, why: str) -> None:
    """Remove a VM from the scope and from every open event."""
    draft.set(roster=draft.scope.roster.without(vm.name))
    draft.add_entry(EntryKind.VM_REMOVED, by=by, why=why, vms=(vm.name,))
    for event in draft.scope.events_affecting(vm.name):
        if event.state is State.SCHEDULED:
            drop_vm(draft, event, vm.name, by=by, why=f"{vm.name} has left the scope")
        else:
            _settle_removed_vm(draft, event, vm.name, by=by)


def _settle_removed_vm(draft: Draft, event: Event, vm: str, *, by: str) -> None:
    impact = event.impact(vm)
    if impact is None or impact.state in SETTLED:
        return
    why = f"{vm} has left the scope"
    given_up = impact.state in STUCK and not EVENT_TYPES[event.type].removes_vm
    draft.put_impact(event, impact.with_state(ImpactState.GIVEN_UP if given_up else ImpactState.GONE, why=why))
    end_if_settled(draft, event.id, by=by, why=why)


def drop_vm(draft: Draft, event: Event, vm: str, *, by: str, why: str) -> None:
    """Remove a VM from a Scheduled event; an event without VMs is canceled. Approvals that the VM gave stay valid."""
    rest = tuple(name for name in event.vms if name != vm)
    if not rest:
        draft.apply(event, Trigger.CANCEL, by=by, why=why, dropped=vm)
        return
    draft.apply(msgspec.structs.replace(event, vms=rest), Trigger.SHRINK, by=by, why=why)


def relocate_vm(draft: Draft, vm: Vm, host: str | None, *, by: str) -> None:
    """Move a VM to another host. Maintenance of the old host no longer affects it; events of the VM itself stay.

    If the old host was unknown, all events stay, because they may be meant for the new host.
    """
    draft.set(roster=draft.scope.roster.with_replaced(msgspec.structs.replace(vm, host=host)))
    apply_host_change(draft, vm, host, by=by)


def apply_host_change(draft: Draft, vm: Vm, host: str | None, *, by: str) -> None:
    """Record that a VM, given as it was before, is on another host, and adjust its events."""
    draft.add_entry(
        EntryKind.VM_MOVED, by=by, why=f"from {_format_host(vm.host)} to {_format_host(host)}", vms=(vm.name,)
    )
    for event in draft.scope.events_affecting(vm.name):
        if event.state is not State.SCHEDULED:
            continue
        if event.is_planned and event.host is not None:
            drop_vm(draft, event, vm.name, by=by, why=f"{vm.name} is no longer on {event.host}")
        elif len(event.vms) == 1:
            draft.put(msgspec.structs.replace(event, host=host))
        else:
            _split_event(draft, event, vm.name, host, by=by)


def _split_event(draft: Draft, event: Event, vm: str, host: str | None, *, by: str) -> None:
    """Split off an event for this VM alone, with the same approvals, because the VMs of an event share a host."""
    why = f"{vm} is now on {_format_host(host)}"
    is_any = draft.scope.approval is ApprovalRule.ANY
    own = msgspec.structs.replace(
        event,
        id=derive_id(event.id, vm, host),
        vms=(vm,),
        host=host,
        approvals=tuple(approval for approval in event.approvals if is_any or approval.vm == vm),
        created_at=draft.now,
    )
    drop_vm(draft, event, vm, by=by, why=why)
    draft.apply(own, Trigger.SCHEDULE, by=by, why=why, not_before=format_timestamp(own.not_before), **event_facts(own))
    if not draft.has_room:
        draft.apply(own, Trigger.CANCEL, by=by, why="the scope is full")


def check_host_change(scope: Scope, vm: Vm) -> None:
    """Refuse to change the host of a VM while a host carries out an impact on it."""
    for event in scope.events_affecting(vm.name):
        impact = event.impact(vm.name)
        if impact is not None and impact.state is ImpactState.BEGUN and impact.host is not None:
            raise HostInUse(f"{scope.id}/{vm.name}", impact.host, event.id)


def _format_host(host: str | None) -> str:
    return host or "an unknown host"


def finish_or_remove(draft: Draft, *, by: str) -> Change[None]:
    """Finish the draft. A standalone scope is removed together with its VM."""
    if draft.scope.kind is ScopeKind.STANDALONE and draft.before.roster and not draft.scope.roster:
        draft.add_entry(EntryKind.SCOPE_REMOVED, by=by, why="its VM is gone")
        return draft.remove(None)
    return draft.finish(None)


def create_scope(
    scope: Scope, *, by: str, now: datetime, idempotency_key: IdempotencyKey | None = None
) -> Change[None]:
    """Create a scope with its initial VMs. The journal also keeps the key of the request."""
    if scope.events or scope.entries:
        raise Invalid("a new scope must have no events and no journal")
    check_traits(scope, scope.roster)
    _check_identity(scope, scope.roster)
    draft = Draft(scope, now)
    draft.add_entry(EntryKind.SCOPE_CREATED, by=by, vms=(vm.name for vm in scope.roster), kind=scope.kind.value)
    if idempotency_key is not None:
        draft.remember_key(idempotency_key.key, "", idempotency_key.digest, idempotency_key.caller)
    draft.check_room()
    change = draft.finish(None)
    return (
        change if idempotency_key is None else Change(change.scope, attach_key(change.entries, idempotency_key), None)
    )


def change_scope(
    scope: Scope,
    context: RuleContext,
    *,
    by: str,
    now: datetime,
    traits: Traits | None = None,
    approval: ApprovalRule | None = None,
    auto_approve: tuple[EventType, ...] | None = None,
) -> Change[None]:
    """Change traits or rules of a scope; omitted fields stay unchanged."""
    requested = {"traits": traits, "approval": approval, "auto_approve": auto_approve}
    changed = {name: value for name, value in requested.items() if value is not None and value != getattr(scope, name)}
    draft = Draft(scope, now)
    if changed:
        draft.set(**changed)
        check_traits(draft.scope, draft.scope.roster)
        draft.check_room()
        draft.add_entry(EntryKind.SCOPE_CHANGED, by=by, why=", ".join(changed))
    start_ready_events(draft, context)
    return draft.finish(None)


def check_traits(scope: Scope, vms: Iterable[Vm]) -> None:
    """Refuse tags if a VM's own and its scope's are too many together."""
    for vm in vms:
        scope.traits_of(vm)


def _check_identity(scope: Scope, vms: Iterable[Vm], *, old: Vm | None = None) -> None:
    """Refuse wrong addresses, and an address or id that another VM of the scope has. `old` keeps what it has."""
    owners = {key: vm.name for vm in scope.roster for key in unique_keys(vm)}
    for vm in vms:
        if old is None or vm.addresses != old.addresses:
            check_addresses(vm.addresses)
        for key in sorted(unique_keys(vm) - (unique_keys(old) if old is not None else set())):
            owner = owners.get(key, vm.name)
            if owner != vm.name:
                raise ResourceExists(f"{describe_key(key)}, of VM {owner},")


def add_vm(scope: Scope, vm: Vm, *, by: str, now: datetime) -> Change[None]:
    """Add a VM."""
    draft = Draft(scope, now)
    draft.set(roster=scope.roster.with_vm(vm))
    check_traits(scope, [vm])
    _check_identity(scope, [vm])
    draft.check_room()
    draft.add_entry(EntryKind.VM_ADDED, by=by, vms=(vm.name,))
    return draft.finish(None)


def change_vm(scope: Scope, vm: Vm, context: RuleContext, *, by: str, now: datetime) -> Change[None]:
    """Change a VM. Its host can change unless it works on the VM, its update domain only while no event is open."""
    old = scope.vm(vm.name)
    draft = Draft(scope, now)
    if vm == old:
        return draft.finish(None)
    event_ids = tuple(event.id for event in scope.events_affecting(old.name))
    if event_ids and vm.update_domain != old.update_domain:
        raise ResourceInUse(f"VM {old.name}", event_ids, advice=DOMAIN_ADVICE)
    if vm.host != old.host:
        check_host_change(scope, old)
    settled = msgspec.structs.replace(vm, name=old.name, host=old.host)
    if settled != old:
        draft.set(roster=scope.roster.with_replaced(settled))
        check_traits(scope, [settled])
        _check_identity(scope, [settled], old=old)
        draft.add_entry(
            EntryKind.VM_CHANGED, by=by, vms=(old.name,), fields=", ".join(changed_field_names(old, settled))
        )
    if vm.host != old.host:
        relocate_vm(draft, settled, vm.host, by=by)
    draft.check_room()
    start_ready_events(draft, context)
    return draft.finish(None)


def remove_vm(
    scope: Scope, name: str, context: RuleContext, *, by: str, now: datetime, why: str = "", force: bool = False
) -> Change[None]:
    """Remove a VM. If it has open events this needs force, which removes it from them and cancels its own."""
    vm = scope.vm(name)
    event_ids = tuple(event.id for event in scope.events_affecting(vm.name))
    if event_ids and not force:
        raise ResourceInUse(f"VM {vm.name}", event_ids)
    draft = Draft(scope, now)
    detach_vm(draft, vm, by=by, why=why)
    start_ready_events(draft, context)
    return finish_or_remove(draft, by=by)


def remove_scope(scope: Scope, *, by: str, now: datetime, why: str = "", force: bool = False) -> Change[None]:
    """Remove a scope with its VMs. Open events need force: Scheduled ones are canceled, Started ones given up."""
    if scope.events and not force:
        raise ResourceInUse(f"scope {scope.id}", tuple(event.id for event in scope.events))
    draft = Draft(scope, now)
    for event in scope.events:
        trigger = Trigger.CANCEL if event.state is State.SCHEDULED else Trigger.GIVE_UP
        draft.apply(event, trigger, by=by, why=why or "its scope is removed")
    draft.add_entry(EntryKind.SCOPE_REMOVED, by=by, why=why, vms=(vm.name for vm in scope.roster))
    return draft.remove(None)
