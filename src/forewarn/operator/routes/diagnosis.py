"""Diagnosis route: checks everything that can prevent a VM from seeing its events."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.duration import format_duration
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.fault import Fault, FaultKind
from forewarn.core.policy import AnnouncePolicy
from forewarn.core.scope import Scope
from forewarn.core.text import count_text
from forewarn.core.vm import Vm
from forewarn.fleet.errors import AmbiguousVm, ScopeNotFound, VmNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.error_responses import HIDDEN_VM
from forewarn.operator.lookup import find_vm
from forewarn.operator.parameters import error_specs
from forewarn.operator.state import AppState, GuestEndpoints
from forewarn.wire.document_parser import Document, InvalidDocument, parse_document
from forewarn.wire.preview import ResponsePreview
from forewarn.wire.protocol import PREVIEW_VERSION

ENDPOINT = "169.254.169.254"
MAX_SIMILAR = 300
"""How many names are compared with an unknown one."""

MAX_EVENTS = 5
"""How many events or faults a check lists."""

MAX_BODY = 200
"""How many characters of an unexpected body a check shows."""

HARMLESS_FAULTS = frozenset({FaultKind.SLOW, FaultKind.LATE_FIRST_ANSWER, FaultKind.WRONG_DATE})
"""Faults that leave the response itself as it is."""

WhichVm = Annotated[
    str, QueryParameter(name="vm", min_length=1, max_length=257, description="`scope/name`, or the bare name.")
]


@get(
    "/v1/diagnosis",
    operation_id="diagnoseVm",
    summary="Diagnose why a VM does not see its events",
    tags=("inventory",),
    opt=requires(Role.VIEWER),
    responses=error_specs(),
)
async def diagnose(state: AppState, caller: CallerDep, only_vm: WhichVm) -> v1.Diagnosis:
    """Check everything that can prevent a VM from seeing its events. An unknown VM is a finding, not an error."""
    return await diagnose_vm(state, caller, only_vm)


async def diagnose_vm(state: AppState, caller: Caller, name: str) -> v1.Diagnosis:
    """Return the checks of a VM."""
    try:
        view, vm = find_vm(state.fleet, caller, name)
    except (VmNotFound, ScopeNotFound, AmbiguousVm) as unknown:
        check = await _check_unknown(state.fleet, caller, name, unknown)
        return v1.Diagnosis(vm=name, guest_url=None, checks=(check,))
    preview = state.guests.preview(view.id, vm)
    return v1.Diagnosis(
        vm=f"{view.id}/{vm.name}",
        guest_url=state.guests.url(view.id, vm),
        checks=(*_checks(state, caller, view, vm, preview), *_check_ready(await state.fleet.health.problems())),
        response=None if preview is None else _show_preview(preview),
    )


def _show_preview(preview: ResponsePreview) -> v1.GuestResponse:
    return v1.GuestResponse(
        status=preview.status,
        content_type=preview.content_type,
        body=preview.body.decode(errors="replace"),
        delay=format_duration(preview.delay),
        faults=tuple(fault.id for fault in preview.faults),
    )


async def _check_unknown(fleet: Fleet, caller: Caller, name: str, error: Exception) -> v1.DiagnosisCheck:
    question = "Is it known?"
    if isinstance(error, AmbiguousVm):
        finding = f"No: there are {len(error.candidates)} VMs of this name."
        advice = f"Specify one: {' or '.join(error.candidates)}."
        return v1.DiagnosisCheck(question=question, passed=False, message=finding, hint=advice)
    near = await _similar_names(fleet, caller, name.rpartition("/")[2].casefold())
    advice = f"Did you mean {' or '.join(near)}?" if near else "Add it with `forewarn vm add`."
    return v1.DiagnosisCheck(question=question, passed=False, message=f"No: {error}.", hint=advice)


async def _similar_names(fleet: Fleet, caller: Caller, name: str) -> list[str]:
    """Return VMs with similar names. Only names with the same first two letters are compared, for speed."""
    similar: dict[str, str] = {}
    async for view in iterate_gradually(list(fleet.replica.views())):
        if len(similar) >= MAX_SIMILAR:
            break
        if caller.can_see(view.id):
            vms = (vm for vm in view.roster or () if vm.name[:2].casefold() == name[:2])
            similar |= {vm.name.casefold(): f"{view.id}/{vm.name}" for vm in vms}
    return [similar[match] for match in get_close_matches(name, list(similar)[:MAX_SIMILAR], n=3)]


def _checks(
    state: AppState, caller: Caller, view: ScopeView, vm: Vm, preview: ResponsePreview | None
) -> Iterator[v1.DiagnosisCheck]:
    fleet, guests = state.fleet, state.guests
    scope = fleet.replica.scope(view.id)
    known = f"Yes: {scope.id}/{vm.name}, in a scope of kind {scope.kind.value} with {_vms(scope)}."
    yield v1.DiagnosisCheck(question="Is it known?", passed=True, message=known)
    yield _check_listener(guests, scope, vm)
    if guests.ports is None and guests.networks:
        yield _check_address(guests, vm)
    yield _check_address_unique(fleet, caller, scope, vm)
    yield _check_enabled(fleet, view, scope, vm)
    yield _check_visible_events(scope)
    if preview is not None:
        yield _check_response(preview)
    if guests.faults is not None:
        yield _check_faults([fault for fault in guests.faults.list() if fault.vm in (None, f"{scope.id}/{vm.name}")])
    yield _check_hold(fleet, scope)


def _check_ready(problems: Sequence[str]) -> Iterator[v1.DiagnosisCheck]:
    """Show problems of the whole service, if there are any: then it may not be able to save an approval."""
    if problems:
        yield v1.DiagnosisCheck(
            question="Can the service save its approval?",
            passed=False,
            message=f"Perhaps not: {'; '.join(problems)}.",
            hint="See the log of the service; `curl URL/readyz` shows when it is ready again.",
        )


def _check_listener(guests: GuestEndpoints, scope: Scope, vm: Vm) -> v1.DiagnosisCheck:
    question = "Does the endpoint listen for it?"
    if guests.ports is not None:
        url = guests.url(scope.id, vm)
        if url is not None:
            return v1.DiagnosisCheck(question=question, passed=True, message=f"Yes, at its own port: {url}.")
        reason = guests.port_problem(scope.id, vm)
        finding = "No: it has no port yet." if reason is None else f"No: {reason}."
        advice = "Ports of new VMs open at once; a port that cannot be opened is retried at least every minute."
        return v1.DiagnosisCheck(question=question, passed=False, message=finding, hint=advice)
    if guests.networks:
        where = ", ".join(f"{network} (interface {interface})" for network, interface in guests.networks.items())
        return v1.DiagnosisCheck(
            question=question, passed=True, message=f"Yes, at {ENDPOINT}, for VMs of network {where}."
        )
    if guests.shared_url is not None:
        found = f"Yes, at the port of all VMs: {guests.url(scope.id, vm)}."
        return v1.DiagnosisCheck(question=question, passed=True, message=found)
    advice = "Set listen_link_local to the VMs' interface, or listen to HOST:PORT, and restart the service."
    return v1.DiagnosisCheck(
        question=question, passed=False, message="No: the service does not listen for guests.", hint=advice
    )


def _check_address(guests: GuestEndpoints, vm: Vm) -> v1.DiagnosisCheck:
    """Check that the VM has an address in a network that the endpoint serves."""
    question = "Is its address known?"
    networks = " or ".join(guests.networks)
    if not vm.addresses:
        advice = f"Add one with `forewarn vm change` or in the fleet file; the network is {networks}."
        return v1.DiagnosisCheck(question=question, passed=False, message="No: it has no address.", hint=advice)
    served = [address for address in vm.addresses if address.network in guests.networks]
    text = ", ".join(f"{address.ip} in network {address.network}" for address in served or vm.addresses)
    if not served:
        advice = f"The endpoint listens in network {networks}: correct the VM's network, or serve that network too."
        return v1.DiagnosisCheck(
            question=question, passed=False, message=f"No, not in a served network: it has {text}.", hint=advice
        )
    advice = "The VM must send requests from exactly this address, without NAT or a proxy."
    return v1.DiagnosisCheck(question=question, passed=True, message=f"Yes: {text}.", hint=advice)


def _check_address_unique(fleet: Fleet, caller: Caller, scope: Scope, vm: Vm) -> v1.DiagnosisCheck:
    question = "Is its address unique?"
    me = f"{scope.id}/{vm.name}"
    for address in vm.addresses:
        claims = fleet.replica.claims(address.network, address.ip)
        others = {f"{view.id}/{other.name}" if caller.can_see(view.id) else HIDDEN_VM for view, other in claims} - {me}
        if others:
            claimed = ", ".join(sorted(others))
            finding = f"No: {address.ip} in network {address.network} is also claimed by {claimed}."
            advice = "The endpoint refuses all of them: remove the address from all but one."
            return v1.DiagnosisCheck(question=question, passed=False, message=finding, hint=advice)
    known = ", ".join(f"{address.ip} in network {address.network}" for address in vm.addresses)
    return v1.DiagnosisCheck(question=question, passed=True, message=f"Yes: {known}." if known else "It has none.")


def _check_enabled(fleet: Fleet, view: ScopeView, scope: Scope, vm: Vm) -> v1.DiagnosisCheck:
    question = "Is its scope enabled?"
    policy = fleet.scopes.rule_context.policy
    last_request = _last_request_text(fleet, view, scope, vm)
    if scope.enabled:
        return v1.DiagnosisCheck(question=question, passed=True, message=f"Yes: {last_request}.")
    if policy.announce is AnnouncePolicy.ALWAYS:
        return v1.DiagnosisCheck(
            question=question,
            passed=True,
            message=f"No: {last_request}, but here events are announced all the same.",
            hint="Check that the VM polls: on Azure, events are announced only after a request.",
            warning=True,
        )
    silence = (
        "" if policy.idle_after is None else f"; {format_duration(policy.idle_after)} without a request disable it"
    )
    advice = "Any request for scheduled events from one of its VMs enables it; existing events are then announced."
    return v1.DiagnosisCheck(question=question, passed=False, message=f"No: {last_request}{silence}.", hint=advice)


def _vms(scope: Scope) -> str:
    return count_text(len(scope.roster), "VM")


def _last_request_text(fleet: Fleet, view: ScopeView, scope: Scope, vm: Vm) -> str:
    """Return when the VM last polled. Until it polls after a start of the service, only its scope's time is known."""
    is_alone = len(scope.roster) == 1
    polled_at = view.polled_at.get(vm.name)
    seen_at = polled_at or fleet.last_seen.of(view)
    if seen_at is None:
        return "this VM has never polled" if is_alone else f"none of its {_vms(scope)} has ever polled"
    ago = timedelta(seconds=max(0, int((fleet.clock.now() - seen_at).total_seconds())))
    is_known = is_alone or polled_at is not None
    who = "this VM" if is_known else f"one of its {_vms(scope)} (not this one since the service started)"
    return f"{who} last polled at {seen_at:%Y-%m-%d %H:%M:%SZ}, {format_duration(ago)} ago"


