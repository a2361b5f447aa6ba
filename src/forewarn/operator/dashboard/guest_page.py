"""Guest page: what one VM exchanges with its endpoint, live, as the author of its handler wants to see it.

The requests of a VM are recorded only while this page of it is open.
"""

import re
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple

import msgspec
from litestar import Response, get
from litestar.params import QueryParameter

from forewarn.core.access import Role
from forewarn.core.fault import Fault
from forewarn.core.vm import Vm
from forewarn.operator.auth import CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, empty_page, path_segment, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.lookup import find_vm
from forewarn.operator.parameters import ScopeId, VmName
from forewarn.operator.state import AppState
from forewarn.wire.document_parser import InvalidDocument, parse_document
from forewarn.wire.exchange import Exchange, ExchangeList

PATH = f"{ROOT}/vms/{{scope_id:str}}/{{name:str}}/guest"

MAX_VERSION = 128
"""How long the version of the exchanges and faults is at most."""

UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")

Seen = Annotated[str, QueryParameter(name="seen", max_length=MAX_VERSION)]
Paused = Annotated[bool, QueryParameter(name="paused")]


class ExchangeRow(NamedTuple):
    """An exchange as the page shows it."""

    exchange: Exchange
    mark: Literal["done", "approved", "failed", "silent"]
    """The colour and mark of its status."""
    status: str
    summary: str
    """What the response says; the page shows the approved events itself."""
    request: str
    response: str
    document: str
    """The body of the response, formatted for reading."""


class GuestView(NamedTuple):
    """What the page shows of a VM."""

    name: str
    path: str
    """The path of the VM's page."""
    url: str | None
    """The URL of its endpoint."""
    faults: list[Fault]
    """The injected faults that can affect it."""
    is_recorded: bool
    keeps_bytes: bool
    version: str
    """It differs if anything else does."""
    rows: list[ExchangeRow]


@get(PATH, opt=requires(Role.VIEWER))
async def show_guest_page(
    request: AnyRequest, state: AppState, caller: CallerDep, scope_id: ScopeId, name: VmName
) -> Response[str]:
    """Show the exchanges of a VM since somebody looks, and record them from now on. Nothing is saved."""
    view, vm = find_vm(state.fleet, caller, f"{scope_id}/{name}")
    return render_page(
        request,
        "guest.html",
        title=f"What {vm.name} sees",
        guest=_read_guest(state, view.id, vm),
    )


@get(f"{PATH}/exchanges", opt=requires(Role.VIEWER))
async def show_exchanges(
    request: AnyRequest,
    state: AppState,
    caller: CallerDep,
    scope_id: ScopeId,
    name: VmName,
    seen: Seen = "",
    paused: Paused = False,
) -> Response[str]:
    """Show the exchanges of a VM again, unless the page has them or its reader has paused it: then only record."""
    view, vm = find_vm(state.fleet, caller, f"{scope_id}/{name}")
    guest = _read_guest(state, view.id, vm)
    if paused or guest.version == seen:
        return empty_page(204)
    return render_page(request, "guest-exchanges.html", guest=guest)


def _read_guest(state: AppState, scope: str, vm: Vm) -> GuestView:
    """Return what the page shows of a VM, and watch the VM from now on."""
    full_name, recorder = f"{scope}/{vm.name}", state.guests.recorder
    recorded = ExchangeList(0, ()) if recorder is None else recorder.watch(full_name)
    active = state.guests.faults.list() if state.guests.faults is not None else ()
    faults = [fault for fault in active if fault.vm in (None, full_name)]
    return GuestView(
        name=vm.name,
        path=f"{ROOT}/vms/{path_segment(scope)}/{path_segment(vm.name)}",
        url=state.guests.url(scope, vm),
        faults=faults,
        is_recorded=recorder is not None,
        keeps_bytes=recorder is not None and recorder.keeps_bytes,
        version=".".join((str(recorded.version), *(fault.id for fault in faults)))[:MAX_VERSION],
        rows=[show_exchange(each) for each in reversed(recorded.exchanges)],
    )


def show_exchange(exchange: Exchange) -> ExchangeRow:
    """Return an exchange as the page shows it."""
    status = exchange.status
    document = _formatted(exchange.answer)
    row = ExchangeRow(
        exchange,
        "done",
        str(status),
        "",
        show_bytes(exchange.raw_request or exchange.body),
        show_bytes(exchange.raw_answer) if exchange.raw_answer else document,
        document if exchange.raw_answer and document else "",
    )
    if status is None:
        return row._replace(mark="silent", status="No response", summary="The connection waits, or was reset.")
    if status >= HTTPStatus.BAD_REQUEST:
        return row._replace(mark="failed", summary=show_bytes(exchange.answer[:200]))
    if exchange.method == "POST":
        return row._replace(mark="approved", status="200 Approved")
    return row._replace(summary=_summarize_document(exchange))


def _summarize_document(exchange: Exchange) -> str:
    """Return what is in a document, or why it is none."""
    if exchange.status == 304:
        return "not modified: the VM has the current document"
    if "/scheduledevents" not in exchange.target.lower():
        return f"{len(exchange.answer):,} bytes"
    try:
        document = parse_document(exchange.answer)
    except InvalidDocument as error:
        return f"no valid document: {error}"
    if document is None:
        return "an empty body"
    events = [f"{event.type} {event.status.lower()} for {', '.join(event.resources)}" for event in document.events]
    return f"incarnation {document.incarnation}: {'; '.join(events) or 'no events'}"


def show_bytes(data: bytes) -> str:
    """Return bytes as text: line ends as such, other bytes without a character as `\\xNN`."""
    text = data.replace(b"\r\n", b"\n").decode("latin-1")
    return UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _formatted(body: bytes) -> str:
    try:
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return show_bytes(body)
