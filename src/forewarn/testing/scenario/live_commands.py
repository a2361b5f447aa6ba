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
from forewarn.testing.scenario import commands as say
from forewarn.testing.scenario.live_state import LiveState
from forewarn.testing.scenario.render import FAULTS_CLEARED, render_fault
from forewarn.testing.scenario.runner import InvalidCommand

T = TypeVar("T")

RETRY_FOR = 30.0
"""For how many seconds a VM of a story asks again where its endpoint misbehaves: as good handlers do."""

PORT_TIMEOUT, PORT_POLL_INTERVAL = 30.0, 0.01
"""For how many seconds one looks for the port of a VM that has just come, and how many pass between two looks."""

_EVENT_NOT_FOUND = re.compile(r"(?:no event|EventId) (.+?)(?: is not a GUID)?$")

PLATFORM_WORK = "the platform of a service does its work itself, when it is due"
NOT_AVAILABLE = "a service does not tell this"
NOT_SUPPORTED = "a service that runs cannot do this"


class GuestRequestFailed(CoreError):
    """The endpoint has refused what a VM asked for."""

    code = "refused-by-endpoint"


@singledispatch
def run_command(command: say.BaseCommand, _state: LiveState) -> list[str]:
    """Do what a command says; return what is to be told of it besides what the journal says. One function for each."""
    raise TypeError(f"{type(command).__name__} is not for this stage")


# The inventory.


@run_command.register
def _(_: say.UseFleet, world: LiveState) -> list[str]:
    """There is one fleet with a name. A service that has another one is not changed."""
    for scope in DEMONSTRATION_SCOPES:
        try:
            world.adopt(world.api.scope(scope))
        except NotFound:
            raise InvalidCommand(
                f"the service has no scope {scope}: start it without --fleet", "demonstration"
            ) from None
    return []


DEMONSTRATION_SCOPES = ("db-0", "web", "batch", "shop")


