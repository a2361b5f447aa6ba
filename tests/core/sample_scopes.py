"""Small scopes at ten o'clock, with ids derived from names, and requests to schedule events in them."""

from datetime import UTC, datetime

import msgspec

from forewarn.core.change import derive_id
from forewarn.core.event import EventType
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Priority, Roster, Traits, Vm

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
SEED = "00000000-0000-4000-8000-000000000000"


def vm(name: str, *, domain: int = 0, host: str | None = None, ip: str | None = None, network: str = "default") -> Vm:
    """Return a VM with an id derived from its name."""
    addresses = (Address(ip=ip, network=network),) if ip else ()
    vm_id = derive_id(SEED, name).lower()
    return Vm(name=name, vm_id=vm_id, update_domain=domain, host=host, addresses=addresses)


def scope(
    id_: str,
    *vms: Vm,
    kind: ScopeKind = ScopeKind.AVAILABILITY_SET,
    approval: ApprovalRule = ApprovalRule.ANY,
    low_priority: bool = False,
) -> Scope:
    """Return a new scope. Its VMs get ids that no other scope has."""
    own = tuple(msgspec.structs.replace(one, vm_id=derive_id(SEED, id_, one.name).lower()) for one in vms)
    traits = Traits(priority=Priority.LOW) if low_priority else Traits()
    return Scope(id=id_, kind=kind, epoch="e1", changed_at=TEN, roster=Roster(own), approval=approval, traits=traits)


def web_scope() -> Scope:
    """Return a scope of three update domains with two VMs each; each domain has its own host."""
    vms = (vm(f"web-{n}", domain=n % 3, host=f"hv-{n % 3}", ip=f"10.0.0.{n + 1}") for n in range(6))
    return scope("web", *vms)


def schedule_request(type_: EventType, *vms: str, number: int = 1, **more: object) -> ScheduleRequest:
    """Return a schedule request; the same number gives the same id."""
    request = f"00000000-0000-4000-8000-{number:012d}"
    plain = ScheduleRequest(id=request, type=type_, vms=vms, by="operator:test")
    return msgspec.structs.replace(plain, **more)
