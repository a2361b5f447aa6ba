"""Inventory routes: scopes, VMs and hosts."""

from typing import Annotated

from litestar import Controller, delete, get, patch, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import UnsetType

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.errors import HostInUse, KeyConflict, ResourceExists, ResourceInUse, ScopeTooLarge
from forewarn.core.limits import MAX_NAME_LENGTH, MAX_TEXT_LENGTH
from forewarn.core.scope import ScopeKind
from forewarn.core.vm import Priority
from forewarn.fleet.errors import (
    AddressInUse,
    HostNotFound,
    HostRunning,
    HostUnheard,
    ScopeExists,
    ScopeNotFound,
    VmIdInUse,
    VmNotFound,
)
from forewarn.fleet.last_seen import new_epoch
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.inventory_requests import new_scope, new_vm, standalone_scope, traits_updater, vm_updater
from forewarn.operator.lookup import find_vm
from forewarn.operator.parameters import (
    VM_ERRORS,
    After,
    Force,
    HostName,
    IdempotencyKeyDep,
    Limit,
    OnlyScope,
    Reason,
    ScopeId,
    change_error_specs,
    error_specs,
)
from forewarn.operator.state import AppState
from forewarn.operator.views.inventory import show_scope, show_vm
from forewarn.operator.views.inventory_pages import InventoryFilter, list_hosts, list_scopes, list_vms, visible_host

VmPath = Annotated[
    str,
    PathParameter(
        max_length=2 * MAX_NAME_LENGTH + 2,  # with the leading slash
        description="`scope/name`, or the bare name if it is unambiguous.",
        schema_extra={"maxLength": 2 * MAX_NAME_LENGTH + 1},
    ),
]
OnlyKind = Annotated[ScopeKind | None, QueryParameter(name="kind", description="Only those of this kind of scope.")]
OnlyHeld = Annotated[
    bool | None,
    QueryParameter(
        name="held", description="Whether the scope itself is held; a hold of the whole fleet does not count."
    ),
]
OnlyEnabled = Annotated[
    bool | None, QueryParameter(name="enabled", description="Whether the scope is enabled: its VMs poll for events.")
]
OnlyHost = Annotated[
    str | None,
    QueryParameter(name="host", min_length=1, max_length=MAX_NAME_LENGTH, description="Only those on this host."),
]
OnlyName = Annotated[
    str | None,
    QueryParameter(
        name="name",
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        description="Only those with this name, or with a pattern such as `web-*`.",
    ),
]
OnlyTag = Annotated[
    str | None,
    QueryParameter(
        name="tag",
        min_length=1,
        max_length=2 * MAX_TEXT_LENGTH + 1,
        description="Only those with this tag, or with `tag=value`.",
    ),
]
OnlyPriority = Annotated[Priority | None, QueryParameter(name="priority", description="Only those of this priority.")]

ADD_ERRORS = (ResourceExists, ScopeExists, AddressInUse, VmIdInUse, ScopeTooLarge, KeyConflict)
REMOVE_ERRORS = (ResourceInUse, HostInUse, KeyConflict)
CHANGE_ERRORS = (AddressInUse, VmIdInUse, ScopeTooLarge, *REMOVE_ERRORS)


