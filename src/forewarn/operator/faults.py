"""The paths of faults: what the emulator's endpoint does wrong on purpose."""

from collections.abc import Iterable
from typing import Annotated

from litestar import Controller, delete, get, post
from litestar.params import JSONBody, PathParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.duration import parse_duration
from forewarn.core.fault import Fault, format_signed_duration, parse_signed_duration
from forewarn.operator.access import AskedBy, Caller, needs
from forewarn.operator.backstage import Backstage, FaultSide
from forewarn.operator.errors import NotInProduction
from forewarn.operator.finding import find_vm
from forewarn.operator.parameters import AskedOnce, Why, change_refusals, refusals

FaultId = Annotated[str, PathParameter(min_length=1, max_length=16, description="The fault's id.")]

REAL = "The service is no emulator"


class FaultController(Controller):
    """Faults. They are kept in memory and end with the service; the journal tells of them."""

    path = "/v1/faults"
    tags = ("faults",)

    @get(
        operation_id="listFaults",
        summary="List faults",
        opt=needs(Role.VIEWER),
        responses=refusals(_409=f"{REAL}."),
    )
    async def list_faults(self, state: Backstage, caller: AskedBy) -> v1.Faults:
        """List the faults that are set, in the order in which they were."""
        return _shown(fault for fault in _faults(state).list() if _sees(caller, fault))

    @post(
        operation_id="setFault",
        summary="Set a fault",
        opt=needs(Role.OPERATOR),
        responses=change_refusals(
            _404="There is no such VM.",
            _409=f"{REAL}, the VM's name is ambiguous, or the key was used for another request.",
        ),
    )
    async def set_fault(
        self, state: Backstage, caller: AskedBy, once: AskedOnce, data: JSONBody[v1.SetFault]
    ) -> v1.Fault:
        """Have requests of a VM, or of all VMs, answered wrongly from now on.

        Only requests to `/metadata/scheduledevents` that would be answered are hit. Of faults that do the same thing
        to a request, the one that was set first hits it, and the next one when that is over.
        """
        faults = _faults(state)
        if data.vm is None:
            caller.check_unlimited()
        fault = await faults.set(
            data.kind,
            vm=None if data.vm is None else _full_name(state, caller, data.vm),
            lasting=None if data.lasting is None else parse_duration(data.lasting),
            times=data.times,
            amount=None if data.amount is None else parse_signed_duration(data.amount),
            by=caller.name,
            why=data.why,
            once=once,
        )
        return show_fault(fault)

    @delete(
        "/{fault_id:str}",
        operation_id="clearFault",
        summary="Clear a fault",
        opt=needs(Role.OPERATOR),
        responses=change_refusals(
            _404="There is no such fault.",
            _409=f"{REAL}, or the key was used for another request.",
        ),
    )
    async def clear_fault(
        self, state: Backstage, caller: AskedBy, once: AskedOnce, fault_id: FaultId, why: Why = ""
    ) -> None:
        """End a fault now. Requests that it has made wait are answered."""
        await _faults(state).clear(
            fault_id, may=lambda fault: _check(caller, fault), by=caller.name, why=why, once=once
        )

    @delete(
        operation_id="clearFaults",
        summary="Clear all faults",
        status_code=200,
        opt=needs(Role.OPERATOR),
        responses=change_refusals(_409=f"{REAL}, or the key was used for another request."),
    )
    async def clear_faults(self, state: Backstage, caller: AskedBy, once: AskedOnce, why: Why = "") -> v1.Faults:
        """End all faults now, or all of the VMs that the token is for; the answer has those that were ended."""
        cleared = await _faults(state).clear_all(
            lambda fault: not caller.scopes or (fault.vm is not None and _sees(caller, fault)),
            by=caller.name,
            why=why,
            once=once,
        )
        return _shown(cleared)


def show_fault(fault: Fault) -> v1.Fault:
    """Show a fault."""
    return v1.Fault(
        id=fault.id,
        kind=fault.kind,
        vm=fault.vm,
        amount=None if fault.amount is None else format_signed_duration(fault.amount),
        until=fault.until,
        times=fault.times,
        hits=fault.hits,
        by=fault.by,
        set_at=fault.set_at,
    )


def _shown(faults: Iterable[Fault]) -> v1.Faults:
    return v1.Faults(faults=tuple(map(show_fault, faults)))


def _faults(state: Backstage) -> FaultSide:
    faults = state.guests.faults
    if faults is None:
        raise NotInProduction
    return faults


def _full_name(state: Backstage, caller: Caller, vm: str) -> str:
    view, found = find_vm(state.fleet, caller, vm)
    return f"{view.id}/{found.name}"


def _sees(caller: Caller, fault: Fault) -> bool:
    return fault.vm is None or caller.sees(fault.vm.rpartition("/")[0])


def _check(caller: Caller, fault: Fault) -> None:
    if fault.vm is None:
        caller.check_unlimited()
    else:
        caller.check(fault.vm.rpartition("/")[0])
