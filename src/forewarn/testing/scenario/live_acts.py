"""What each command of a story is in a running service: requests of operators to its API, of VMs to its endpoint."""

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
from forewarn.testing.scenario.describing import FAULTS_CLEARED, fault_told
from forewarn.testing.scenario.live_world import LiveWorld
from forewarn.testing.scenario.stage import Unplayable

T = TypeVar("T")

RETRY_FOR = 30.0
"""For how many seconds a VM of a story asks again where its endpoint misbehaves: as good handlers do."""

PORT_PATIENCE, PORT_PAUSE = 30.0, 0.01
"""For how many seconds one looks for the port of a VM that has just come, and how many pass between two looks."""

_NO_EVENT = re.compile(r"(?:no event|EventId) (.+?)(?: is not a GUID)?$")

OWN_WORK = "the platform of a service does its work itself, when it is due"
NOT_SHOWN = "a service does not tell this"
REAL = "a service that runs cannot do this"


class RefusedGuest(CoreError):
    """The endpoint has refused what a VM asked for."""

    code = "refused-by-endpoint"


@singledispatch
def act(command: say.Said, _world: LiveWorld) -> list[str]:
    """Do what a command says; return what is to be told of it besides what the journal says. One function for each."""
    raise TypeError(f"{type(command).__name__} is not for this stage")


# The inventory.


@act.register
def _(_: say.UseFleet, world: LiveWorld) -> list[str]:
    """There is one fleet with a name. A service that has another one is not changed."""
    for scope in DEMONSTRATION:
        try:
            world.adopt(world.api.scope(scope))
        except NotFound:
            raise Unplayable(f"the service has no scope {scope}: start it without --fleet", "demonstration") from None
    return []


DEMONSTRATION = ("db-0", "web", "batch", "shop")


@act.register
def _(command: say.AddScope, world: LiveWorld) -> list[str]:
    world.add(
        v1.AddScope(
            id=command.scope,
            kind=command.kind,
            approval=command.approval,
            auto_approve=command.auto_approve,
            priority=command.priority,
            terminate_notice=_text(command.terminate_notice),
        )
    )
    return []


@act.register
def _(command: say.ChangeScope, world: LiveWorld) -> list[str]:
    ask = v1.ChangeScope(
        approval=_unset(command.approval),
        auto_approve=_unset(command.auto_approve),
        priority=_unset(command.priority),
        terminate_notice=_unset(_text(command.terminate_notice)),
    )
    world.api.change_scope(world.scope(command.scope), ask)
    return []


@act.register
def _(command: say.RemoveScope, world: LiveWorld) -> list[str]:
    world.api.remove_scope(world.scope(command.scope), force=command.force, why=command.why)
    return []


@act.register
def _(command: say.AddVms, world: LiveWorld) -> list[str]:
    scope = world.newest_scope() if command.scope is None else world.scope(command.scope)
    for name in command.names:
        world.api.add_vm(
            v1.AddVm(
                name=name,
                scope=scope,
                update_domain=command.domain,
                host=command.host,
                priority=command.priority,
                terminate_notice=_text(command.terminate_notice),
            )
        )
    return []


@act.register
def _(command: say.ChangeVm, world: LiveWorld) -> list[str]:
    ask = v1.ChangeVm(
        host=command.host,
        update_domain=_unset(command.domain),
        priority=_unset(command.priority),
        terminate_notice=_unset(_text(command.terminate_notice)),
    )
    world.api.change_vm(_full(world, command.vm), ask)
    return []


@act.register
def _(command: say.RemoveVm, world: LiveWorld) -> list[str]:
    world.api.remove_vm(_full(world, command.vm), force=command.force, why=command.why)
    return []


# VMs.


@act.register
def _(command: say.Query, world: LiveWorld) -> list[str]:
    with _inside(world, world.find(command.vm)) as endpoint:
        endpoint.get()
    return []


