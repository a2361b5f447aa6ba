"""Inventory requests as core values: new and changed VMs and scopes."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.api import v1
from forewarn.api.fleet_file import derived_id
from forewarn.api.v1.traits import REQUESTS, ChangedTraits
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Roster, Traits, Vm


def new_vm(request: v1.AddVm) -> Vm:
    """Build a VM. A missing id is derived from the names, as in the fleet file."""
    fields = REQUESTS.read_fields(Vm, request)
    fields["vm_id"] = request.vm_id or derived_id("vm", request.scope or request.name, request.name)
    return Vm(**fields, traits=REQUESTS.read(Traits, request))


def new_scope(request: v1.AddScope, *, epoch: str, now: datetime) -> Scope:
    """Build a scope without VMs."""
    is_group = request.kind is ScopeKind.PLACEMENT_GROUP
    return Scope(
        id=request.id,
        kind=request.kind,
        epoch=epoch,
        changed_at=now,
        traits=REQUESTS.read(Traits, request),
        scale_set=request.scale_set,
        placement_group=request.placement_group or (derived_id("placement-group", request.id) if is_group else None),
        approval=request.approval,
        auto_approve=tuple(request.auto_approve),
    )


def standalone_scope(vm: Vm, *, epoch: str, now: datetime) -> Scope:
    """Build the scope of a standalone VM, with the VM's name."""
    return Scope(id=vm.name, kind=ScopeKind.STANDALONE, epoch=epoch, changed_at=now, roster=Roster((vm,)))


def vm_updater(request: v1.ChangeVm) -> Callable[[Vm], Vm]:
    """Return a function that applies the request to a VM."""
    fields, traits = REQUESTS.read_fields(Vm, request), traits_updater(request)
    return lambda vm: msgspec.structs.replace(vm, **fields, traits=traits(vm.traits))


def traits_updater(request: ChangedTraits) -> Callable[[Traits], Traits]:
    """Return a function that applies the request to traits."""
    fields = REQUESTS.read_fields(Traits, request)
    return lambda traits: msgspec.structs.replace(traits, **fields)
