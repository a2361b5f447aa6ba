"""Making a scope what a fleet file says: what differs, and one rule that does all of it in one step.

What cannot be done is said VM by VM, and the rest is done all the same.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from forewarn.core.change import Change, Draft
from forewarn.core.conditions import Conditions
from forewarn.core.differing import SCOPE_FIELDS, Fields, differing_names, scope_fields
from forewarn.core.errors import Busy
from forewarn.core.inventory import check_traits
from forewarn.core.journal import Did
from forewarn.core.leaving import moved
from forewarn.core.progress import start_what_may
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster, Vm

Place = tuple[str, str]
"""An address as what it is unique by: its network and its IP."""

FIXED_KIND = "the kind of a scope cannot change: remove the scope, and import it again"
IMPORT = "import"


class Changed(NamedTuple):
    """A VM as it is and as it should be."""

    old: Vm
    new: Vm


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What has to happen to a scope. `refused` says, by VM, why something does not; None is the scope itself."""

    fields: Fields = {}
    added: tuple[Vm, ...] = ()
    changed: tuple[Changed, ...] = ()
    removed: tuple[Vm, ...] = ()
    refused: dict[str | None, str] = {}

    @property
    def is_nothing(self) -> bool:
        """Whether the scope is as it should be."""
        return not (self.fields or self.added or self.changed or self.removed)

    def may(self, vm: Vm) -> bool:
        """Tell whether what is planned for the VM happens."""
        return vm.name not in self.refused


def plan(scope: Scope, wanted: Scope, *, prune: bool, refused: Mapping[str, str] | None = None) -> Plan:
    """Compare a scope with what it should be; `refused` are VMs of `wanted` of which it is known that they cannot be.

    VMs that are not wanted go only with `prune`. The order of the VMs does not matter, nor does the case of names.
    """
    present = {vm.name.casefold(): vm for vm in scope.roster}
    asked = {vm.name.casefold(): vm for vm in wanted.roster}
    both = (Changed(old, _named(asked[name], old.name)) for name, old in present.items() if name in asked)
    changed = tuple(pair for pair in both if pair.old != pair.new)
    removed = tuple(vm for name, vm in present.items() if name not in asked) if prune else ()
    added = tuple(vm for name, vm in asked.items() if name not in present)
    fields = scope_fields(scope, wanted)
    reasons: dict[str | None, str] = {None: FIXED_KIND} if "kind" in fields else {}
    if scope.events:
        reasons |= {old.name: why for old, new in changed if (why := _busy(scope, old, new))}
        reasons |= {vm.name: why for vm in removed if (why := _busy(scope, vm, None))}
    for name, why in (refused or {}).items():
        vm = present.get(name.casefold())
        reasons[vm.name if vm is not None else name] = why
    found = Plan(fields=fields, added=added, changed=changed, removed=removed, refused=reasons)
    return _without_collisions(scope, found)


def _named(vm: Vm, name: str) -> Vm:
    return vm if vm.name == name else msgspec.structs.replace(vm, name=name)


def _busy(scope: Scope, old: Vm, new: Vm | None) -> str | None:
    """Say why a VM that open events name cannot change so, or go."""
    if new is not None and new.update_domain == old.update_domain:
        return None
    named = tuple(event.id for event in scope.events_naming(old.name))
    if not named:
        return None
    advice = "cancel them" if new is None else "cancel them before you change its update domain"
    return str(Busy(f"VM {old.name}", named, advice=advice))


def _without_collisions(scope: Scope, found: Plan) -> Plan:
    """Refuse what would give to a VM the address of another one that keeps it, until nothing does."""
    if not found.added and all(old.addresses == new.addresses for old, new in found.changed):
        return found
    taken = _Claims(scope, found).refused()
    return msgspec.structs.replace(found, refused={**taken, **found.refused}) if taken else found


class _Claims:
    """Which VMs would have each address. One that is refused claims again what it has, which may be another's by plan.

    So one refusal may lead to the next, all through a scope of a thousand VMs: each looks at its own addresses only.
    """

    def __init__(self, scope: Scope, found: Plan) -> None:
        self._before = {old.name: old for old, _ in found.changed if found.may(old)}
        self._after = {new.name: new for _, new in found.changed if found.may(new)}
        self._after |= {vm.name: vm for vm in found.added if found.may(vm)}
        self._claims: dict[Place, list[str]] = {}
        for vm in _outcome(scope, found):
            for place in places(vm):
                self._claims.setdefault(place, []).append(vm.name)
        self._contested = [place for place, names in self._claims.items() if len(names) > 1]

    def refused(self) -> dict[str | None, str]:
        """Say why some VMs cannot become what they should."""
        refused: dict[str | None, str] = {}
        while self._contested:
            network, ip = place = self._contested.pop()
            claims = tuple(self._claims[place])
            for name in claims if len(claims) > 1 else ():
                if name in self._after and place not in self._had(name):
                    other = next(claimant for claimant in claims if claimant != name)
                    refused[name] = f"address {ip} in network {network} belongs to {other}"
                    self._take_back(name)
        return refused

    def _take_back(self, name: str) -> None:
        for place in places(self._after.pop(name)):
            self._claims[place].remove(name)
        for place in self._had(name):
            claims = self._claims.setdefault(place, [])
            claims.append(name)
            if len(claims) > 1:
                self._contested.append(place)

    def _had(self, name: str) -> set[Place]:
        """Return the addresses that a VM has as it is."""
        return places(self._before[name]) if name in self._before else set()