@act.register
def _(command: say.Approve, world: LiveWorld) -> list[str]:
    vm = world.find(command.vm)
    ids = [world.event(event) for event in command.events]
    if command.through is not None:
        for id_ in ids:
            world.api.approve(id_, v1.ApproveEvent(vm=f"{vm.scope}/{vm.name}"))
    elif ids:
        with _inside(world, vm) as endpoint:
            endpoint.approve(*ids)
    return []


@act.register
def _(command: say.Document, world: LiveWorld) -> list[str]:
    """Ask as the VM does: a service shows its documents to nobody else."""
    vm = world.find(command.vm)
    with _inside(world, vm) as endpoint:
        document = endpoint.get()
    world.catch_up()
    place = next(place for place in world.places.values() if place.id == vm.scope)
    number = f"epoch {world.names.newest_epoch(place.name)}, incarnation {document.incarnation}"
    return [number, *(_shown(event, world) for event in document.events)]


def _shown(event: SeenEvent, world: LiveWorld) -> str:
    parts = [world.names.label(event.id), event.status, event.type, *event.resources, f"from {event.source}"]
    if event.not_before is not None:
        parts.append(f"not_before {world.names.time(event.not_before)}")
    if event.duration is not None:
        parts.append(f"lasting {format_duration(event.duration)}")
    return " ".join(parts)


@contextmanager
def _inside(world: LiveWorld, vm: v1.Vm) -> Iterator[ScheduledEvents]:
    """Be a VM: ask its endpoint, again and again where it misbehaves."""
    try:
        url = listening(world, vm).guest_url
        with ScheduledEvents(url, name=vm.name, retry_for=RETRY_FOR, on_trouble=lambda *_: None) as endpoint:
            yield endpoint
    except ClientError as error:
        if (no_event := _NO_EVENT.search(error.what)) is not None:
            raise ScopeEventNotFound(no_event[1], vm.scope) from error
        raise RefusedGuest(error.what) from error


def listening(world: LiveWorld, vm: v1.Vm) -> v1.Vm:
    """Return a VM that can ask. One that has just come gets its port a moment later, and no journal tells of it."""
    until = time.monotonic() + PORT_PATIENCE
    while vm.guest_url is None:
        if time.monotonic() > until:
            raise Unplayable("the service has no port for this VM: start it with --listen", vm.name)
        time.sleep(PORT_PAUSE)
        vm = world.api.vm(f"{vm.scope}/{vm.name}")
    return vm


# Events.


@act.register
def _(command: say.Schedule, world: LiveWorld) -> list[str]:
    if command.campaign:
        raise Unplayable("a campaign makes its events itself", "campaign")
    ask = v1.ScheduleEvents(
        type=command.type,
        vms=_all(world, command.vms),
        notice=_text(command.notice),
        not_before=None if command.not_before is None else world.names.moment(command.not_before),
        duration=_text(command.duration),
        source=Source.USER if command.by == say.USER else Source.PLATFORM,
        why=command.why,
    )
    return _known(world, world.api.schedule(ask, key=command.key or command.request))


@act.register
def _(command: say.Restart, world: LiveWorld) -> list[str]:
    return _known(world, world.api.restart(v1.Operate(vm=_full(world, command.vm)), key=command.request))


@act.register
def _(command: say.Redeploy, world: LiveWorld) -> list[str]:
    return _known(world, world.api.redeploy(v1.Operate(vm=_full(world, command.vm)), key=command.request))


@act.register
def _(command: say.Delete, world: LiveWorld) -> list[str]:
    return _known(world, world.api.delete(v1.Operate(vm=_full(world, command.vm)), key=command.request))


@act.register
def _(command: say.Evict, world: LiveWorld) -> list[str]:
    ask = v1.Evict(vm=_full(world, command.vm), notice=_text(command.notice))
    return _known(world, world.api.evict(ask, key=command.request))


@act.register
def _(command: say.Fail, world: LiveWorld) -> list[str]:
    ask = v1.Fail(vms=_all(world, command.vms), type=command.type)
    return _known(world, world.api.fail(ask, key=command.request))


