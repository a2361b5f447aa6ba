"""VM page: its state, what it sees now and the checks of `doctor`, its events and journal; and operations on it."""

from contextlib import suppress
from datetime import datetime
from secrets import token_hex
from typing import Annotated, Literal, NamedTuple

import msgspec
from litestar import Response, get, post
from litestar.params import QueryParameter

from forewarn.api import v1
from forewarn.api.v1.common import Duration
from forewarn.core import operations
from forewarn.core.access import Role
from forewarn.core.change import OUTCOMES
from forewarn.core.duration import format_duration, parse_optional_duration
from forewarn.core.event import EventType, Source
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.schedule import unannounced_reason
from forewarn.core.scope import EventOutcome
from forewarn.core.text import Text, is_guid
from forewarn.core.vm import Priority
from forewarn.fleet.errors import AmbiguousVm, ScopeNotFound, VmNotFound
from forewarn.fleet.journal import journal_query
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.event_page import list_documents
from forewarn.operator.dashboard.pages import (
    AnyRequest,
    changed,
    convert_form,
    empty_page,
    path_segment,
    read_form,
    render_page,
)
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.vm_state import vm_states
from forewarn.operator.errors import JournalEventNotFound
from forewarn.operator.event_creation import EventCreationDep
from forewarn.operator.lookup import check_event, find_vm
from forewarn.operator.parameters import ScopeId, VmName
from forewarn.operator.routes.diagnosis import diagnose_vm
from forewarn.operator.routes.events import schedule_request
from forewarn.operator.state import AppState
from forewarn.operator.views.events import FIRST_ENTRIES, show_event
from forewarn.operator.views.inventory import show_vm
from forewarn.operator.views.journal import show_row

PATH = f"{ROOT}/vms/{{scope_id:str}}/{{name:str}}"

MAX_ENTRIES = 50
"""How many entries of the journal the page has."""

MAX_PAST_EVENTS = 20
"""How many ended events it has."""

MAX_ROWS = 200
"""How many entries of the journal are read to find them."""

MIN_ID = 4
"""The shortest beginning of an event's id that a search takes for one."""

Search = Annotated[str, QueryParameter(name="q", max_length=128)]