def _check_visible_events(scope: Scope) -> v1.DiagnosisCheck:
    question = "Are there events to see?"
    if not scope.events:
        return v1.DiagnosisCheck(
            question=question, passed=True, message="No open events in its scope: an empty list is correct."
        )
    hidden = [event for event in scope.events if not event.announced]
    if len(hidden) == len(scope.events):
        finding = f"No: {count_text(len(hidden), 'open event')}, not announced because the scope is not enabled."
        advice = "The scope's events are announced as soon as one of its VMs polls."
        return v1.DiagnosisCheck(question=question, passed=False, message=finding, hint=advice)
    seen = [event for event in scope.events if event.announced]
    since = {event.type: EVENT_TYPES[event.type].since for event in seen}
    late = {type_: version for type_, version in since.items() if version != PREVIEW_VERSION}
    finding = f"Yes: {len(seen)} open event{'' if len(seen) == 1 else 's'}, seen by every VM of the scope."
    if late:
        versions = "; ".join(
            f"{type_.value} only with api-version {version} or later" for type_, version in late.items()
        )
        finding = f"{finding.removesuffix('.')}; {versions}."
    return v1.DiagnosisCheck(question=question, passed=True, message=finding)


def _check_hold(fleet: Fleet, scope: Scope) -> v1.DiagnosisCheck:
    question = "Can its maintenance start?"
    holds = [
        (hold, what, f"`forewarn release{option}`")
        for hold, what, option in (
            (scope.hold, "its scope", f" --scope {scope.id}"),
            (fleet.holds.current, "the whole fleet", ""),
        )
        if hold is not None
    ]
    if not holds:
        return v1.DiagnosisCheck(question=question, passed=True, message="Yes: nothing is held.")
    found = "; ".join(f"{hold.by} holds {what}: {hold.reason}" for hold, what, _ in holds)
    commands = " and ".join(command for _, _, command in holds)
    advice = f"{commands} {'ends the hold' if len(holds) == 1 else 'end the holds'}."
    return v1.DiagnosisCheck(
        question=question, passed=True, message=f"No planned maintenance: {found}", hint=advice, warning=True
    )


