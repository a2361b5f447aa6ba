"""What the fleet knows, as the types of the API. Nothing is decided here."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Literal, TypeVar

from forewarn.api import v1
from forewarn.core.duration import duration_text
from forewarn.core.event import Event, State
from forewarn.core.explain import explain
from forewarn.core.scope import Scope
from forewarn.core.text import counting_order
from forewarn.core.vm import Priority, Vm
from forewarn.fleet.replica import Replica
from forewarn.fleet.service import Fleet

GuestUrl = Callable[[str, Vm], str | None]
"""Scope and VM to the URL at which the VM finds its endpoint, if it has one of its own."""

T = TypeVar("T")


def show_vm(scope: Scope, vm: Vm, guest_url: GuestUrl) -> v1.Vm:
    """Show a VM with everything that holds for it."""
    traits = scope.traits_of(vm)
    return v1.Vm(
        name=vm.name,
        scope=scope.id,
        kind=scope.kind,
        vm_id=vm.vm_id,
        guest_url=guest_url(scope.id, vm),
        host=vm.host,
        update_domain=vm.update_domain,
        fault_domain=vm.fault_domain,
        priority=traits.priority or Priority.REGULAR,
        role_instance=vm.role_instance,
        addresses=tuple(v1.Address(ip=item.ip, network=item.network, mac=item.mac) for item in vm.addresses),
        tags=traits.tags or {},
        terminate_notice=None if traits.terminate_notice is None else duration_text(traits.terminate_notice),
        location=traits.location,
        zone=traits.zone,
        resource_group=traits.resource_group,
        subscription=traits.subscription,
        os=traits.os,
        scale_set=scope.scale_set,
    )


def show_event(fleet: Fleet, scope: Scope, event: Event, *, now: datetime) -> v1.Event:
    """Show an open event, and why it waits."""
    return v1.Event(
        id=event.id,
        scope=scope.id,
        type=event.type,
        status=_status(event.state),
        source=event.source,
        cause=event.cause,
        vms=event.vms,
        update_domain=event.update_domain,
        host=event.host,
        made_at=event.made_at,
        not_before=event.not_before,
        started_at=event.started_at,
        duration=None if event.duration is None else duration_text(event.duration),
        description=event.description,
        by=event.by,
        why=event.why,
        announced=event.announced,
        approvals=tuple(v1.Approval(vm=approval.vm, at=approval.at) for approval in event.approvals),
        impacts=tuple(
            v1.Impact(
                vm=impact.vm,
                state=impact.state,
                attempt=impact.attempt,
                begun_at=impact.begun_at,
                retry_at=impact.retry_at,
                why=impact.why,
            )
            for impact in event.impacts
        ),
        explain=tuple(str(hold) for hold in explain(scope, event, fleet.conditions, now=now)),
    )


def _status(state: State) -> Literal["Scheduled", "Started"]:
    return "Started" if state is State.STARTED else "Scheduled"


def show_vms(fleet: Fleet, guest_url: GuestUrl, *, scope: str | None, after: str, limit: int) -> v1.VmPage:
    """Show VMs by scope and name, from the one after `after` on."""
    last_scope, _, last_name = after.rpartition("/")

    def rest() -> Iterator[tuple[Scope, Vm]]:
        for each in _scopes(fleet.replica, scope, last_scope):
            for vm in sorted(each.roster, key=lambda vm: counting_order(vm.name)):
                if each.id != last_scope or counting_order(vm.name) > counting_order(last_name):
                    yield each, vm

    found, more = _page(rest(), limit)
    vms = tuple(show_vm(each, vm, guest_url) for each, vm in found)
    return v1.VmPage(vms=vms, next=f"{vms[-1].scope}/{vms[-1].name}" if more else None)


def show_events(fleet: Fleet, *, scope: str | None, vm: str | None, after: str, limit: int) -> v1.EventPage:
    """Show open events by scope and in the order in which they were made, from the one after `after` on."""
    name = None
    if vm is not None:
        view, found_vm = fleet.replica.find(vm)
        if scope not in (None, view.id):
            return v1.EventPage(events=(), next=None)
        scope, name = view.id, found_vm.name
    last_scope, _, last_place = after.partition("/")

    def rest() -> Iterator[tuple[Scope, Event]]:
        for each in _scopes(fleet.replica, scope, last_scope):
            events = each.events if each.id != last_scope else _made_after(each.events, last_place)
            for event in events:
                if name is None or name in event.vms:
                    yield each, event

    found, more = _page(rest(), limit)
    now = fleet.clock.now()
    events = tuple(show_event(fleet, each, event, now=now) for each, event in found)
    return v1.EventPage(events=events, next=f"{events[-1].scope}/{_place(found[-1][1])}" if more else None)


def _scopes(replica: Replica, only: str | None, first: str) -> Iterator[Scope]:
    """Give one scope, or all by their ids from `first` on."""
    if only is not None:
        yield replica.scope(only)
        return
    ids = sorted(view.id for view in replica.views())
    for id_ in ids[bisect_left(ids, first) :]:
        yield replica.scope(id_)


def _page(rest: Iterable[T], limit: int) -> tuple[list[T], bool]:
    found = list(islice(rest, limit + 1))
    return found[:limit], len(found) > limit


def _place(event: Event) -> str:
    """Where an event stands among its scope's; the time is for when it has gone."""
    return f"{event.made_at.isoformat(timespec='microseconds')}/{event.id}"


def _made_after(events: tuple[Event, ...], place: str) -> tuple[Event, ...]:
    """Return the events after a place; if its event has gone, rather one too many than one too few."""
    places = [_place(event) for event in events]
    if place in places:
        return events[places.index(place) + 1 :]
    made_at = place.partition("/")[0]
    return tuple(event for event in events if _place(event) >= made_at)