class OperateForm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form of an operation on a VM."""

    operation: Literal["restart", "redeploy", "evict", "fail"]
    notice: Duration | None = None
    reason: Text = ""
    now: bool = False
    unannounced: bool = False


class EndedEventRow(NamedTuple):
    """An ended event of a VM, from the journal. The journal may have lost its beginning, and so its type."""

    id: str
    type: str | None
    outcome: EventOutcome
    ended_at: datetime
    by: str
    reason: str


@get(PATH, opt=requires(Role.VIEWER))
async def show_vm_page(
    request: AnyRequest, state: AppState, caller: CallerDep, scope_id: ScopeId, name: VmName
) -> Response[str]:
    """Show a VM. Nothing is recorded, and its scope is not enabled."""
    fleet = state.fleet
    position = await fleet.journal.end()
    view, vm = find_vm(fleet, caller, f"{scope_id}/{name}")
    value, now, context = fleet.replica.scope(view.id), fleet.clock.now(), fleet.scopes.rule_context
    entries = await fleet.journal.query(
        journal_query(fleet.replica, vm=f"{view.id}/{vm.name}", newest_first=True, limit=MAX_ENTRIES)
    )
    shown = show_vm(value, vm, state.guests.url)
    return render_page(
        request,
        "vm.html",
        title=vm.name,
        position=position,
        live=f"scope:{view.id}",
        renews=True,
        vm=shown,
        vm_path=f"{ROOT}/vms/{path_segment(view.id)}/{path_segment(vm.name)}",
        state=vm_states(view, value, fleet.holds.current, now=now, knows_polls=fleet.cluster.hosts.knows_polls)[
            vm.name
        ],
        knows_polls=fleet.cluster.hosts.knows_polls,
        polled_at=view.polled_at.get(vm.name),
        scope_polled_at=fleet.last_seen.of(view),
        events=[show_event(fleet, value, event, now=now) for event in value.events_affecting(vm.name)],
        diagnosis=await diagnose_vm(state, caller, f"{view.id}/{vm.name}"),
        documents=list_documents(state, view.id),
        entries=[show_row(row) for row in entries],
        past_events=await _list_past_events(fleet, f"{view.id}/{vm.name}"),
        needs_consent=context.policy.enforce_notice,
        is_silent=bool(unannounced_reason(value, EventType.REBOOT, context, view.poll_version)),
        can_evict=shown.priority is not Priority.REGULAR,
        notices={type_.value: format_duration(spec.minimum_notice) for type_, spec in EVENT_TYPES.items()},
        effects={type_.value: spec.effect.value for type_, spec in EVENT_TYPES.items()},
        planned_types=[type_.value for type_, spec in EVENT_TYPES.items() if Source.PLATFORM in spec.sources],
        request_key=token_hex(16),
    )


async def _list_past_events(fleet: Fleet, vm: str) -> list[EndedEventRow]:
    """Return the ended events of a VM, the newest first."""
    kinds = (*FIRST_ENTRIES, *OUTCOMES)
    rows = await fleet.journal.query(
        journal_query(fleet.replica, vm=vm, kinds=kinds, newest_first=True, limit=MAX_ROWS)
    )
    types = {row.entry.event: row.entry.facts["type"] for row in rows if "type" in row.entry.facts}
    return [
        EndedEventRow(
            row.entry.event or "",
            types.get(row.entry.event),
            OUTCOMES[row.entry.kind],
            row.entry.at,
            row.entry.by,
            row.entry.why,
        )
        for row in rows
        if row.entry.kind in OUTCOMES
    ][:MAX_PAST_EVENTS]


@post(f"{PATH}/operate", opt=requires(Role.OPERATOR))
async def operate_vm(
    request: AnyRequest, event_creation: EventCreationDep, scope_id: ScopeId, name: VmName
) -> Response[str]:
    """Restart, redeploy or evict a VM, or report that its hardware has failed."""
    form = convert_form(await read_form(request), OperateForm)
    notice = parse_optional_duration(form.notice)
    if form.operation == "fail":
        await event_creation.create_events(
            lambda vms: operations.fail(vms, request=event_creation.request_id, by=event_creation.by, why=form.reason),
            vms=(f"{scope_id}/{name}",),
        )
        return changed()
    operation = {"restart": operations.restart, "redeploy": operations.redeploy, "evict": operations.evict}
    await event_creation.create_events(
        lambda vms: operation[form.operation](
            vms[0], request=event_creation.request_id, by=event_creation.by, notice=notice, why=form.reason
        ),
        vms=(f"{scope_id}/{name}",),
        at_once=form.now,
        unannounced=form.unannounced,
    )
    return changed()


@post(f"{PATH}/schedule", opt=requires(Role.OPERATOR))
async def schedule_vm(
    request: AnyRequest, event_creation: EventCreationDep, scope_id: ScopeId, name: VmName
) -> Response[str]:
    """Schedule planned maintenance of a VM."""
    vm = f"{scope_id}/{name}"
    data = convert_form(await read_form(request) | {"vms": [vm]}, v1.ScheduleEvents)
    response = await event_creation.create_events(
        lambda vms: schedule_request(data, vms, id_=event_creation.request_id, by=event_creation.by),
        vms=(vm,),
        at_once=data.now,
        unannounced=data.unannounced,
    )
    return changed(f"{ROOT}/events/{response.created[0].id}")


@get(f"{ROOT}/search", opt=requires(Role.VIEWER))
async def search_all(state: AppState, caller: CallerDep, search: Search = "") -> Response[str]:
    """Lead to the event or VM with exactly this id or name, else to the fleet with this filter."""
    text = search.strip()
    if is_guid(text):
        with suppress(JournalEventNotFound):
            await check_event(state.fleet, caller, text)
            return empty_page(303, Location=f"{ROOT}/events/{path_segment(text)}")
    prefix = text.upper()
    views = state.fleet.replica.views_with_events() if len(text) >= MIN_ID else []
    visible = (view.scope for view in views if view.scope is not None and caller.can_see(view.id))
    matches = [event.id for scope in visible for event in scope.events if event.id.startswith(prefix)]
    if len(matches) == 1:
        return empty_page(303, Location=f"{ROOT}/events/{matches[0]}")
    in_scope, slash, _ = text.rpartition("/")
    if text and (not slash or caller.can_see(in_scope)):
        try:
            view, vm = find_vm(state.fleet, caller, text)
        except (VmNotFound, ScopeNotFound, AmbiguousVm):
            pass
        else:
            return empty_page(303, Location=f"{ROOT}/vms/{path_segment(view.id)}/{path_segment(vm.name)}")
    return empty_page(303, Location=f"{ROOT}/fleet?q={path_segment(text)}")
