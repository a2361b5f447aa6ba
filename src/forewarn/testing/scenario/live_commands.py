"""Execute scenario commands in a running service: operator API requests, and guest requests as VMs."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import singledispatch
from typing import TypeVar

import msgspec

from forewarn.api import v1
from forewarn.api.errors import NotFound
from forewarn.client import ClientError, ScheduledEvents
from forewarn.client import Event as SeenEvent
from forewarn.core.duration import format_duration
from forewarn.core.errors import CoreError, ScopeEventNotFound
from forewarn.core.event import Source
from forewarn.core.fault import format_signed_duration
from forewarn.testing.scenario import commands
from forewarn.testing.scenario.campaign_request import campaign_request
from forewarn.testing.scenario.live_state import LiveState
from forewarn.testing.scenario.render import FAULTS_CLEARED, render_fault
from forewarn.testing.scenario.runner import InvalidCommand

T = TypeVar("T")

RETRY_FOR = 30.0
"""How many seconds a VM of a scenario retries if its endpoint has a fault, as good handlers do."""

PORT_CHECKS, PORT_CHECK_INTERVAL = 3000, 0.01
"""How often to ask for the port of a new VM, and the seconds between two requests.

The service answers each request, so a machine that is too busy to open the port delays the requests, too.
"""

DAY = timedelta(days=1)

_EVENT_NOT_FOUND = re.compile(r"(?:no event|EventId) (.+?)(?: is not a GUID)?$")

PLATFORM_WORK = "the platform of a service carries out its work itself; this command works only with --core"
NOT_AVAILABLE = "a service does not show this; this command works only with --core"
NOT_SUPPORTED = "a running service cannot do this; this command works only with --core"


class GuestRequestFailed(CoreError):
    """The guest endpoint refused the request of a VM."""

    code = "endpoint-refused"
    template = "{problem}"
    hidden_fields = frozenset({"problem"})
    problem: str


@singledispatch
def run_command(command: commands.BaseCommand, _state: LiveState) -> list[str]:
    """Execute a command; return the facts that are not in the journal. One function for each type of command."""
    raise TypeError(f"{type(command).__name__} is not for this backend")


# The inventory.


@run_command.register
def _(_: commands.UseFleet, state: LiveState) -> list[str]:
    """Use the service's demonstration fleet, the only fleet that has a name; other services are refused."""
    for scope in DEMONSTRATION_SCOPES:
        try:
            state.adopt(state.api.scope(scope))
        except NotFound:
            raise InvalidCommand(
                f"the service has no scope {scope}: start it without --fleet", "demonstration"
            ) from None
    return []


DEMONSTRATION_SCOPES = ("db-0", "web", "batch", "shop")


@run_command.register
def _(command: commands.AddScope, state: LiveState) -> list[str]:
    state.add(
        v1.AddScope(
            id=command.scope,
            kind=command.kind,
            approval=command.approval,
            auto_approve=command.auto_approve,
            priority=command.priority,
            terminate_notice=_optional_text(command.terminate_notice),
        )
    )
    return []


@run_command.register
def _(command: commands.ChangeScope, state: LiveState) -> list[str]:
    request = v1.ChangeScope(
        approval=_or_unset(command.approval),
        auto_approve=_or_unset(command.auto_approve),
        priority=_or_unset(command.priority),
        terminate_notice=_or_unset(_optional_text(command.terminate_notice)),
    )
    state.api.change_scope(state.scope(command.scope), request)
    return []


@run_command.register
def _(command: commands.RemoveScope, state: LiveState) -> list[str]:
    state.api.remove_scope(state.scope(command.scope), force=command.force, reason=command.why)
    return []


@run_command.register
def _(command: commands.AddVms, state: LiveState) -> list[str]:
    scope = state.newest_scope() if command.scope is None else state.scope(command.scope)
    for name in command.names:
        state.api.add_vm(
            v1.AddVm(
                name=name,
                scope=scope,
                update_domain=command.domain,
                host=command.host,
                priority=command.priority,
                terminate_notice=_optional_text(command.terminate_notice),
            )
        )
    return []


