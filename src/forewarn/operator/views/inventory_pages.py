"""Pages of scopes, VMs and hosts that match a filter."""

import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable
from fnmatch import translate
from heapq import nsmallest

import msgspec

from forewarn.api import v1
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.text import natural_sort_key
from forewarn.core.vm import Priority, Vm
from forewarn.fleet.errors import HostNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.auth import Caller
from forewarn.operator.pagination import first_page, visible_scopes
from forewarn.operator.state import AppState
from forewarn.operator.views.inventory import show_hold, show_host, show_scope, show_vm, sorted_vms


class InventoryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for VMs or scopes. None matches everything."""

    scope: str | None = None
    kind: ScopeKind | None = None
    held: bool | None = None
    enabled: bool | None = None
    host: str | None = None
    name: str | None = None
    tag: str | None = None
    priority: Priority | None = None

    def matches_scope(self, scope: Scope) -> bool:
        """Return whether the scope matches, so that its VMs can match."""
        return (
            self.kind in (None, scope.kind)
            and self.held in (None, scope.hold is not None)
            and self.enabled in (None, scope.enabled)
        )

    def vm_predicate(self) -> Callable[[Scope, Vm], bool]:
        """Return a function that checks whether a VM of a matching scope matches."""
        matches_name = re.compile(translate((self.name or "*").casefold())).fullmatch
        tag, equals, value = (self.tag or "").partition("=")

        def matches(scope: Scope, vm: Vm) -> bool:
            if self.host not in (None, vm.host) or not matches_name(vm.name.casefold()):
                return False
            if self.priority not in (None, vm.traits.priority or scope.traits.priority or Priority.REGULAR):
                return False
            if self.tag is None:
                return True
            found = (vm.traits.tags or {}).get(tag, (scope.traits.tags or {}).get(tag))
            return found is not None and (not equals or found == value)

        return matches


async def list_scopes(
    state: AppState, caller: Caller, wanted: InventoryFilter, *, after: str, limit: int
) -> v1.ScopePage:
    """Return scopes after `after`, sorted by id."""
    fleet = state.fleet
    matches_name = re.compile(translate((wanted.name or "*").casefold())).fullmatch

    async def matching() -> AsyncIterator[Scope]:
        async for scope in visible_scopes(fleet.replica, state.scope_ids.after(after), caller):
            if wanted.matches_scope(scope) and matches_name(scope.id.casefold()):
                yield scope

    found, more = await first_page(matching(), limit)
    return v1.ScopePage(
        scopes=[
            show_scope(fleet, fleet.replica.get_or_create_view(scope.id), scope)
            async for scope in iterate_gradually(found)
        ],
        next=found[-1].id if more else None,
        fleet_hold=show_hold(fleet.holds.current, None),
    )


async def list_vms(state: AppState, caller: Caller, wanted: InventoryFilter, *, after: str, limit: int) -> v1.VmPage:
    """Return VMs after `after`, sorted by scope and name."""
    fleet = state.fleet
    last_scope, _, last_name = after.rpartition("/")
    matches = wanted.vm_predicate()

    async def matching() -> AsyncIterator[tuple[Scope, Vm]]:
        ids = _scope_ids(state, caller, wanted, last_scope)
        async for scope in visible_scopes(fleet.replica, ids, caller):
            if wanted.matches_scope(scope):
                vms = sorted_vms(vm for vm in scope.roster if matches(scope, vm))
                for vm in vms if scope.id != last_scope else _vms_after(vms, last_name):
                    yield scope, vm

    found, more = await first_page(matching(), limit)
    vms = [show_vm(scope, vm, state.guests.url) async for scope, vm in iterate_gradually(found)]
    next_ = f"{vms[-1].scope}/{vms[-1].name}" if more else None
    return v1.VmPage(vms=vms, next=next_, fleet_hold=show_hold(fleet.holds.current, None))


def _scope_ids(state: AppState, caller: Caller, wanted: InventoryFilter, first: str) -> Iterable[str]:
    """Return the sorted ids of the scopes to examine; all of them only without a scope or host filter."""
    if wanted.scope is not None:
        caller.check_scope(wanted.scope)
        return [state.fleet.replica.scope(wanted.scope).id]
    if wanted.host is not None:
        ids = {view.id for view, _ in state.fleet.replica.hosts().get(wanted.host, ()) if caller.can_see(view.id)}
        if not ids:
            raise HostNotFound(wanted.host)
        return sorted(id_ for id_ in ids if id_ >= first)
    return state.scope_ids.starting_at(first)


def _vms_after(vms: list[Vm], last: str) -> list[Vm]:
    return vms[bisect_right(vms, natural_sort_key(last), key=lambda vm: natural_sort_key(vm.name)) :]


async def list_hosts(state: AppState, caller: Caller, *, name: str | None, after: str, limit: int) -> v1.HostPage:
    """Return hosts after `after`, sorted by name."""
    matches_name = re.compile(translate((name or "*").casefold())).fullmatch
    hosts = list(state.fleet.replica.hosts()) if not caller.scopes else await _visible_hosts(state, caller)
    wanted = [host async for host in iterate_gradually(hosts) if host > after and matches_name(host.casefold())]
    names = nsmallest(limit + 1, wanted)
    vms_by_host: dict[str, list[tuple[Scope, Vm]]] = {host: [] for host in names[:limit]}
    async for scope in visible_scopes(state.fleet.replica, state.scope_ids.ids(), caller):
        for vm in scope.roster:
            if vm.host in vms_by_host:
                vms_by_host[vm.host].append((scope, vm))
    shown = [show_host(host, vms) async for host, vms in iterate_gradually(vms_by_host.items()) if vms]
    return v1.HostPage(
        hosts=shown,
        next=names[limit - 1] if len(names) > limit else None,
        fleet_hold=show_hold(state.fleet.holds.current, None),
    )


async def _visible_hosts(state: AppState, caller: Caller) -> set[str]:
    """Return the hosts that have VMs which the caller may see."""
    found: set[str] = set()
    async for scope in visible_scopes(state.fleet.replica, state.scope_ids.ids(), caller):
        found.update(vm.host for vm in scope.roster if vm.host is not None)
    return found


def visible_host(state: AppState, caller: Caller, name: str) -> v1.Host | None:
    """Return a host if it has VMs that the caller may see, else None."""
    placed = state.fleet.replica.hosts().get(name, ())
    visible = [(view.scope, vm) for view, vm in placed if view.scope is not None and caller.can_see(view.id)]
    return show_host(name, visible) if visible else None
