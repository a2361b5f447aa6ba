"""Events, as the types of the API. Nothing is decided here."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Literal

import msgspec

from forewarn.api import v1
from forewarn.core.duration import format_duration
from forewarn.core.event import Event, EventType, Source, State
from forewarn.core.explain import Blocker, CampaignPending, blocker_messages, explain
from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import yielding
from forewarn.fleet.service import Fleet
from forewarn.operator.access import Caller
from forewarn.operator.finding import find_vm
from forewarn.operator.paging import Roll, first_of, seen_scopes
from forewarn.operator.showing_inventory import show_hold


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
        made_at=event.created_at,
        not_before=event.not_before,
        started_at=event.started_at,
        duration=None if event.duration is None else format_duration(event.duration),
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
        explain=blocker_messages(
            _told_fully(fleet, hold) for hold in explain(scope, event, fleet.rule_context, now=now)
        ),
        held=show_hold(scope.hold, scope.id),
        campaign=event.campaign or None,
    )


def _told_fully(fleet: Fleet, hold: Blocker) -> Blocker:
    """Return what keeps an event, with what its scope cannot know of it."""
    if not isinstance(hold, CampaignPending):
        return hold
    return msgspec.structs.replace(hold, why=fleet.campaigns.stop_reason(hold.campaign))


def _status(state: State) -> Literal["Scheduled", "Started"]:
    return "Started" if state is State.STARTED else "Scheduled"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are wanted: those that fit everything that is said."""

    host: str | None = None
    type: EventType | None = None
    status: Literal["Scheduled", "Started"] | None = None
    source: Source | None = None

    def fits(self, event: Event) -> bool:
        """Tell whether the event is one of them."""
        return (
            self.host in (None, event.host)
            and self.type in (None, event.type)
            and self.status in (None, _status(event.state))
            and self.source in (None, event.source)
        )


async def show_events(
    fleet: Fleet,
    roll: Roll,
    wanted: Wanted,
    *,
    scope: str | None,
    vm: str | None,
    after: str,
    limit: int,
    caller: Caller,
) -> v1.EventPage:
    """Show open events by scope and in the order in which they were made, from the one after `after` on."""
    name = None
    if vm is not None:
        view, found_vm = find_vm(fleet, caller, vm)
        if scope not in (None, view.id):
            return v1.EventPage(events=(), next=None, held=show_hold(fleet.current_hold, None))
        scope, name = view.id, found_vm.name
    if scope is not None:
        caller.check(scope)
        fleet.replica.scope(scope)
    last_scope, _, last_place = after.partition("/")

    async def rest() -> AsyncIterator[tuple[Scope, Event]]:
        ids = roll.starting_at(last_scope) if scope is None else (scope,)
        async for each in seen_scopes(fleet.replica, ids, caller):
            events = each.events if each.id != last_scope else _made_after(each.events, last_place)
            for event in events:
                if (name is None or name in event.vms) and wanted.fits(event):
                    yield each, event

    found, more = await first_of(rest(), limit)
    now = fleet.clock.now()
    events = tuple([show_event(fleet, each, event, now=now) async for each, event in yielding(found)])
    next_ = f"{events[-1].scope}/{_place(found[-1][1])}" if more else None
    return v1.EventPage(events=events, next=next_, held=show_hold(fleet.current_hold, None))


def _place(event: Event) -> str:
    """Where an event stands among its scope's; the time is for when it has gone."""
    return f"{event.created_at.isoformat(timespec='microseconds')}/{event.id}"


def _made_after(events: tuple[Event, ...], place: str) -> tuple[Event, ...]:
    """Return the events after a place; if its event has gone, rather one too many than one too few."""
    places = [_place(event) for event in events]
    if place in places:
        return events[places.index(place) + 1 :]
    made_at = place.partition("/")[0]
    return tuple(event for event in events if _place(event) >= made_at)