@run_command.register
def _(command: commands.ChangeVm, state: LiveState) -> list[str]:
    request = v1.ChangeVm(
        host=command.host,
        update_domain=_or_unset(command.domain),
        priority=_or_unset(command.priority),
        terminate_notice=_or_unset(_optional_text(command.terminate_notice)),
    )
    state.api.change_vm(_full_name(state, command.vm), request)
    return []


@run_command.register
def _(command: commands.RemoveVm, state: LiveState) -> list[str]:
    state.api.remove_vm(_full_name(state, command.vm), force=command.force, reason=command.why)
    return []


# VMs.


@run_command.register
def _(command: commands.Query, state: LiveState) -> list[str]:
    with _guest_client(state, state.find(command.vm)) as endpoint:
        endpoint.get()
    return []


@run_command.register
def _(command: commands.Approve, state: LiveState) -> list[str]:
    vm = state.find(command.vm)
    ids = [state.event(event) for event in command.events]
    if command.through is not None:
        for id_ in ids:
            state.api.approve(id_, v1.ApproveEvent(vm=f"{vm.scope}/{vm.name}"))
    elif ids:
        with _guest_client(state, vm) as endpoint:
            endpoint.approve(*ids)
    return []


@run_command.register
def _(command: commands.Document, state: LiveState) -> list[str]:
    """Poll as the VM does: a service shows a document only to its VMs."""
    vm = state.find(command.vm)
    with _guest_client(state, vm) as endpoint:
        document = endpoint.get()
    state.read_journal()
    scope = next(scope for scope in state.scopes.values() if scope.id == vm.scope)
    number = f"epoch {state.names.newest_epoch(scope.name)}, incarnation {document.incarnation}"
    return [number, *(_render_event(event, state) for event in document.events)]


def _render_event(event: SeenEvent, state: LiveState) -> str:
    parts = [state.names.label(event.id), event.status, event.type, *event.resources, f"from {event.source}"]
    if event.not_before is not None:
        parts.append(f"not_before {state.names.time(event.not_before)}")
    if event.duration is not None:
        parts.append(f"lasting {format_duration(event.duration)}")
    return " ".join(parts)


@contextmanager
def _guest_client(state: LiveState, vm: v1.Vm) -> Iterator[ScheduledEvents]:
    """Yield a client for the VM's endpoint, which retries if the endpoint has a fault."""
    try:
        url = wait_for_port(state, vm).guest_url
        with ScheduledEvents(url, name=vm.name, retry_for=RETRY_FOR, on_trouble=lambda *_: None) as endpoint:
            yield endpoint
    except ClientError as error:
        if (no_event := _EVENT_NOT_FOUND.search(error.what)) is not None:
            raise ScopeEventNotFound(no_event[1], vm.scope) from error
        raise GuestRequestFailed(error.what) from error


def wait_for_port(state: LiveState, vm: v1.Vm) -> v1.Vm:
    """Wait until a VM has its port: a new VM gets it a moment later, without a journal entry."""
    for _ in range(PORT_CHECKS):
        if vm.guest_url is not None:
            return vm
        time.sleep(PORT_CHECK_INTERVAL)
        vm = state.api.vm(f"{vm.scope}/{vm.name}")
    raise InvalidCommand("the service has no port for this VM: start it with --listen", vm.name)


# Events.


@run_command.register
def _(command: commands.Schedule, state: LiveState) -> list[str]:
    if command.campaign:
        raise InvalidCommand("a campaign creates its events itself", "campaign")
    request = v1.ScheduleEvents(
        type=command.type,
        vms=_full_names(state, command.vms),
        notice=_optional_text(command.notice),
        not_before=None if command.not_before is None else state.names.moment(command.not_before),
        duration=_optional_text(command.duration),
        source=Source.USER if command.by == commands.USER else Source.PLATFORM,
        reason=command.why,
        now=command.now,
        unannounced=command.unannounced,
    )
    return _known_events(state, state.api.schedule(request, key=command.key or command.request))