@act.register
def _(command: say.Predict, world: LiveWorld) -> list[str]:
    ask = v1.PredictFailure(vms=_all(world, command.vms), ahead=format_duration(command.ahead))
    return _known(world, world.api.predict_failure(ask, key=command.request))


def _known(world: LiveWorld, scheduled: v1.ScheduleResponse) -> list[str]:
    """Tell of events that were there before: the journal has nothing more to say of them."""
    known = [made.id for made in scheduled.made if world.names.knows(made.id)]
    return [f"{world.names.label(id_)} is known" for id_ in known]


@act.register
def _(command: say.Cancel, world: LiveWorld) -> list[str]:
    world.api.cancel(world.event(command.event), v1.CancelEvent(why=command.why))
    return []


@act.register
def _(command: say.Hold, world: LiveWorld) -> list[str]:
    of_all = command.what == say.EVERYTHING
    world.api.hold(v1.CreateHold(reason=command.reason, scope=None if of_all else world.scope(command.what)))
    world.holders[command.reason] = command.by
    world.holds_all |= of_all
    return [f"everything held by {command.by} ({command.reason})"] if of_all else []


@act.register
def _(command: say.Release, world: LiveWorld) -> list[str]:
    if command.what == say.EVERYTHING:
        world.api.release(v1.ReleaseHold(why=command.why))
        world.holds_all = False
        return [f"everything released by {command.by}"]
    world.api.release(v1.ReleaseHold(why=command.why, scope=world.scope(command.what)))
    return []


@act.register
def _(command: say.Retry, world: LiveWorld) -> list[str]:
    for vm in command.vms or (None,):
        world.api.retry(world.event(command.event), v1.RetryImpact(vm=vm, why=command.why))
    return []


@act.register
def _(command: say.Resolve, world: LiveWorld) -> list[str]:
    ask = v1.ResolveImpact(done=command.done, why=command.why, vm=command.vm)
    world.api.resolve(world.event(command.event), ask)
    return []


@act.register
def _(command: say.Explain, world: LiveWorld) -> list[str]:
    story = world.api.event(world.event(command.event))
    if story.event is None:
        raise ScopeEventNotFound(story.id, story.scope)
    return [world.plain(sentence) for sentence in story.event.explain]


# Faults.


@act.register
def _(command: say.SetFault, world: LiveWorld) -> list[str]:
    fault = world.api.set_fault(
        v1.SetFault(
            kind=command.kind,
            vm=None if command.vm is None else _full(world, command.vm),
            lasting=_text(command.lasting),
            times=command.times,
            amount=None if command.amount is None else format_signed_duration(command.amount),
        )
    )
    world.faults.append(fault.id)
    return [fault_told(command)]


@act.register
def _(_: say.ClearFaults, world: LiveWorld) -> list[str]:
    world.clear_faults()
    return [FAULTS_CLEARED]


# What only the core can do, where a story is the platform, the clock and the store in one.


@act.register(say.Begin)
@act.register(say.Done)
@act.register(say.Failed)
@act.register(say.Later)
@act.register(say.Unknown)
def _(command: say.Begin | say.Done | say.Failed | say.Later | say.Unknown, _world: LiveWorld) -> list[str]:
    raise Unplayable(OWN_WORK, command.event)


@act.register(say.State)
@act.register(say.Wake)
def _(command: say.State | say.Wake, _world: LiveWorld) -> list[str]:
    raise Unplayable(NOT_SHOWN, command.scope)


@act.register
def _(_: say.Outage, _world: LiveWorld) -> list[str]:
    raise Unplayable(REAL, "outage")


@act.register
def _(command: say.Clear, _world: LiveWorld) -> list[str]:
    raise Unplayable("a campaign clears its events itself", command.event)


def _full(world: LiveWorld, name: str) -> str:
    vm = world.find(name)
    return f"{vm.scope}/{vm.name}"


def _all(world: LiveWorld, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(_full(world, name) for name in names)


def _text(duration: timedelta | None) -> str | None:
    return None if duration is None else format_duration(duration)


def _unset(value: T | None) -> T | msgspec.UnsetType:
    return msgspec.UNSET if value is None else value
