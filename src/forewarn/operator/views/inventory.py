"""API views of scopes, VMs, hosts and holds."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, overload

from forewarn.api import v1
from forewarn.api.v1.traits import RESPONSES
from forewarn.core.scope import Hold, Scope
from forewarn.core.text import natural_sort_key
from forewarn.core.vm import Priority, Traits, Vm
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet

GuestUrl = Callable[[str, Vm], str | None]
"""Returns the URL of a VM's endpoint, given its scope and the VM; None if it has none."""


@overload
def show_hold(hold: Hold, scope: str | None) -> v1.Hold: ...


@overload
def show_hold(hold: Hold | None, scope: str | None) -> v1.Hold | None: ...


def show_hold(hold: Hold | None, scope: str | None) -> v1.Hold | None:
    """Return the hold of a scope, or of the whole fleet if `scope` is None."""
    return None if hold is None else v1.Hold(scope=scope, created_by=hold.by, created_at=hold.at, reason=hold.reason)


def show_vm(scope: Scope, vm: Vm, guest_url: GuestUrl) -> v1.Vm:
    """Return a VM with its own and inherited properties."""
    traits = scope.traits_of(vm)
    return v1.Vm(
        name=vm.name,
        scope=scope.id,
        scope_kind=scope.kind,
        vm_id=vm.vm_id,
        guest_url=guest_url(scope.id, vm),
        host=vm.host,
        update_domain=vm.update_domain,
        fault_domain=vm.fault_domain,
        role_instance=vm.role_instance,
        addresses=tuple(v1.Address(**RESPONSES.write_fields(address)) for address in vm.addresses),
        scale_set=scope.scale_set,
        enabled=scope.enabled,
        hold=show_hold(scope.hold, scope.id),
        open_events=tuple(event.id for event in scope.events_affecting(vm.name)),
        **_show_traits(traits) | {"priority": traits.priority or Priority.REGULAR},
    )


def first_vms(fleet: Fleet, guest_url: GuestUrl, limit: int) -> tuple[v1.Vm, ...]:
    """Return the first VMs by scope and name."""
    scopes = (fleet.replica.scope(id_) for id_ in sorted(view.id for view in fleet.replica.views()))
    vms = ((scope, vm) for scope in scopes for vm in sorted_vms(scope.roster))
    return tuple(show_vm(scope, vm, guest_url) for scope, vm in islice(vms, limit))


def sorted_vms(vms: Iterable[Vm]) -> list[Vm]:
    """Return VMs of one scope in natural order: web-2 before web-10."""
    return sorted(vms, key=lambda vm: natural_sort_key(vm.name))


def show_scope(fleet: Fleet, view: ScopeView, scope: Scope) -> v1.Scope:
    """Return a scope with its enablement and the time of its last poll."""
    return v1.Scope(
        id=scope.id,
        kind=scope.kind,
        vm_count=len(scope.roster),
        update_domains=tuple(sorted({vm.update_domain for vm in scope.roster})),
        approval=scope.approval,
        auto_approve=scope.auto_approve,
        scale_set=scope.scale_set,
        placement_group=scope.placement_group,
        incarnation=scope.incarnation,
        enabled=scope.enabled,
        last_seen_at=fleet.last_seen.of(view),
        changed_at=scope.changed_at,
        open_events=tuple(event.id for event in scope.events),
        hold=show_hold(scope.hold, scope.id),
        **_show_traits(scope.traits),
    )


def _show_traits(traits: Traits) -> dict[str, Any]:
    """Return traits as fields of a VM or scope; `tags` and `instance` are always set."""
    return RESPONSES.write_fields(traits) | {"tags": traits.tags or {}, "instance": traits.instance or {}}


def show_host(name: str, placed: Iterable[tuple[Scope, Vm]]) -> v1.Host:
    """Return a host with its VMs and the open events that affect them."""
    by_scope: dict[str, tuple[Scope, list[Vm]]] = {}
    for scope, vm in placed:
        by_scope.setdefault(scope.id, (scope, []))[1].append(vm)
    ordered = [by_scope[id_] for id_ in sorted(by_scope)]
    return v1.Host(
        name=name,
        vms=tuple(f"{scope.id}/{vm.name}" for scope, vms in ordered for vm in sorted_vms(vms)),
        scopes=tuple(scope.id for scope, _ in ordered),
        open_events=tuple(
            event.id
            for scope, vms in ordered
            for event in scope.events
            if not {vm.name for vm in vms}.isdisjoint(event.vms)
        ),
    )
