"""Event routes: list, schedule, show, cancel, approve, retry and resolve."""

from typing import Annotated, Literal

from litestar import Controller, get, post
from litestar.params import JSONBody, QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.duration import parse_optional_duration
from forewarn.core.errors import EventVmNotFound, InvalidTransition, KeyConflict, ScopeTooLarge, ScopeVmNotFound
from forewarn.core.event import EventType, Source
from forewarn.core.schedule import ScheduleRequest
from forewarn.fleet.errors import EventNotFound, VmNotFound
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.errors import JournalEventNotFound
from forewarn.operator.event_creation import EventCreationDep
from forewarn.operator.lookup import check_event
from forewarn.operator.parameters import (
    VM_ERRORS,
    After,
    EventId,
    IdempotencyKeyDep,
    Limit,
    OnlyScope,
    OnlyVm,
    change_error_specs,
    error_specs,
)
from forewarn.operator.routes.operations import CREATION_ERRORS
from forewarn.operator.state import AppState
from forewarn.operator.strict_request import to_utc
from forewarn.operator.views.events import EventFilter, show_event_detail, show_events

OnlyHost = Annotated[
    str | None, QueryParameter(name="host", min_length=1, max_length=128, description="Only events of this host.")
]
OnlyType = Annotated[EventType | None, QueryParameter(name="type", description="Only events of this type.")]
OnlyStatus = Annotated[
    Literal["Scheduled", "Started"] | None, QueryParameter(name="status", description="Only events with this status.")
]
OnlySource = Annotated[Source | None, QueryParameter(name="source", description="Only events of this source.")]

CHANGE_ERRORS = change_error_specs(
    JournalEventNotFound,
    EventNotFound,
    VmNotFound,
    ScopeVmNotFound,
    EventVmNotFound,
    InvalidTransition,
    ScopeTooLarge,
    KeyConflict,
)


class EventController(Controller):
    """Events, open and ended."""

    path = "/v1/events"
    tags = ("events",)

    @get(
        operation_id="listEvents",
        summary="List open events",
        opt=requires(Role.VIEWER),
        responses=error_specs(*VM_ERRORS),
    )
    async def list_events(
        self,
        state: AppState,
        caller: CallerDep,
        only_scope: OnlyScope = None,
        only_vm: OnlyVm = None,
        only_host: OnlyHost = None,
        only_type: OnlyType = None,
        only_status: OnlyStatus = None,
        only_source: OnlySource = None,
        after: After = "",
        limit: Limit = v1.PAGE,
    ) -> v1.EventPage:
        """List open events that match all filters, by scope and in the order of their creation."""
        wanted = EventFilter(host=only_host, type=only_type, status=only_status, source=only_source)
        return await show_events(
            state.fleet, state.scope_ids, wanted, scope=only_scope, vm=only_vm, after=after, limit=limit, caller=caller
        )

    @post(
        operation_id="scheduleEvents", summary="Schedule events", opt=requires(Role.OPERATOR), responses=CREATION_ERRORS
    )
    async def schedule(
        self, event_creation: EventCreationDep, data: JSONBody[v1.ScheduleEvents]
    ) -> v1.ScheduleResponse:
        """Schedule events for VMs, or for all VMs of a host, of a scope, or of an update domain of a scope.

        One event is created per scope, update domain and host. All scopes are checked before any is changed.
        """
        return await event_creation.create_events(
            lambda vms: schedule_request(data, vms, id_=event_creation.request_id, by=event_creation.by),
            vms=data.vms,
            host=data.host,
            scope=data.scope,
            update_domain=data.update_domain,
            at_once=data.now,
            unannounced=data.unannounced,
        )

    @get(
        "/{event:str}",
        operation_id="showEvent",
        summary="Show an event",
        opt=requires(Role.VIEWER),
        responses=error_specs(JournalEventNotFound, "store-unavailable"),
    )
    async def show(self, state: AppState, caller: CallerDep, event: EventId) -> v1.EventDetail:
        """Show an event, open or ended: approvals, the impact on each VM, why it waits, and its journal entries."""
        await check_event(state.fleet, caller, event)
        return await show_event_detail(state.fleet, event)

    @post(
        "/{event:str}/cancel",
        operation_id="cancelEvent",
        summary="Cancel an event",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def cancel(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        event: EventId,
        data: JSONBody[v1.CancelEvent],
    ) -> v1.EventDetail:
        """Cancel a Scheduled event. A started event cannot be canceled."""
        await check_event(state.fleet, caller, event)
        await state.fleet.events.cancel(event, by=caller.name, why=data.reason, idempotency_key=idempotency_key)
        return await show_event_detail(state.fleet, event)

    @post(
        "/{event:str}/approve",
        operation_id="approveEvent",
        summary="Approve an event on behalf of a VM",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def approve(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        event: EventId,
        data: JSONBody[v1.ApproveEvent],
    ) -> v1.EventDetail:
        """Approve an event on behalf of a VM of its scope. The journal records the operator."""
        await check_event(state.fleet, caller, event)
        await state.fleet.events.approve_for(
            event, data.vm, by=caller.name, why=data.reason, idempotency_key=idempotency_key
        )
        return await show_event_detail(state.fleet, event)

    @post(
        "/{event:str}/retry",
        operation_id="retryImpact",
        summary="Retry failed or unknown work",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def retry(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        event: EventId,
        data: JSONBody[v1.RetryImpact],
    ) -> v1.EventDetail:
        """Retry failed or unknown work, on one VM or on all VMs where it failed or is unknown."""
        await check_event(state.fleet, caller, event)
        await state.fleet.events.retry(
            event, vm=data.vm, by=caller.name, why=data.reason, idempotency_key=idempotency_key
        )
        return await show_event_detail(state.fleet, event)

    @post(
        "/{event:str}/resolve",
        operation_id="resolveImpact",
        summary="Resolve failed or unknown work",
        status_code=200,
        opt=requires(Role.OPERATOR),
        responses=CHANGE_ERRORS,
    )
    async def resolve(
        self,
        state: AppState,
        caller: CallerDep,
        idempotency_key: IdempotencyKeyDep,
        event: EventId,
        data: JSONBody[v1.ResolveImpact],
    ) -> v1.EventDetail:
        """Resolve failed or unknown work as done or given up, on one VM or on all VMs where it failed or is unknown."""
        await check_event(state.fleet, caller, event)
        await state.fleet.events.resolve(
            event, by=caller.name, why=data.reason, done=data.done, vm=data.vm, idempotency_key=idempotency_key
        )
        return await show_event_detail(state.fleet, event)


def schedule_request(data: v1.ScheduleEvents, vms: tuple[str, ...], *, id_: str, by: str) -> ScheduleRequest:
    return ScheduleRequest(
        id=id_,
        type=data.type,
        vms=vms,
        by=by,
        source=data.source,
        not_before=None if data.not_before is None else to_utc(data.not_before, "not_before"),
        notice=parse_optional_duration(data.notice),
        duration=parse_optional_duration(data.duration),
        description=data.description,
        why=data.reason,
        failure=data.failure,
    )