@run_command.register
def _(command: commands.Restart, state: LiveState) -> list[str]:
    return _known_events(state, state.api.restart(_operate(state, command), key=command.request))


@run_command.register
def _(command: commands.Redeploy, state: LiveState) -> list[str]:
    return _known_events(state, state.api.redeploy(_operate(state, command), key=command.request))


@run_command.register
def _(command: commands.Delete, state: LiveState) -> list[str]:
    return _known_events(state, state.api.delete(_operate(state, command), key=command.request))


def _operate(state: LiveState, command: commands.Restart | commands.Redeploy | commands.Delete) -> v1.Operate:
    return v1.Operate(vm=_full_name(state, command.vm), now=command.now, unannounced=command.unannounced)


@run_command.register
def _(command: commands.Evict, state: LiveState) -> list[str]:
    request = v1.Evict(
        vm=_full_name(state, command.vm),
        notice=_optional_text(command.notice),
        now=command.now,
        unannounced=command.unannounced,
    )
    return _known_events(state, state.api.evict(request, key=command.request))


@run_command.register
def _(command: commands.Fail, state: LiveState) -> list[str]:
    request = v1.Fail(vms=_full_names(state, command.vms), type=command.type)
    return _known_events(state, state.api.fail(request, key=command.request))


@run_command.register
def _(command: commands.Predict, state: LiveState) -> list[str]:
    request = v1.PredictFailure(
        vms=_full_names(state, command.vms), notice=format_duration(command.ahead), unannounced=command.unannounced
    )
    return _known_events(state, state.api.predict_failure(request, key=command.request))


def _known_events(state: LiveState, scheduled: v1.ScheduleResponse) -> list[str]:
    """Return a fact for each event that existed before: the journal has no new entry for it."""
    known = [made.id for made in scheduled.created if state.names.has_event(made.id)]
    return [f"{state.names.label(id_)} is known" for id_ in known]


@run_command.register
def _(command: commands.Cancel, state: LiveState) -> list[str]:
    state.api.cancel(state.event(command.event), v1.CancelEvent(reason=command.why))
    return []


@run_command.register
def _(command: commands.Hold, state: LiveState) -> list[str]:
    of_all = command.what == commands.ALL_SCOPES
    state.api.hold(v1.CreateHold(reason=command.reason, scope=None if of_all else state.scope(command.what)))
    state.holders[command.reason] = command.by
    state.holds_all |= of_all
    return [f"everything held by {command.by} ({command.reason})"] if of_all else []


@run_command.register
def _(command: commands.Release, state: LiveState) -> list[str]:
    if command.what == commands.ALL_SCOPES:
        state.api.release(v1.ReleaseHold(reason=command.why))
        state.holds_all = False
        return [f"everything released by {command.by}"]
    state.api.release(v1.ReleaseHold(reason=command.why, scope=state.scope(command.what)))
    return []


@run_command.register
def _(command: commands.Retry, state: LiveState) -> list[str]:
    for vm in command.vms or (None,):
        state.api.retry(state.event(command.event), v1.RetryImpact(vm=vm, reason=command.why))
    return []


@run_command.register
def _(command: commands.Resolve, state: LiveState) -> list[str]:
    request = v1.ResolveImpact(done=command.done, reason=command.why, vm=command.vm)
    state.api.resolve(state.event(command.event), request)
    return []


@run_command.register
def _(command: commands.Explain, state: LiveState) -> list[str]:
    detail = state.api.event(state.event(command.event))
    if detail.event is None:
        raise ScopeEventNotFound(detail.id, detail.scope)
    return [state.replace_ids(sentence) for sentence in detail.event.explanation]


# Campaigns.


@run_command.register
def _(command: commands.StartCampaign, state: LiveState) -> list[str]:
    scopes = [state.scope(name) for name in command.scopes]
    windows = [(_clock_time(state, start), _clock_time(state, end)) for start, end in command.windows]
    gate = {"url": state.gate.url, "retries": 0} if command.gate else None

    def request(name: str) -> v1.StartCampaign:
        asked = campaign_request(command, name=name, scopes=scopes, windows=windows, gate=gate)
        consent = {"reason": command.why, "unannounced": command.unannounced}
        return msgspec.convert(asked | consent, v1.StartCampaign)

    state.start_campaign(command.campaign, request)
    return []