def _outcome(scope: Scope, found: Plan) -> list[Vm]:
    """Return the VMs that the scope will have."""
    gone = {vm.name for vm in found.removed if found.may(vm)}
    changed = {change.old.name: change.new for change in found.changed if found.may(change.old)}
    kept = [changed.get(vm.name, vm) for vm in scope.roster if vm.name not in gone]
    return kept + [vm for vm in found.added if found.may(vm)]


def places(vm: Vm) -> set[Place]:
    """Return what the VM's addresses are unique by."""
    return {(address.network, address.ip) for address in vm.addresses}


def reshape(
    scope: Scope,
    wanted: Scope,
    conditions: Conditions,
    *,
    by: str,
    now: datetime,
    prune: bool,
    refused: Mapping[str, str] | None = None,
) -> Change[Plan]:
    """Make the scope what it should be, as far as that can be, and return what that meant."""
    found = plan(scope, wanted, prune=prune, refused=refused)
    draft = Draft(scope, now)
    fields = {name: getattr(wanted, name) for name in (*SCOPE_FIELDS, "traits")}
    if any(value != getattr(scope, name) for name, value in fields.items()):
        draft.set(**fields)
        draft.note(Did.SCOPE_CHANGED, by=by, why=", ".join(name for name in found.fields if name != "kind"))
    _reshape_roster(draft, found, by=by)
    if draft.entries:
        check_traits(draft.scope, _with_other_traits(draft.scope, scope, found))
        draft.check_room()
        start_what_may(draft, conditions)
    return draft.finish(found)


def _with_other_traits(scope: Scope, before: Scope, found: Plan) -> Iterable[Vm]:
    """Return the VMs whose traits may have changed: all of them, where the scope's have."""
    if scope.traits != before.traits:
        return scope.roster
    changed = (new for old, new in found.changed if found.may(old) and new.traits != old.traits)
    return (*changed, *(vm for vm in found.added if found.may(vm)))


def _reshape_roster(draft: Draft, found: Plan, *, by: str) -> None:
    """Change all VMs at once: a thousand single changes would take a second."""
    gone = tuple(vm.name for vm in found.removed if found.may(vm))
    changed = [change for change in found.changed if found.may(change.old)]
    added = tuple(vm.name for vm in found.added if found.may(vm))
    if not (gone or changed or added):
        return
    draft.set(roster=Roster(tuple(_outcome(draft.scope, found))))
    if gone:
        draft.note(Did.VM_REMOVED, by=by, why=IMPORT, vms=gone)
    for fields, vms in _by_fields(changed).items():
        draft.note(Did.VM_CHANGED, by=by, why=IMPORT, vms=vms, fields=fields)
    for old, new in changed:
        if new.host != old.host:
            moved(draft, old, new.host, by=by)
    if added:
        draft.note(Did.VM_ADDED, by=by, why=IMPORT, vms=added)


def _by_fields(changed: Iterable[Changed]) -> dict[str, list[str]]:
    """Put the VMs together that change in the same fields; where they run has an entry of its own."""
    groups: dict[str, list[str]] = {}
    for old, new in changed:
        if names := ", ".join(name for name in differing_names(old, new) if name != "host"):
            groups.setdefault(names, []).append(old.name)
    return groups


def let_go(
    scope: Scope, wanted: Scope | None, handed: Collection[Place], *, by: str, now: datetime, prune: bool
) -> Change[None]:
    """Take addresses from VMs that are about to lose them, so that VMs of other scopes can get them.

    `wanted` None: the scope itself is about to go. What is refused keeps its addresses.
    """
    draft = Draft(scope, now)
    losing = [Changed(vm, lost) for vm in _losers(scope, wanted, prune) if (lost := _without(vm, handed)) != vm]
    if losing:
        changed = {old.name: new for old, new in losing}
        draft.set(roster=Roster(tuple(changed.get(vm.name, vm) for vm in scope.roster)))
        draft.note(Did.VM_CHANGED, by=by, why=IMPORT, vms=changed, fields="addresses")
    return draft.finish(None)


def _losers(scope: Scope, wanted: Scope | None, prune: bool) -> list[Vm]:
    if wanted is None:
        return [] if scope.events else list(scope.roster)
    found = plan(scope, wanted, prune=prune)
    staying = {change.old.name: change.new for change in found.changed if found.may(change.old)}
    leaving = {vm.name for vm in found.removed if found.may(vm)}
    return [vm for vm in scope.roster if vm.name in leaving or vm.name in staying]


def _without(vm: Vm, handed: Collection[Place]) -> Vm:
    kept = tuple(address for address in vm.addresses if (address.network, address.ip) not in handed)
    return msgspec.structs.replace(vm, addresses=kept)
