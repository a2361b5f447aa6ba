"""What operators ask for, as the values of the rules: new and changed VMs and scopes."""

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


def new_vm(asked: v1.AddVm) -> Vm:
    """Make a VM. An id that is not given follows from its names, as in the fleet file."""
    return Vm(
        name=asked.name,
        vm_id=asked.vm_id or derived_id("vm", asked.scope or asked.name, asked.name),
        role_instance=asked.role_instance,
        update_domain=asked.update_domain,
        fault_domain=asked.fault_domain,
        host=asked.host,
        addresses=_addresses(asked.addresses),
        traits=_traits(asked),
    )


def new_scope(asked: v1.AddScope, *, epoch: str, now: datetime) -> Scope:
    """Make a scope without VMs."""
    is_group = asked.kind is ScopeKind.PLACEMENT_GROUP
    return Scope(
        id=asked.id,
        kind=asked.kind,
        epoch=epoch,
        changed_at=now,
        traits=_traits(asked),
        scale_set=asked.scale_set,
        placement_group=asked.placement_group or (derived_id("placement-group", asked.id) if is_group else None),
        approval=asked.approval,
        auto_approve=tuple(asked.auto_approve),
    )


def standalone(vm: Vm, *, epoch: str, now: datetime) -> Scope:
    """Make the scope of a VM that stands alone; it bears the VM's name."""
    return Scope(id=vm.name, kind=ScopeKind.STANDALONE, epoch=epoch, changed_at=now, roster=Roster((vm,)))


def changed_vm(asked: v1.ChangeVm) -> Callable[[Vm], Vm]:
    """Return what makes the changed VM of any that it finds."""
    said = _said(asked, ("host", "update_domain", "fault_domain"))
    if not isinstance(asked.addresses, msgspec.UnsetType):
        said["addresses"] = _addresses(asked.addresses)
    traits = changed_traits(asked)
    return lambda vm: msgspec.structs.replace(vm, **said, traits=traits(vm.traits))


def changed_traits(asked: ChangedTraits) -> Callable[[Traits], Traits]:
    """Return what makes the changed traits of any that it finds."""
    said = _said(asked, TRAITS)
    if isinstance(notice := said.get("terminate_notice"), str):
        said["terminate_notice"] = parse_duration(notice)
    return lambda traits: msgspec.structs.replace(traits, **said)


def _said(asked: v1.Request, fields: Sequence[str]) -> dict[str, Any]:
    said = {field: getattr(asked, field) for field in fields}
    return {field: value for field, value in said.items() if value is not msgspec.UNSET}


def _traits(asked: NewTraits) -> Traits:
    said: dict[str, Any] = {field: getattr(asked, field) for field in TRAITS}
    if asked.terminate_notice is not None:
        said["terminate_notice"] = parse_duration(asked.terminate_notice)
    return Traits(**said)


def _addresses(asked: Sequence[v1.NewAddress]) -> tuple[Address, ...]:
    return tuple(Address(ip=item.ip, network=item.network, mac=item.mac) for item in asked)