class ScopeController(Controller):
    """The scopes."""

    path = "/v1/scopes"
    tags = ("inventory",)

    @get(operation_id="listScopes", summary="List scopes", opt=requires(Role.VIEWER), responses=error_specs())
    async def list_scopes(
        self,
        state: AppState,
        caller: CallerDep,
        kind: OnlyKind = None,
        held: OnlyHeld = None,
        enabled: OnlyEnabled = None,
        only_name: OnlyName = None,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.ScopePage:
        """List scopes, sorted by id."""
        wanted = InventoryFilter(kind=kind, held=held, enabled=enabled, name=only_name)
        return await list_scopes(state, caller, wanted, after=after, limit=limit)

    @post(
        operation_id="addScope",
        summary="Add a scope",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(*ADD_ERRORS),
    )
    async def add_scope(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.AddScope]
    ) -> v1.Scope:
        """Add a scope, without VMs."""
        fleet = state.fleet
        caller.check_scope(data.id)
        fleet.inventory.check_new(data.id)
        scope = new_scope(data, epoch=new_epoch(), now=fleet.clock.now())
        await fleet.inventory.add_scope(scope, by=caller.name, idempotency_key=idempotency_key)
        return _show_scope(fleet, data.id)

    @get(
        "/{scope_id:str}",
        operation_id="showScope",
        summary="Show a scope",
        opt=requires(Role.VIEWER),
        responses=error_specs(ScopeNotFound),
    )
    async def show_scope(self, state: AppState, caller: CallerDep, scope_id: ScopeId) -> v1.Scope:
        """Show a scope."""
        caller.check_scope(scope_id)
        return _show_scope(state.fleet, scope_id)

    @patch(
        "/{scope_id:str}",
        operation_id="changeScope",
        summary="Change a scope",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(ScopeNotFound, *CHANGE_ERRORS),
    )
    async def change_scope(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        scope_id: ScopeId,
        data: JSONBody[v1.ChangeScope],
    ) -> v1.Scope:
        """Change a scope's approval rule and properties. Omitted fields stay; null removes a value."""
        caller.check_scope(scope_id)
        await state.fleet.inventory.change_scope(
            scope_id,
            by=caller.name,
            traits=traits_updater(data),
            approval=None if isinstance(data.approval, UnsetType) else data.approval,
            auto_approve=None if isinstance(data.auto_approve, UnsetType) else tuple(data.auto_approve),
            idempotency_key=idempotency_key,
        )
        return _show_scope(state.fleet, scope_id)

    @delete(
        "/{scope_id:str}",
        operation_id="removeScope",
        summary="Remove a scope",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(ScopeNotFound, *REMOVE_ERRORS),
    )
    async def remove_scope(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        scope_id: ScopeId,
        force: Force = False,
        reason: Reason = "",
    ) -> None:
        """Remove a scope with its VMs."""
        caller.check_scope(scope_id)
        await state.fleet.inventory.remove_scope(
            scope_id, by=caller.name, why=reason, force=force, idempotency_key=idempotency_key
        )


class VmController(Controller):
    """The VMs."""

    path = "/v1/vms"
    tags = ("inventory",)

    @get(
        operation_id="listVms",
        summary="List VMs",
        opt=requires(Role.VIEWER),
        responses=error_specs(ScopeNotFound, HostNotFound),
    )
    async def list_vms(
        self,
        state: AppState,
        caller: CallerDep,
        only_scope: OnlyScope = None,
        kind: OnlyKind = None,
        held: OnlyHeld = None,
        enabled: OnlyEnabled = None,
        host: OnlyHost = None,
        only_name: OnlyName = None,
        tag: OnlyTag = None,
        priority: OnlyPriority = None,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.VmPage:
        """List VMs, sorted by scope and name."""
        wanted = InventoryFilter(
            scope=only_scope,
            kind=kind,
            held=held,
            enabled=enabled,
            host=host,
            name=only_name,
            tag=tag,
            priority=priority,
        )
        return await list_vms(state, caller, wanted, after=after, limit=limit)

    @post(
        operation_id="addVm",
        summary="Add a VM",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(ScopeNotFound, *ADD_ERRORS),
    )
    async def add_vm(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.AddVm]
    ) -> v1.Vm:
        """Add a VM to a scope, or as a standalone VM."""
        fleet = state.fleet
        scope = data.scope or data.name
        caller.check_scope(scope)
        vm = new_vm(data)
        if data.scope is None:
            fleet.inventory.check_new(scope)
            alone = standalone_scope(vm, epoch=new_epoch(), now=fleet.clock.now())
            await fleet.inventory.add_scope(alone, by=caller.name, idempotency_key=idempotency_key)
        else:
            await fleet.inventory.add_vm(scope, vm, by=caller.name, idempotency_key=idempotency_key)
        return _show_vm(state, caller, f"{scope}/{vm.name}")

    @get(
        "/{vm:path}",
        operation_id="showVm",
        summary="Show a VM",
        opt=requires(Role.VIEWER),
        responses=error_specs(*VM_ERRORS),
    )
    async def show_vm(self, state: AppState, caller: CallerDep, vm: VmPath) -> v1.Vm:
        """Show a VM with its own and inherited properties."""
        return _show_vm(state, caller, _vm_name(vm))

    @patch(
        "/{vm:path}",
        operation_id="changeVm",
        summary="Change a VM",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(*VM_ERRORS, *CHANGE_ERRORS),
    )
    async def change_vm(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        vm: VmPath,
        data: JSONBody[v1.ChangeVm],
    ) -> v1.Vm:
        """Change a VM. Omitted fields stay; null removes a value of the VM."""
        view, found = find_vm(state.fleet, caller, _vm_name(vm))
        await state.fleet.inventory.change_vm(
            view.id, found.name, vm_updater(data), by=caller.name, idempotency_key=idempotency_key
        )
        return _show_vm(state, caller, f"{view.id}/{found.name}")

    @delete(
        "/{vm:path}",
        operation_id="removeVm",
        summary="Remove a VM",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(*VM_ERRORS, *REMOVE_ERRORS),
    )
    async def remove_vm(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        vm: VmPath,
        force: Force = False,
        reason: Reason = "",
    ) -> None:
        """Remove a VM from the inventory, without an event. To delete a VM with notice, use `/v1/operations/delete`."""
        fleet = state.fleet
        try:
            view, found = find_vm(fleet, caller, _vm_name(vm))
        except (VmNotFound, ScopeNotFound):
            if await fleet.inventory.is_repeated(idempotency_key):
                return
            raise
        await fleet.inventory.remove_vm(
            view.id, found.name, by=caller.name, why=reason, force=force, idempotency_key=idempotency_key
        )


