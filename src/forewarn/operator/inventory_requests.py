"""Inventory requests as core values: new and changed VMs and scopes."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.api import v1
from forewarn.api.fleet_file import derived_id
from forewarn.api.v1.derived_types import DerivedTypes
from forewarn.api.v1.inventory import ChangedTraits
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Address, Roster, Traits, Vm

_FORMS = DerivedTypes(v1.Request, {Vm: "NewVm", Traits: "NewTraits", Address: "NewAddress"}, {})
"""How requests write the fields of VMs. `api/v1/inventory.py` declares the requests themselves: their traits are fields
of the VM instead of an object within it, and a change has a third state, left out."""


def new_vm(request: v1.AddVm) -> Vm:
    """Make a VM. An id that is not given follows from its names, as in the fleet file."""
    fields = _FORMS.read_fields(Vm, request)
    fields["vm_id"] = request.vm_id or derived_id("vm", request.scope or request.name, request.name)
    return Vm(**fields, traits=_FORMS.read(Traits, request))


def new_scope(request: v1.AddScope, *, epoch: str, now: datetime) -> Scope:
    """Make a scope without VMs."""
    is_group = request.kind is ScopeKind.PLACEMENT_GROUP
    return Scope(
        id=request.id,
        kind=request.kind,
        epoch=epoch,
        changed_at=now,
        traits=_FORMS.read(Traits, request),
        scale_set=request.scale_set,
        placement_group=request.placement_group or (derived_id("placement-group", request.id) if is_group else None),
        approval=request.approval,
        auto_approve=tuple(request.auto_approve),
    )


def standalone_scope(vm: Vm, *, epoch: str, now: datetime) -> Scope:
    """Make the scope of a VM that stands alone; it bears the VM's name."""
    return Scope(id=vm.name, kind=ScopeKind.STANDALONE, epoch=epoch, changed_at=now, roster=Roster((vm,)))


def vm_updater(request: v1.ChangeVm) -> Callable[[Vm], Vm]:
    """Return what makes the changed VM of any that it finds."""
    fields, traits = _FORMS.read_fields(Vm, request), traits_updater(request)
    return lambda vm: msgspec.structs.replace(vm, **fields, traits=traits(vm.traits))


def traits_updater(request: ChangedTraits) -> Callable[[Traits], Traits]:
    """Return what makes the changed traits of any that it finds."""
    fields = _FORMS.read_fields(Traits, request)
    return lambda traits: msgspec.structs.replace(traits, **fields)
