"""Scopes and VMs coming, changing and going. Addresses are unique over all scopes: the fleet sees to that."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.conditions import Conditions
from forewarn.core.differing import differing_names
from forewarn.core.errors import AlreadyThere, Busy, Invalid
from forewarn.core.event import EventType, Move, State
from forewarn.core.journal import Did
from forewarn.core.leaving import finish_or_remove, leave, relocate
from forewarn.core.once import Once, signed
from forewarn.core.progress import start_what_may
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.vm import Traits, Vm


def create(scope: Scope, *, by: str, now: datetime, asked: Once | None = None) -> Change[None]:
    """Bring a scope, with the VMs it has from the start, into being. The journal keeps the key of the request, too."""
    if scope.events or scope.entries:
        raise Invalid("a new scope has no events and no journal")
    check_traits(scope, scope.roster)
    _check_addresses(scope, scope.roster)
    draft = Draft(scope, now)
    draft.note(Did.SCOPE_CREATED, by=by, vms=(vm.name for vm in scope.roster), kind=scope.kind.value)
    if asked is not None:
        draft.remember(asked.key, "", asked.digest)
    draft.check_room()
    change = draft.finish(None)
    return change if asked is None else Change(change.scope, signed(change.entries, asked), None)


def change_scope(
    scope: Scope,
    conditions: Conditions,
    *,
    by: str,
    now: datetime,
    traits: Traits | None = None,
    approval: ApprovalRule | None = None,
    auto_approve: tuple[EventType, ...] | None = None,
) -> Change[None]:
    """Change what a scope gives to its VMs or asks of them; what is left out stays."""
    asked = {"traits": traits, "approval": approval, "auto_approve": auto_approve}
    changed = {name: value for name, value in asked.items() if value is not None and value != getattr(scope, name)}
    draft = Draft(scope, now)
    if changed:
        draft.set(**changed)
        check_traits(draft.scope, draft.scope.roster)
        draft.check_room()
        draft.note(Did.SCOPE_CHANGED, by=by, why=", ".join(changed))
    start_what_may(draft, conditions)
    return draft.finish(None)


def check_traits(scope: Scope, vms: Iterable[Vm]) -> None:
    """Refuse tags that are too many only together: a VM's own and its scope's."""
    for vm in vms:
        scope.traits_of(vm)


def _check_addresses(scope: Scope, vms: Iterable[Vm]) -> None:
    """Refuse a VM the address of another one of its scope; over all scopes, the fleet sees to that."""
    owners = {(address.network, address.ip): vm.name for vm in scope.roster for address in vm.addresses}
    for vm in vms:
        for address in vm.addresses:
            owner = owners.get((address.network, address.ip), vm.name)
            if owner != vm.name:
                raise AlreadyThere(f"address {address.ip} in network {address.network}, of VM {owner},")


def add_vm(scope: Scope, vm: Vm, *, by: str, now: datetime) -> Change[None]:
    """Add a VM."""
    draft = Draft(scope, now)
    draft.set(roster=scope.roster.with_vm(vm))
    check_traits(scope, [vm])
    _check_addresses(scope, [vm])
    draft.check_room()
    draft.note(Did.VM_ADDED, by=by, vms=(vm.name,))
    return draft.finish(None)


def change_vm(scope: Scope, vm: Vm, conditions: Conditions, *, by: str, now: datetime) -> Change[None]:
    """Change a VM that exists. Its host can change at any time, its update domain only while no event names it."""
    old = scope.vm(vm.name)
    draft = Draft(scope, now)
    if vm == old:
        return draft.finish(None)
    named = tuple(event.id for event in scope.events_naming(old.name))
    if named and vm.update_domain != old.update_domain:
        raise Busy(f"VM {old.name}", named, advice="cancel them before you change its update domain")
    settled = msgspec.structs.replace(vm, name=old.name, host=old.host)
    if settled != old:
        draft.set(roster=scope.roster.with_changed(settled))
        check_traits(scope, [settled])
        _check_addresses(scope, [settled])
        draft.note(Did.VM_CHANGED, by=by, vms=(old.name,), fields=", ".join(differing_names(old, settled)))
    if vm.host != old.host:
        relocate(draft, settled, vm.host, by=by)
    draft.check_room()
    start_what_may(draft, conditions)
    return draft.finish(None)


def remove_vm(
    scope: Scope, name: str, conditions: Conditions, *, by: str, now: datetime, why: str = "", force: bool = False
) -> Change[None]:
    """Remove a VM. With open events only by force, which takes it out of them and cancels what was for it alone."""
    vm = scope.vm(name)
    named = tuple(event.id for event in scope.events_naming(vm.name))
    if named and not force:
        raise Busy(f"VM {vm.name}", named)
    draft = Draft(scope, now)
    leave(draft, vm, by=by, why=why)
    start_what_may(draft, conditions)
    return finish_or_remove(draft, by=by)


def remove_scope(scope: Scope, *, by: str, now: datetime, why: str = "", force: bool = False) -> Change[None]:
    """Remove a scope with its VMs. Open events need force: Scheduled ones are canceled, Started ones given up."""
    if scope.events and not force:
        raise Busy(f"scope {scope.id}", tuple(event.id for event in scope.events))
    draft = Draft(scope, now)
    for event in scope.events:
        move = Move.CANCEL if event.state is State.SCHEDULED else Move.GIVE_UP
        draft.move(event, move, by=by, why=why or "its scope is removed")
    draft.note(Did.SCOPE_REMOVED, by=by, why=why, vms=(vm.name for vm in scope.roster))
    return draft.remove(None)