def _check_response(preview: ResponsePreview) -> v1.DiagnosisCheck:
    question = "What does it get if it polls now?"
    fault = next((fault for fault in preview.faults if fault.kind not in HARMLESS_FAULTS), None)
    because = "" if fault is None else f", because of fault {fault.id} ({fault.kind.value})"
    after = "" if not preview.delay else f" after {format_duration(preview.delay)}"
    document = _document_in(preview)
    if preview.status is None:
        found = f"No response{because}."
    elif document is None:
        text = preview.body.decode(errors="replace").strip()
        shown = f"{text[:MAX_BODY]}…" if len(text) > MAX_BODY else text or "an empty body"
        found = f"Status {preview.status}{after}{because}, without a document: {shown}"
    else:
        found = f"A document with {_events_text(document)}{after}{because}."
    hint = "" if fault is None else f"`forewarn fault clear {fault.id}` ends the fault."
    if document is None and fault is None:
        hint = "The service does not recognize the VM: see the checks of its address."
    return v1.DiagnosisCheck(
        question=question, passed=document is not None, message=found, hint=hint, warning=bool(document and fault)
    )


def _document_in(preview: ResponsePreview) -> Document | None:
    if preview.status != 200:
        return None
    try:
        return parse_document(preview.body)
    except InvalidDocument:
        return None


def _events_text(document: Document) -> str:
    if not document.events:
        return "no events"
    shown = [f"{event.type} of {', '.join(event.resources)} ({event.status})" for event in document.events]
    more = f", and {len(shown) - MAX_EVENTS} more" if len(shown) > MAX_EVENTS else ""
    return f"{len(shown)} event{'' if len(shown) == 1 else 's'}: {', '.join(shown[:MAX_EVENTS])}{more}"


def _check_faults(faults: Sequence[Fault]) -> v1.DiagnosisCheck:
    question = "Are faults active?"
    if not faults:
        return v1.DiagnosisCheck(question=question, passed=True, message="No.")
    texts = [f"{fault.id} ({fault.kind.value}, for {fault.vm or 'all VMs'})" for fault in faults[:MAX_EVENTS]]
    more = f", and {len(faults) - MAX_EVENTS} more" if len(faults) > MAX_EVENTS else ""
    hint = "`forewarn fault list` shows them, `forewarn fault clear` ends them."
    return v1.DiagnosisCheck(
        question=question, passed=True, message=f"Yes: {', '.join(texts)}{more}.", hint=hint, warning=True
    )