def _clock_time(state: LiveState, time: timedelta) -> str:
    """Convert a time of the scenario to the service's time of day, in the form of a campaign window."""
    moment = state.names.moment(time)
    if moment.second or moment.microsecond or state.names.moment(time + DAY) - moment != DAY:
        raise InvalidCommand("windows need a service with a manual clock and speed 1", "windows")
    return f"{moment:%H:%M}"


@run_command.register
def _(command: commands.PauseCampaign, state: LiveState) -> list[str]:
    state.api.pause_campaign(state.campaign(command.campaign), v1.PauseCampaign(reason=command.why))
    return []


@run_command.register
def _(command: commands.ResumeCampaign, state: LiveState) -> list[str]:
    state.api.resume_campaign(state.campaign(command.campaign), v1.ResumeCampaign(reason=command.why))
    return []


@run_command.register
def _(command: commands.AbortCampaign, state: LiveState) -> list[str]:
    state.api.abort_campaign(state.campaign(command.campaign), v1.AbortCampaign(reason=command.why))
    return []


@run_command.register
def _(command: commands.RetryWave, state: LiveState) -> list[str]:
    request = v1.RetryWave(scope=state.scope(command.scope), reason=command.why)
    state.api.retry_wave(state.campaign(command.campaign), request)
    return []


@run_command.register
def _(command: commands.SkipWave, state: LiveState) -> list[str]:
    request = v1.SkipWave(scope=state.scope(command.scope), reason=command.why)
    state.api.skip_wave(state.campaign(command.campaign), request)
    return []


@run_command.register
def _(command: commands.SetGate, state: LiveState) -> list[str]:
    state.gate.is_open = command.state is commands.GateState.OPEN
    return []


# Faults.


@run_command.register
def _(command: commands.SetFault, state: LiveState) -> list[str]:
    fault = state.api.set_fault(
        v1.SetFault(
            kind=command.kind,
            vm=None if command.vm is None else _full_name(state, command.vm),
            duration=_optional_text(command.lasting),
            times=command.times,
            amount=None if command.amount is None else format_signed_duration(command.amount),
        )
    )
    state.faults.append(fault.id)
    return [render_fault(command)]


@run_command.register
def _(_: commands.ClearFaults, state: LiveState) -> list[str]:
    state.clear_faults()
    return [FAULTS_CLEARED]


# Commands that only the core backend supports: there the scenario acts as platform, clock and store.


@run_command.register(commands.Begin)
@run_command.register(commands.Done)
@run_command.register(commands.Failed)
@run_command.register(commands.Later)
@run_command.register(commands.Unknown)
def _(
    command: commands.Begin | commands.Done | commands.Failed | commands.Later | commands.Unknown, _state: LiveState
) -> list[str]:
    raise InvalidCommand(PLATFORM_WORK, command.event)


@run_command.register(commands.State)
@run_command.register(commands.Wake)
def _(command: commands.State | commands.Wake, _state: LiveState) -> list[str]:
    raise InvalidCommand(NOT_AVAILABLE, command.scope)


@run_command.register
def _(_: commands.Outage, _state: LiveState) -> list[str]:
    raise InvalidCommand(NOT_SUPPORTED, "outage")


@run_command.register
def _(command: commands.Clear, _state: LiveState) -> list[str]:
    raise InvalidCommand("a campaign clears its events itself", command.event)


def _full_name(state: LiveState, name: str) -> str:
    vm = state.find(name)
    return f"{vm.scope}/{vm.name}"


def _full_names(state: LiveState, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_full_name(state, name) for name in names)


def _optional_text(duration: timedelta | None) -> str | None:
    return None if duration is None else format_duration(duration)


def _or_unset(value: T | None) -> T | msgspec.UnsetType:
    return msgspec.UNSET if value is None else value
