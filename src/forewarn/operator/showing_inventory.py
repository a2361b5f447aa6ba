"""The inventory, as the types of the API. Nothing is decided here."""

from collections.abc import Iterator

from forewarn.api import v1
from forewarn.core.duration import duration_text
from forewarn.core.scope import Held, Scope
from forewarn.core.text import counting_order
from forewarn.core.vm import Priority, Vm
from forewarn.fleet.service import Fleet
from forewarn.operator.access import THE_SERVICE, Caller
from forewarn.operator.backstage import GuestUrl
from forewarn.operator.paging import page_of, scopes_from


def show_hold(held: Held | None, scope: str | None) -> v1.Hold | None:
    """Show a hold of a scope, or the one on the whole fleet."""
    return None if held is None else v1.Hold(scope=scope, by=held.by, at=held.at, reason=held.reason)


def show_vm(scope: Scope, vm: Vm, guest_url: GuestUrl) -> v1.Vm:
    """Show a VM with everything that holds for it."""
    traits = scope.traits_of(vm)
    return v1.Vm(
        name=vm.name,
        scope=scope.id,
        kind=scope.kind,
        vm_id=vm.vm_id,
        guest_url=guest_url(scope.id, vm),
        host=vm.host,
        update_domain=vm.update_domain,
        fault_domain=vm.fault_domain,
        priority=traits.priority or Priority.REGULAR,
        role_instance=vm.role_instance,
        addresses=tuple(v1.Address(ip=item.ip, network=item.network, mac=item.mac) for item in vm.addresses),
        tags=traits.tags or {},
        terminate_notice=None if traits.terminate_notice is None else duration_text(traits.terminate_notice),
        location=traits.location,
        zone=traits.zone,
        resource_group=traits.resource_group,
        subscription=traits.subscription,
        os=traits.os,
        scale_set=scope.scale_set,
        enabled=scope.enabled,
        held=show_hold(scope.held, scope.id),
        open_events=tuple(event.id for event in scope.events_naming(vm.name)),
    )


def show_vms(
    fleet: Fleet,
    guest_url: GuestUrl,
    *,
    limit: int,
    scope: str | None = None,
    after: str = "",
    caller: Caller = THE_SERVICE,
) -> v1.VmPage:
    """Show VMs by scope and name, from the one after `after` on."""
    last_scope, _, last_name = after.rpartition("/")

    def rest() -> Iterator[tuple[Scope, Vm]]:
        for each in scopes_from(fleet.replica, scope, last_scope, caller):
            for vm in sorted(each.roster, key=lambda vm: counting_order(vm.name)):
                if each.id != last_scope or counting_order(vm.name) > counting_order(last_name):
                    yield each, vm

    found, more = page_of(rest(), limit)
    vms = tuple(show_vm(each, vm, guest_url) for each, vm in found)
    return v1.VmPage(
        vms=vms,
        next=f"{vms[-1].scope}/{vms[-1].name}" if more else None,
        held=show_hold(fleet.conditions.held, None),
    )
