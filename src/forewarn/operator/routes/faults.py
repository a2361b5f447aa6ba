"""Fault routes: list, set and clear the faults of the emulator's endpoint."""

from collections.abc import Iterable

from litestar import Controller, delete, get, post
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.duration import parse_optional_duration
from forewarn.core.errors import KeyConflict
from forewarn.core.fault import Fault, format_signed_duration, parse_signed_duration
from forewarn.core.idempotency import IdempotencyKey
from forewarn.fleet.errors import FaultNotFound
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.errors import FaultNotAllowed
from forewarn.operator.lookup import find_vm
from forewarn.operator.parameters import VM_ERRORS, FaultId, IdempotencyKeyDep, Reason, change_error_specs, error_specs
from forewarn.operator.state import AppState, FaultControl


class FaultController(Controller):
    """Faults. They are kept in memory and end with the service; the journal records them."""

    path = "/v1/faults"
    tags = ("faults",)

    @get(
        operation_id="listFaults",
        summary="List faults",
        opt=requires(Role.VIEWER),
        responses=error_specs(FaultNotAllowed),
    )
    async def list_faults(self, state: AppState, caller: CallerDep) -> v1.Faults:
        """List the faults in the order in which they were set."""
        return _show_faults(visible_faults(state, caller))

    @post(
        operation_id="setFault",
        summary="Set a fault",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(*VM_ERRORS, FaultNotAllowed, KeyConflict),
    )
    async def set_fault(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, data: JSONBody[v1.SetFault]
    ) -> v1.Fault:
        """Set a fault: from now on, requests of a VM or of all VMs get wrong responses.

        Faults affect only valid requests to `/metadata/scheduledevents`. Of several faults of the same effect, the
        oldest one applies, and after its end the next one.
        """
        fault = await set_fault(state, data, caller=caller, idempotency_key=idempotency_key)
        return show_fault(fault)

    @delete(
        "/{fault_id:str}",
        operation_id="clearFault",
        summary="Clear a fault",
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(FaultNotFound, FaultNotAllowed, KeyConflict),
    )
    async def clear_fault(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        fault_id: FaultId,
        reason: Reason = "",
    ) -> None:
        """Clear a fault. Requests that it delayed are then answered."""
        await clear_fault(state, fault_id, caller=caller, reason=reason, idempotency_key=idempotency_key)

    @delete(
        operation_id="clearFaults",
        summary="Clear all faults",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=change_error_specs(FaultNotAllowed, KeyConflict),
    )
    async def clear_faults(
        self, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, reason: Reason = ""
    ) -> v1.Faults:
        """Clear all faults, or those of the VMs that the token may see. The response has the cleared faults."""
        cleared = await _fault_control(state).clear_all(
            lambda fault: not caller.scopes or (fault.vm is not None and _can_see(caller, fault)),
            by=caller.name,
            why=reason,
            idempotency_key=idempotency_key,
        )
        return _show_faults(cleared)


def visible_faults(state: AppState, caller: Caller) -> list[Fault]:
    """Return the faults that the caller may see, in the order in which they were set."""
    return [fault for fault in _fault_control(state).list() if _can_see(caller, fault)]


async def set_fault(
    state: AppState, request: v1.SetFault, *, caller: Caller, idempotency_key: IdempotencyKey | None
) -> Fault:
    """Set a fault for a VM that the caller may see, or for all VMs."""
    faults = _fault_control(state)
    if request.vm is None:
        caller.check_unlimited()
    return await faults.set(
        request.kind,
        vm=None if request.vm is None else _full_name(state, caller, request.vm),
        lasting=parse_optional_duration(request.duration),
        times=request.times,
        amount=None if request.amount is None else parse_signed_duration(request.amount),
        by=caller.name,
        why=request.reason,
        idempotency_key=idempotency_key,
    )


async def clear_fault(
    state: AppState, fault_id: str, *, caller: Caller, reason: str, idempotency_key: IdempotencyKey | None
) -> None:
    """Clear a fault that the caller may clear."""
    await _fault_control(state).clear(
        fault_id,
        check=lambda fault: _check_visible(caller, fault),
        by=caller.name,
        why=reason,
        idempotency_key=idempotency_key,
    )


def show_fault(fault: Fault) -> v1.Fault:
    """Return a fault as a response type."""
    return v1.Fault(
        id=fault.id,
        kind=fault.kind,
        vm=fault.vm,
        amount=None if fault.amount is None else format_signed_duration(fault.amount),
        until=fault.until,
        times=fault.times,
        hits=fault.hits,
        created_by=fault.by,
        created_at=fault.set_at,
    )


def _show_faults(faults: Iterable[Fault]) -> v1.Faults:
    return v1.Faults(faults=tuple(map(show_fault, faults)))


def _fault_control(state: AppState) -> FaultControl:
    faults = state.guests.faults
    if faults is None:
        raise FaultNotAllowed
    return faults


def _full_name(state: AppState, caller: Caller, vm: str) -> str:
    view, found = find_vm(state.fleet, caller, vm)
    return f"{view.id}/{found.name}"


def _can_see(caller: Caller, fault: Fault) -> bool:
    return fault.vm is None or caller.can_see(fault.vm.rpartition("/")[0])


def _check_visible(caller: Caller, fault: Fault) -> None:
    """Report a fault of another scope as not found; refuse one of all VMs, which every caller can see."""
    if not _can_see(caller, fault):
        raise FaultNotFound(fault.id)
    if fault.vm is None:
        caller.check_unlimited()
