"""Operation routes: restart, redeploy, delete, evict, fail and predict-failure."""

from litestar import Controller, post
from litestar.params import JSONBody

from forewarn.api import v1
from forewarn.core import operations
from forewarn.core.access import Role
from forewarn.core.duration import parse_duration, parse_optional_duration
from forewarn.core.errors import (
    EvictionNotAllowed,
    HostInUse,
    KeyConflict,
    NotAnnounced,
    NoticeTooShort,
    ResourceInUse,
    ScopeTooLarge,
    SourceNotAllowed,
    TooManyOperations,
    TypeNotReleased,
)
from forewarn.fleet.errors import HostNotFound, PartialSchedule
from forewarn.operator.auth import requires
from forewarn.operator.errors import HostNotAllowed
from forewarn.operator.event_creation import EventCreationDep
from forewarn.operator.parameters import VM_ERRORS, change_error_specs

CREATION_ERRORS = change_error_specs(
    *VM_ERRORS,
    HostNotFound,
    HostNotAllowed,
    NoticeTooShort,
    NotAnnounced,
    EvictionNotAllowed,
    TypeNotReleased,
    SourceNotAllowed,
    TooManyOperations,
    ScopeTooLarge,
    ResourceInUse,
    HostInUse,
    PartialSchedule,
    KeyConflict,
)


class OperationController(Controller):
    """Named operations. Each creates events; repeating the request with the same key creates none."""

    path = "/v1/operations"
    tags = ("operations",)
    opt = requires(Role.OPERATOR)

    @post("/restart", operation_id="restartVm", summary="Restart a VM", responses=CREATION_ERRORS)
    async def restart(self, event_creation: EventCreationDep, data: JSONBody[v1.Restart]) -> v1.ScheduleResponse:
        """Restart a VM for its owner: a Reboot with source User."""
        notice = parse_optional_duration(data.notice)
        return await event_creation.create_events(
            lambda vms: operations.restart(
                vms[0], request=event_creation.request_id, by=event_creation.by, notice=notice, why=data.reason
            ),
            vms=(data.vm,),
            at_once=data.now,
            unannounced=data.unannounced,
        )

    @post("/redeploy", operation_id="redeployVm", summary="Redeploy a VM", responses=CREATION_ERRORS)
    async def redeploy(self, event_creation: EventCreationDep, data: JSONBody[v1.Restart]) -> v1.ScheduleResponse:
        """Move a VM to another host for its owner: a Redeploy with source User."""
        notice = parse_optional_duration(data.notice)
        return await event_creation.create_events(
            lambda vms: operations.redeploy(
                vms[0], request=event_creation.request_id, by=event_creation.by, notice=notice, why=data.reason
            ),
            vms=(data.vm,),
            at_once=data.now,
            unannounced=data.unannounced,
        )

    @post("/delete", operation_id="deleteVm", summary="Delete a VM", status_code=200, responses=CREATION_ERRORS)
    async def delete(self, event_creation: EventCreationDep, data: JSONBody[v1.Operate]) -> v1.ScheduleResponse:
        """Delete a VM for its owner. With a terminate notice: a Terminate with source User; without: at once."""
        return await event_creation.delete_vm(data)

    @post("/evict", operation_id="evictVm", summary="Evict a low-priority VM", responses=CREATION_ERRORS)
    async def evict(self, event_creation: EventCreationDep, data: JSONBody[v1.Evict]) -> v1.ScheduleResponse:
        """Evict a low-priority VM, as the platform does when it needs the capacity: a Preempt."""
        notice = parse_optional_duration(data.notice)
        return await event_creation.create_events(
            lambda vms: operations.evict(
                vms[0], request=event_creation.request_id, by=event_creation.by, notice=notice, why=data.reason
            ),
            vms=(data.vm,),
            at_once=data.now,
            unannounced=data.unannounced,
        )

    @post("/fail", operation_id="failHardware", summary="Report a hardware failure", responses=CREATION_ERRORS)
    async def fail(self, event_creation: EventCreationDep, data: JSONBody[v1.Fail]) -> v1.ScheduleResponse:
        """Report that the hardware of VMs or of a host has failed: the events appear as Started."""
        return await event_creation.create_events(
            lambda vms: operations.fail(
                vms, request=event_creation.request_id, by=event_creation.by, kind=data.type, why=data.reason
            ),
            vms=data.vms,
            host=data.host,
        )

    @post(
        "/predict-failure",
        operation_id="predictFailure",
        summary="Announce a predicted hardware failure",
        responses=CREATION_ERRORS,
    )
    async def predict_failure(
        self, event_creation: EventCreationDep, data: JSONBody[v1.PredictFailure]
    ) -> v1.ScheduleResponse:
        """Report that the hardware of VMs or of a host is expected to fail: a Redeploy, days ahead."""
        ahead = parse_duration(data.notice)
        return await event_creation.create_events(
            lambda vms: operations.predict_failure(
                vms, request=event_creation.request_id, by=event_creation.by, ahead=ahead, why=data.reason
            ),
            vms=data.vms,
            host=data.host,
            unannounced=data.unannounced,
        )
