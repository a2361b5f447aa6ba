"""Reconcile a scope with its desired state from a fleet file: plan the changes, and apply all of them in one step.

Impossible changes are reported per VM; all other changes are applied.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from forewarn.core.change import Change, Draft, derive_id
from forewarn.core.diff import SCOPE_FIELDS, FieldDiff, changed_field_names, diff_scopes
from forewarn.core.errors import HostInUse, ResourceInUse
from forewarn.core.inventory import DOMAIN_ADVICE, apply_host_change, check_host_change, check_traits
from forewarn.core.journal import EntryKind
from forewarn.core.lifecycle import start_ready_events
from forewarn.core.policy import RuleContext
from forewarn.core.scope import Scope
from forewarn.core.vm import VM_ID, Roster, UniqueKey, Vm, describe_key, unique_keys

KIND_NOT_CHANGEABLE = "the kind of a scope cannot change: remove the scope, and import it again"
IMPORT = "import"


class VmChange(NamedTuple):
    """A VM, current and desired."""

    old: Vm
    new: Vm


class ReconcilePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a scope needs. `refused` has the reason why a VM does not change; its key None is the scope."""

    fields: FieldDiff = {}
    added: tuple[Vm, ...] = ()
    changed: tuple[VmChange, ...] = ()
    removed: tuple[Vm, ...] = ()
    refused: dict[str | None, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the scope already has its desired state."""
        return not (self.fields or self.added or self.changed or self.removed)

    def allows(self, vm: Vm) -> bool:
        """Return whether the planned change of the VM is possible."""
        return vm.name not in self.refused


def plan_changes(
    scope: Scope, wanted: Scope, *, prune: bool, refused: Mapping[str, str] | None = None
) -> ReconcilePlan:
    """Compare a scope with its desired state; `refused` has VMs of `wanted` that are known to be impossible.

    VMs that are not wanted are removed only with `prune`. The order of the VMs and the case of names do not matter.
    """
    present = {vm.name.casefold(): vm for vm in scope.roster}
    desired = {vm.name.casefold(): vm for vm in wanted.roster}
    both = (VmChange(old, _with_name(desired[name], old.name)) for name, old in present.items() if name in desired)
    changed = tuple(pair for pair in both if pair.old != pair.new)
    removed = tuple(vm for name, vm in present.items() if name not in desired) if prune else ()
    added = tuple(vm for name, vm in desired.items() if name not in present)
    fields = diff_scopes(scope, wanted)
    reasons: dict[str | None, str] = {None: KIND_NOT_CHANGEABLE} if "kind" in fields else {}
    if scope.events:
        reasons |= {old.name: why for old, new in changed if (why := _in_use_reason(scope, old, new))}
        reasons |= {vm.name: why for vm in removed if (why := _in_use_reason(scope, vm, None))}
    for name, why in (refused or {}).items():
        vm = present.get(name.casefold())
        reasons[vm.name if vm is not None else name] = why
    found = ReconcilePlan(fields=fields, added=added, changed=changed, removed=removed, refused=reasons)
    return _without_conflicts(scope, found)


def _with_name(vm: Vm, name: str) -> Vm:
    return vm if vm.name == name else msgspec.structs.replace(vm, name=name)


def _in_use_reason(scope: Scope, old: Vm, new: Vm | None) -> str | None:
    """Return why a VM cannot change like this, or be removed, because open events affect it."""
    if new is not None and new.host != old.host:
        try:
            check_host_change(scope, old)
        except HostInUse as error:
            return str(error)
    if new is not None and new.update_domain == old.update_domain:
        return None
    named = tuple(event.id for event in scope.events_affecting(old.name))
    if not named:
        return None
    advice = "cancel them" if new is None else DOMAIN_ADVICE
    return str(ResourceInUse(f"VM {old.name}", named, advice=advice))


def _without_conflicts(scope: Scope, found: ReconcilePlan) -> ReconcilePlan:
    """Refuse changes that would give a VM the address or id of another one that keeps it, until none is left."""
    if not found.added and all(unique_keys(old) == unique_keys(new) for old, new in found.changed):
        return found
    taken = _Claims(scope, found).refused()
    return msgspec.structs.replace(found, refused={**taken, **found.refused}) if taken else found


class _Claims:
    """Which VMs would have each address and id. A refused VM claims its current ones again, which may cause a conflict.

    So one refusal can cause the next, through a scope of a thousand VMs; each step looks at one VM's keys only.
    """

    def __init__(self, scope: Scope, found: ReconcilePlan) -> None:
        self._before = {old.name: old for old, _ in found.changed if found.allows(old)}
        self._after = {new.name: new for _, new in found.changed if found.allows(new)}
        self._after |= {vm.name: vm for vm in found.added if found.allows(vm)}
        self._claims: dict[UniqueKey, list[str]] = {}
        for vm in _resulting_vms(scope, found):
            for key in unique_keys(vm):
                self._claims.setdefault(key, []).append(vm.name)
        self._contested = [key for key, names in self._claims.items() if len(names) > 1]

    def refused(self) -> dict[str | None, str]:
        """Return why some VMs cannot get their desired state."""
        refused: dict[str | None, str] = {}
        while self._contested:
            key = self._contested.pop()
            claims = tuple(self._claims[key])
            for name in claims if len(claims) > 1 else ():
                if name in self._after and key not in self._current_keys(name):
                    other = next(claimant for claimant in claims if claimant != name)
                    refused[name] = f"{describe_key(key)} belongs to {other}"
                    self._revert(name)
        return refused

    def _revert(self, name: str) -> None:
        for key in unique_keys(self._after.pop(name)):
            self._claims[key].remove(name)
        for key in self._current_keys(name):
            claims = self._claims.setdefault(key, [])
            claims.append(name)
            if len(claims) > 1:
                self._contested.append(key)

    def _current_keys(self, name: str) -> set[UniqueKey]:
        """Return the addresses and the id that a VM has now."""
        return unique_keys(self._before[name]) if name in self._before else set()


def _resulting_vms(scope: Scope, found: ReconcilePlan) -> list[Vm]:
    """Return the VMs that the scope will have."""
    gone = {vm.name for vm in found.removed if found.allows(vm)}
    changed = {change.old.name: change.new for change in found.changed if found.allows(change.old)}
    kept = [changed.get(vm.name, vm) for vm in scope.roster if vm.name not in gone]
    return kept + [vm for vm in found.added if found.allows(vm)]


def reconcile(
    scope: Scope,
    wanted: Scope,
    context: RuleContext,
    *,
    by: str,
    now: datetime,
    prune: bool,
    refused: Mapping[str, str] | None = None,
) -> Change[ReconcilePlan]:
    """Bring the scope to its desired state as far as possible, and return the plan that was applied."""
    found = plan_changes(scope, wanted, prune=prune, refused=refused)
    draft = Draft(scope, now)
    fields = {name: getattr(wanted, name) for name in (*SCOPE_FIELDS, "traits")}
    if any(value != getattr(scope, name) for name, value in fields.items()):
        draft.set(**fields)
        draft.add_entry(EntryKind.SCOPE_CHANGED, by=by, why=", ".join(name for name in found.fields if name != "kind"))
    _reconcile_roster(draft, found, by=by)
    if draft.entries:
        check_traits(draft.scope, _vms_with_new_traits(draft.scope, scope, found))
        draft.check_room()
        start_ready_events(draft, context)
    return draft.finish(found)


def _vms_with_new_traits(scope: Scope, before: Scope, found: ReconcilePlan) -> Iterable[Vm]:
    """Return the VMs whose traits may have changed: all VMs if the scope's traits have."""
    if scope.traits != before.traits:
        return scope.roster
    changed = (new for old, new in found.changed if found.allows(old) and new.traits != old.traits)
    return (*changed, *(vm for vm in found.added if found.allows(vm)))


def _reconcile_roster(draft: Draft, found: ReconcilePlan, *, by: str) -> None:
    """Change all VMs at once, because a thousand single changes would take a second."""
    gone = tuple(vm.name for vm in found.removed if found.allows(vm))
    changed = [change for change in found.changed if found.allows(change.old)]
    added = tuple(vm.name for vm in found.added if found.allows(vm))
    if not (gone or changed or added):
        return
    draft.set(roster=Roster(tuple(_resulting_vms(draft.scope, found))))
    if gone:
        draft.add_entry(EntryKind.VM_REMOVED, by=by, why=IMPORT, vms=gone)
    for fields, vms in _group_by_fields(changed).items():
        draft.add_entry(EntryKind.VM_CHANGED, by=by, why=IMPORT, vms=vms, fields=fields)
    for old, new in changed:
        if new.host != old.host:
            apply_host_change(draft, old, new.host, by=by)
    if added:
        draft.add_entry(EntryKind.VM_ADDED, by=by, why=IMPORT, vms=added)


def _group_by_fields(changed: Iterable[VmChange]) -> dict[str, list[str]]:
    """Group the VMs that change in the same fields; a change of host has its own journal entry."""
    groups: dict[str, list[str]] = {}
    for old, new in changed:
        if names := ", ".join(name for name in changed_field_names(old, new) if name != "host"):
            groups.setdefault(names, []).append(old.name)
    return groups


def release_keys(
    scope: Scope, wanted: Scope | None, keys: Collection[UniqueKey], *, by: str, now: datetime, prune: bool
) -> Change[None]:
    """Take addresses and ids from VMs that are about to lose them, so that VMs of other scopes can get them.

    `wanted` None: the scope itself will be removed. Refused VMs keep what they have.
    """
    draft = Draft(scope, now)
    losing = [
        VmChange(vm, lost)
        for vm in _vms_losing_keys(scope, wanted, prune)
        if (lost := _without_keys(scope, vm, keys)) != vm
    ]
    if losing:
        changed = {old.name: new for old, new in losing}
        draft.set(roster=Roster(tuple(changed.get(vm.name, vm) for vm in scope.roster)))
        fields = dict.fromkeys(name for old, new in losing for name in changed_field_names(old, new))
        draft.add_entry(EntryKind.VM_CHANGED, by=by, why=IMPORT, vms=changed, fields=", ".join(fields))
    return draft.finish(None)


def _vms_losing_keys(scope: Scope, wanted: Scope | None, prune: bool) -> list[Vm]:
    if wanted is None:
        return [] if scope.events else list(scope.roster)
    found = plan_changes(scope, wanted, prune=prune)
    staying = {change.old.name: change.new for change in found.changed if found.allows(change.old)}
    leaving = {vm.name for vm in found.removed if found.allows(vm)}
    return [vm for vm in scope.roster if vm.name in leaving or vm.name in staying]


def _without_keys(scope: Scope, vm: Vm, keys: Collection[UniqueKey]) -> Vm:
    """Return the VM without these addresses. A VM always has an id: instead of this one, it gets a derived one."""
    lost = unique_keys(vm) & set(keys)
    kept = tuple(address for address in vm.addresses if (address.network, address.ip) not in lost)
    loses_id = any(kind == VM_ID for kind, _ in lost)
    vm_id = derive_id(vm.vm_id, scope.id, vm.name).lower() if loses_id else vm.vm_id
    return msgspec.structs.replace(vm, addresses=kept, vm_id=vm_id)