@run_command.register
def _(command: say.AddScope, world: LiveState) -> list[str]:
    world.add(
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
def _(command: say.ChangeScope, world: LiveState) -> list[str]:
    ask = v1.ChangeScope(
        approval=_or_unset(command.approval),
        auto_approve=_or_unset(command.auto_approve),
        priority=_or_unset(command.priority),
        terminate_notice=_or_unset(_optional_text(command.terminate_notice)),
    )
    world.api.change_scope(world.scope(command.scope), ask)
    return []


@run_command.register
def _(command: say.RemoveScope, world: LiveState) -> list[str]:
    world.api.remove_scope(world.scope(command.scope), force=command.force, why=command.why)
    return []


@run_command.register
def _(command: say.AddVms, world: LiveState) -> list[str]:
    scope = world.newest_scope() if command.scope is None else world.scope(command.scope)
    for name in command.names:
        world.api.add_vm(
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
def _(command: say.ChangeVm, world: LiveState) -> list[str]:
    ask = v1.ChangeVm(
        host=command.host,
        update_domain=_or_unset(command.domain),
        priority=_or_unset(command.priority),
        terminate_notice=_or_unset(_optional_text(command.terminate_notice)),
    )
    world.api.change_vm(_full_name(world, command.vm), ask)
    return []


@run_command.register
def _(command: say.RemoveVm, world: LiveState) -> list[str]:
    world.api.remove_vm(_full_name(world, command.vm), force=command.force, why=command.why)
    return []


# VMs.


@run_command.register
def _(command: say.Query, world: LiveState) -> list[str]:
    with _guest_client(world, world.find(command.vm)) as endpoint:
        endpoint.get()
    return []


@run_command.register
def _(command: say.Approve, world: LiveState) -> list[str]:
    vm = world.find(command.vm)
    ids = [world.event(event) for event in command.events]
    if command.through is not None:
        for id_ in ids:
            world.api.approve(id_, v1.ApproveEvent(vm=f"{vm.scope}/{vm.name}"))
    elif ids:
        with _guest_client(world, vm) as endpoint:
            endpoint.approve(*ids)
    return []


@run_command.register
def _(command: say.Document, world: LiveState) -> list[str]:
    """Ask as the VM does: a service shows its documents to nobody else."""
    vm = world.find(command.vm)
    with _guest_client(world, vm) as endpoint:
        document = endpoint.get()
    world.read_journal()
    place = next(place for place in world.scopes.values() if place.id == vm.scope)
    number = f"epoch {world.names.newest_epoch(place.name)}, incarnation {document.incarnation}"
    return [number, *(_render_event(event, world) for event in document.events)]


def _render_event(event: SeenEvent, state: LiveState) -> str:
    parts = [state.names.label(event.id), event.status, event.type, *event.resources, f"from {event.source}"]
    if event.not_before is not None:
        parts.append(f"not_before {state.names.time(event.not_before)}")
    if event.duration is not None:
        parts.append(f"lasting {format_duration(event.duration)}")
    return " ".join(parts)


@contextmanager
def _guest_client(state: LiveState, vm: v1.Vm) -> Iterator[ScheduledEvents]:
    """Be a VM: ask its endpoint, again and again where it misbehaves."""
    try:
        url = wait_for_port(state, vm).guest_url
        with ScheduledEvents(url, name=vm.name, retry_for=RETRY_FOR, on_trouble=lambda *_: None) as endpoint:
            yield endpoint
    except ClientError as error:
        if (no_event := _EVENT_NOT_FOUND.search(error.what)) is not None:
            raise ScopeEventNotFound(no_event[1], vm.scope) from error
        raise GuestRequestFailed(error.what) from error


def wait_for_port(state: LiveState, vm: v1.Vm) -> v1.Vm:
    """Return a VM that can ask. One that has just come gets its port a moment later, and no journal tells of it."""
    deadline = time.monotonic() + PORT_TIMEOUT
    while vm.guest_url is None:
        if time.monotonic() > deadline:
            raise InvalidCommand("the service has no port for this VM: start it with --listen", vm.name)
        time.sleep(PORT_POLL_INTERVAL)
        vm = state.api.vm(f"{vm.scope}/{vm.name}")
    return vm


# Events.


@run_command.register
def _(command: say.Schedule, world: LiveState) -> list[str]:
    if command.campaign:
        raise InvalidCommand("a campaign makes its events itself", "campaign")
    ask = v1.ScheduleEvents(
        type=command.type,
        vms=_full_names(world, command.vms),
        notice=_optional_text(command.notice),
        not_before=None if command.not_before is None else world.names.moment(command.not_before),
        duration=_optional_text(command.duration),
        source=Source.USER if command.by == say.USER else Source.PLATFORM,
        why=command.why,
    )
    return _known_events(world, world.api.schedule(ask, key=command.key or command.request))


@run_command.register
def _(command: say.Restart, world: LiveState) -> list[str]:
    return _known_events(world, world.api.restart(v1.Operate(vm=_full_name(world, command.vm)), key=command.request))


@run_command.register
def _(command: say.Redeploy, world: LiveState) -> list[str]:
    return _known_events(world, world.api.redeploy(v1.Operate(vm=_full_name(world, command.vm)), key=command.request))


@run_command.register
def _(command: say.Delete, world: LiveState) -> list[str]:
    return _known_events(world, world.api.delete(v1.Operate(vm=_full_name(world, command.vm)), key=command.request))


@run_command.register
def _(command: say.Evict, world: LiveState) -> list[str]:
    ask = v1.Evict(vm=_full_name(world, command.vm), notice=_optional_text(command.notice))
    return _known_events(world, world.api.evict(ask, key=command.request))


@run_command.register
def _(command: say.Fail, world: LiveState) -> list[str]:
    ask = v1.Fail(vms=_full_names(world, command.vms), type=command.type)
    return _known_events(world, world.api.fail(ask, key=command.request))


@run_command.register
def _(command: say.Predict, world: LiveState) -> list[str]:
    ask = v1.PredictFailure(vms=_full_names(world, command.vms), ahead=format_duration(command.ahead))
    return _known_events(world, world.api.predict_failure(ask, key=command.request))


def _known_events(state: LiveState, scheduled: v1.ScheduleResponse) -> list[str]:
    """Tell of events that were there before: the journal has nothing more to say of them."""
    known = [made.id for made in scheduled.made if state.names.has_event(made.id)]
    return [f"{state.names.label(id_)} is known" for id_ in known]


@run_command.register
def _(command: say.Cancel, world: LiveState) -> list[str]:
    world.api.cancel(world.event(command.event), v1.CancelEvent(why=command.why))
    return []


@run_command.register
def _(command: say.Hold, world: LiveState) -> list[str]:
    of_all = command.what == say.ALL_SCOPES
    world.api.hold(v1.CreateHold(reason=command.reason, scope=None if of_all else world.scope(command.what)))
    world.holders[command.reason] = command.by
    world.holds_all |= of_all
    return [f"everything held by {command.by} ({command.reason})"] if of_all else []


@run_command.register
def _(command: say.Release, world: LiveState) -> list[str]:
    if command.what == say.ALL_SCOPES:
        world.api.release(v1.ReleaseHold(why=command.why))
        world.holds_all = False
        return [f"everything released by {command.by}"]
    world.api.release(v1.ReleaseHold(why=command.why, scope=world.scope(command.what)))
    return []


@run_command.register
def _(command: say.Retry, world: LiveState) -> list[str]:
    for vm in command.vms or (None,):
        world.api.retry(world.event(command.event), v1.RetryImpact(vm=vm, why=command.why))
    return []


@run_command.register
def _(command: say.Resolve, world: LiveState) -> list[str]:
    ask = v1.ResolveImpact(done=command.done, why=command.why, vm=command.vm)
    world.api.resolve(world.event(command.event), ask)
    return []


@run_command.register
def _(command: say.Explain, world: LiveState) -> list[str]:
    story = world.api.event(world.event(command.event))
    if story.event is None:
        raise ScopeEventNotFound(story.id, story.scope)
    return [world.replace_ids(sentence) for sentence in story.event.explain]


# Faults.


@run_command.register
def _(command: say.SetFault, world: LiveState) -> list[str]:
    fault = world.api.set_fault(
        v1.SetFault(
            kind=command.kind,
            vm=None if command.vm is None else _full_name(world, command.vm),
            lasting=_optional_text(command.lasting),
            times=command.times,
            amount=None if command.amount is None else format_signed_duration(command.amount),
        )
    )
    world.faults.append(fault.id)
    return [render_fault(command)]


@run_command.register
def _(_: say.ClearFaults, world: LiveState) -> list[str]:
    world.clear_faults()
    return [FAULTS_CLEARED]


# What only the core can do, where a story is the platform, the clock and the store in one.


@run_command.register(say.Begin)
@run_command.register(say.Done)
@run_command.register(say.Failed)
@run_command.register(say.Later)
@run_command.register(say.Unknown)
def _(command: say.Begin | say.Done | say.Failed | say.Later | say.Unknown, _world: LiveState) -> list[str]:
    raise InvalidCommand(PLATFORM_WORK, command.event)


@run_command.register(say.State)
@run_command.register(say.Wake)
def _(command: say.State | say.Wake, _world: LiveState) -> list[str]:
    raise InvalidCommand(NOT_AVAILABLE, command.scope)


@run_command.register
def _(_: say.Outage, _world: LiveState) -> list[str]:
    raise InvalidCommand(NOT_SUPPORTED, "outage")


@run_command.register
def _(command: say.Clear, _world: LiveState) -> list[str]:
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