class HostController(Controller):
    """The hosts, which are known from their VMs."""

    path = "/v1/hosts"
    tags = ("inventory",)

    @get(operation_id="listHosts", summary="List hosts", opt=requires(Role.VIEWER), responses=error_specs())
    async def list_hosts(
        self, state: AppState, caller: CallerDep, only_name: OnlyName = None, after: After = "", limit: Limit = v1.PAGE
    ) -> v1.HostPage:
        """List the hosts that have VMs, sorted by name."""
        return await list_hosts(state, caller, name=only_name, after=after, limit=limit)

    @get(
        "/{host:str}",
        operation_id="showHost",
        summary="Show a host",
        opt=requires(Role.VIEWER),
        responses=error_specs(HostNotFound),
    )
    async def show_host(self, state: AppState, caller: CallerDep, host: HostName) -> v1.Host:
        """Show a host with its VMs."""
        shown = visible_host(state, caller, host)
        if shown is None:
            raise HostNotFound(host)
        return shown

    @post(
        "/{host:str}/gone",
        operation_id="giveUpHost",
        summary="Give up a lost host",
        status_code=200,
        opt=requires(Role.OPERATOR, all_scopes=True),
        responses=change_error_specs(HostNotFound, HostRunning, HostUnheard),
    )
    async def give_up_host(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        host: HostName,
        data: JSONBody[v1.AbandonHost],
    ) -> v1.AbandonedHost:
        """Turn the work that a lost host of a cluster has begun to unknown, so that operators can decide about it.

        A repeated request changes nothing more.
        """
        del idempotency_key
        number = await state.fleet.cluster.hosts.abandon(host, by=caller.name, why=data.reason)
        return v1.AbandonedHost(name=host, unknown_impacts=number)


def _vm_name(vm: str) -> str:
    """Remove the leading slash, which the framework leaves in the parameter."""
    return vm.removeprefix("/")


def _show_scope(fleet: Fleet, id_: str) -> v1.Scope:
    view = fleet.replica.view(id_)
    return show_scope(fleet, view, fleet.replica.scope(id_))


def _show_vm(state: AppState, caller: Caller, name: str) -> v1.Vm:
    view, vm = find_vm(state.fleet, caller, name)
    scope = state.fleet.replica.scope(view.id)
    return show_vm(scope, scope.vm(vm.name), state.guests.url)
