"""Inventory requests as core values: new and changed VMs and scopes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from forewarn.api import v1
from forewarn.api.fleet_file import derived_id
from forewarn.api.v1.inventory import ChangedTraits, NewTraits
from forewarn.core.duration import parse_duration
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Address, Roster, Traits, Vm

TRAITS = Traits.__struct_fields__


def new_vm(request: v1.AddVm) -> Vm:
    """Make a VM. An id that is not given follows from its names, as in the fleet file."""
    return Vm(
        name=request.name,
        vm_id=request.vm_id or derived_id("vm", request.scope or request.name, request.name),
        role_instance=request.role_instance,
        update_domain=request.update_domain,
        fault_domain=request.fault_domain,
        host=request.host,
        addresses=_addresses(request.addresses),
        traits=_traits(request),
    )


def new_scope(request: v1.AddScope, *, epoch: str, now: datetime) -> Scope:
    """Make a scope without VMs."""
    is_group = request.kind is ScopeKind.PLACEMENT_GROUP
    return Scope(
        id=request.id,
        kind=request.kind,
        epoch=epoch,
        changed_at=now,
        traits=_traits(request),
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
    fields = _given_fields(request, ("host", "update_domain", "fault_domain"))
    if not isinstance(request.addresses, msgspec.UnsetType):
        fields["addresses"] = _addresses(request.addresses)
    traits = traits_updater(request)
    return lambda vm: msgspec.structs.replace(vm, **fields, traits=traits(vm.traits))


def traits_updater(request: ChangedTraits) -> Callable[[Traits], Traits]:
    """Return what makes the changed traits of any that it finds."""
    fields = _given_fields(request, TRAITS)
    if isinstance(notice := fields.get("terminate_notice"), str):
        fields["terminate_notice"] = parse_duration(notice)
    return lambda traits: msgspec.structs.replace(traits, **fields)


def _given_fields(request: v1.Request, fields: Sequence[str]) -> dict[str, Any]:
    values = {field: getattr(request, field) for field in fields}
    return {field: value for field, value in values.items() if value is not msgspec.UNSET}


def _traits(request: NewTraits) -> Traits:
    values: dict[str, Any] = {field: getattr(request, field) for field in TRAITS}
    if request.terminate_notice is not None:
        values["terminate_notice"] = parse_duration(request.terminate_notice)
    return Traits(**values)


def _addresses(addresses: Sequence[v1.NewAddress]) -> tuple[Address, ...]:
    return tuple(Address(ip=item.ip, network=item.network, mac=item.mac) for item in addresses)
