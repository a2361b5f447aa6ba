"""Event page: what an event waits for, its approvals, impacts, journal and documents; and the actions on it."""

from secrets import token_hex
from typing import Annotated, NamedTuple

import msgspec
from litestar import MediaType, Response, get, post
from litestar.exceptions import NotFoundException
from litestar.params import PathParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, changed, convert_form, read_form, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.lookup import check_event
from forewarn.operator.parameters import EventId, IdempotencyKeyDep, ScopeId
from forewarn.operator.state import AppState
from forewarn.operator.views.events import FIRST_ENTRIES, show_event_detail
from forewarn.wire.document import encode_document
from forewarn.wire.preview import scope_after_poll
from forewarn.wire.protocol import VERSIONS

PATH = f"{ROOT}/events/{{event:str}}"

MAX_VMS = 200
"""How many VMs of an event the page lists."""

IMPACT_STATES = {
    EntryKind.IMPACT_BEGUN: ImpactState.BEGUN,
    EntryKind.IMPACT_DONE: ImpactState.DONE,
    EntryKind.IMPACT_FAILED: ImpactState.FAILED,
    EntryKind.IMPACT_UNKNOWN: ImpactState.UNKNOWN,
    EntryKind.IMPACT_GIVEN_UP: ImpactState.GIVEN_UP,
}
"""The state of a VM's work after an entry of the journal."""

Version = Annotated[str, PathParameter(max_length=32)]


class VersionDocument(NamedTuple):
    """The document that a VM of the event's scope gets with an api-version, formatted for reading."""

    version: str
    text: str
    size: int


class VmRow(NamedTuple):
    """A VM of the event: whether it has approved, and the state of its impact."""

    name: str
    approval: v1.Approval | None
    impact: v1.Impact | None


@get(PATH, opt=requires(Role.VIEWER))
async def show_event_page(request: AnyRequest, state: AppState, caller: CallerDep, event: EventId) -> Response[str]:
    """Show an event, open or ended."""
    position = await state.fleet.journal.end()
    await check_event(state.fleet, caller, event)
    detail = await show_event_detail(state.fleet, event)
    shown = detail.event
    return render_page(
        request,
        "event.html",
        title=f"{'Event' if detail.type is None else detail.type.value} of {detail.scope}",
        position=position,
        live=f"scope:{detail.scope}",
        detail=detail,
        event=shown,
        rows=_vm_rows(detail)[:MAX_VMS],
        first=next((entry for entry in detail.journal[:1] if entry.action in FIRST_ENTRIES), None),
        effect=None if detail.type is None else EVENT_TYPES[detail.type].effect.value,
        documents=list_documents(state, detail.scope) if shown is not None else [],
        stuck_vms=shown.stuck_vms if shown is not None else [],
        scope_vms=_scope_vms(state, detail.scope) if shown is not None and shown.status == "Scheduled" else [],
        failed_state=ImpactState.FAILED,
        request_key=token_hex(16),
    )


def list_documents(state: AppState, scope_id: str) -> list[VersionDocument]:
    """Return what a VM of a scope gets with each api-version if it polls now, newest first. Nothing is recorded."""
    scope = scope_after_poll(state.fleet.replica.scope(scope_id), now=state.fleet.clock.now())
    return [
        VersionDocument(version, msgspec.json.format(content, indent=2).decode(), len(content))
        for version in VERSIONS[::-1]
        if (content := encode_document(scope, version))
    ]


@get(f"{ROOT}/documents/{{scope_id:str}}/{{version:str}}", opt=requires(Role.VIEWER))
async def show_document(state: AppState, caller: CallerDep, scope_id: ScopeId, version: Version) -> Response[bytes]:
    """Return exactly the bytes of a scope's document. Nothing is recorded."""
    caller.check_scope(scope_id)
    if version not in VERSIONS:
        raise NotFoundException
    scope = scope_after_poll(state.fleet.replica.scope(scope_id), now=state.fleet.clock.now())
    return Response(encode_document(scope, version), media_type=MediaType.JSON)


def _vm_rows(detail: v1.EventDetail) -> list[VmRow]:
    if detail.event is None:
        return _past_rows(detail)
    approvals = {approval.vm: approval for approval in detail.event.approvals}
    impacts = {impact.vm: impact for impact in detail.event.impacts}
    others = [name for name in approvals if name not in detail.vms]
    return [VmRow(name, approvals.get(name), impacts.get(name)) for name in (*detail.vms, *others)]


def _past_rows(detail: v1.EventDetail) -> list[VmRow]:
    """Return the VMs of an ended event, with their work as far as its journal has it."""
    impacts: dict[str, v1.Impact] = {}
    for entry in detail.journal:
        for name in entry.vms:
            if (state := IMPACT_STATES.get(entry.action)) is not None:
                before = impacts.get(name)
                attempt = int(entry.facts.get("attempt", before.attempt if before is not None else 1))
                reason = "" if state in (ImpactState.BEGUN, ImpactState.DONE) else entry.reason
                impacts[name] = v1.Impact(
                    vm=name, state=state, attempt=attempt, begun_at=None, retry_at=None, reason=reason
                )
    return [VmRow(name, None, impacts.get(name)) for name in detail.vms]


def _scope_vms(state: AppState, scope_id: str) -> list[str]:
    return sorted(vm.name for vm in state.fleet.replica.scope(scope_id).roster)


@post(f"{PATH}/approve", opt=requires(Role.OPERATOR))
async def approve_event(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, event: EventId
) -> Response[str]:
    """Approve an event on behalf of a VM."""
    form = convert_form(await read_form(request), v1.ApproveEvent)
    await check_event(state.fleet, caller, event)
    await state.fleet.events.approve_for(
        event, form.vm, by=caller.name, why=form.reason, idempotency_key=idempotency_key
    )
    return changed()


@post(f"{PATH}/cancel", opt=requires(Role.OPERATOR))
async def cancel_event(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, event: EventId
) -> Response[str]:
    """Cancel a Scheduled event."""
    form = convert_form(await read_form(request), v1.CancelEvent)
    await check_event(state.fleet, caller, event)
    await state.fleet.events.cancel(event, by=caller.name, why=form.reason, idempotency_key=idempotency_key)
    return changed()


@post(f"{PATH}/retry", opt=requires(Role.OPERATOR))
async def retry_impact(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, event: EventId
) -> Response[str]:
    """Retry failed or unknown work."""
    form = convert_form(await read_form(request), v1.RetryImpact)
    await check_event(state.fleet, caller, event)
    await state.fleet.events.retry(event, vm=form.vm, by=caller.name, why=form.reason, idempotency_key=idempotency_key)
    return changed()


@post(f"{PATH}/resolve", opt=requires(Role.OPERATOR))
async def resolve_impact(
    request: AnyRequest, state: AppState, caller: CallerDep, idempotency_key: IdempotencyKeyDep, event: EventId
) -> Response[str]:
    """Resolve failed or unknown work as done or given up."""
    form = convert_form(await read_form(request), v1.ResolveImpact)
    await check_event(state.fleet, caller, event)
    await state.fleet.events.resolve(
        event, by=caller.name, why=form.reason, done=form.done, vm=form.vm, idempotency_key=idempotency_key
    )
    return changed()
