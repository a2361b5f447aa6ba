"""API views of events: open events, pages of them, and one event in detail with its journal entries."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from forewarn.api import v1
from forewarn.core.change import OUTCOMES
from forewarn.core.duration import format_duration
from forewarn.core.event import Event, EventType, Source, State
from forewarn.core.explain import (
    ApprovalPending,
    Blocker,
    CampaignPending,
    DomainInUse,
    HostSilent,
    HostUnknown,
    ImpactStuck,
    NotBefore,
    OperatorHold,
    blocker_messages,
    explain,
    is_stuck,
)
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller
from forewarn.operator.errors import JournalEventNotFound
from forewarn.operator.lookup import find_vm
from forewarn.operator.pagination import SortedScopeIds, first_page, visible_scopes
from forewarn.operator.views.inventory import show_hold
from forewarn.operator.views.journal import show_row
from forewarn.store.port import JournalQuery, JournalRow, RecordKey, RecordKind

MAX_TIMELINE = 1_000
"""The most journal entries in an event's detail: an event on a thousand VMs has several for each."""

FIRST_ENTRIES = (EntryKind.SCHEDULED, EntryKind.STARTED)
"""The first entry of an event is one of these and has its type."""


def show_event(fleet: Fleet, scope: Scope, event: Event, *, now: datetime) -> v1.Event:
    """Return an open event with the reasons why it waits."""
    blockers = [
        _with_campaign_state(fleet, blocker) for blocker in explain(scope, event, fleet.scopes.rule_context, now=now)
    ]
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
        created_at=event.created_at,
        not_before=event.not_before,
        started_at=event.started_at,
        duration=None if event.duration is None else format_duration(event.duration),
        description=event.description,
        created_by=event.by,
        reason=event.why,
        announced=event.announced,
        approvals=tuple(v1.Approval(vm=approval.vm, approved_at=approval.at) for approval in event.approvals),
        impacts=tuple(
            v1.Impact(
                vm=impact.vm,
                state=impact.state,
                attempt=impact.attempt,
                begun_at=impact.begun_at,
                retry_at=impact.retry_at,
                reason=impact.why,
            )
            for impact in event.impacts
        ),
        explanation=blocker_messages(blockers),
        blockers=tuple(_show_blocker(blocker, scope.id) for blocker in blockers),
        is_stuck=is_stuck(event, blockers),
        hold=show_hold(scope.hold, scope.id),
        campaign=event.campaign or None,
    )


def _show_blocker(blocker: Blocker, scope: str) -> v1.Blocker:
    until, event, hold = None, None, None
    vms: Sequence[str] = ()
    match blocker:
        case NotBefore():
            until = blocker.at
        case ApprovalPending():
            until = blocker.at
            vms = blocker.vms if blocker.rule is ApprovalRule.ALL else ()
        case DomainInUse():
            event = blocker.stuck_event or blocker.events[0]
        case OperatorHold():
            hold = show_hold(blocker.hold, None if blocker.whole_fleet else scope)
        case ImpactStuck():
            vms = (blocker.vm,)
        case HostUnknown() | HostSilent():
            vms = blocker.vms
        case _:
            pass
    return v1.Blocker(code=blocker.code, text=str(blocker), until=until, event=event, hold=hold, vms=vms)


def _with_campaign_state(fleet: Fleet, blocker: Blocker) -> Blocker:
    """Add the campaign's state to a blocker; the scope does not know it."""
    if not isinstance(blocker, CampaignPending):
        return blocker
    why, is_stopped = fleet.campaigns.stop_reason(blocker.campaign), fleet.campaigns.is_stopped(blocker.campaign)
    return msgspec.structs.replace(blocker, why=why, is_stopped=is_stopped)


def _status(state: State) -> Literal["Scheduled", "Started"]:
    return "Started" if state is State.STARTED else "Scheduled"


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for events; an event must match all given fields."""

    host: str | None = None
    type: EventType | None = None
    status: Literal["Scheduled", "Started"] | None = None
    source: Source | None = None

    def matches(self, event: Event) -> bool:
        """Return whether the event matches."""
        return (
            self.host in (None, event.host)
            and self.type in (None, event.type)
            and self.status in (None, _status(event.state))
            and self.source in (None, event.source)
        )


async def show_events(
    fleet: Fleet,
    scope_ids: SortedScopeIds,
    wanted: EventFilter,
    *,
    scope: str | None,
    vm: str | None,
    after: str,
    limit: int,
    caller: Caller,
) -> v1.EventPage:
    """Return open events after the position `after`, by scope and in the order of their creation."""
    name = None
    if vm is not None:
        view, found_vm = find_vm(fleet, caller, vm)
        if scope not in (None, view.id):
            return v1.EventPage(events=(), next=None, fleet_hold=show_hold(fleet.holds.current, None))
        scope, name = view.id, found_vm.name
    if scope is not None:
        caller.check_scope(scope)
        fleet.replica.scope(scope)
    last_scope, _, last_position = after.partition("/")

    async def matching() -> AsyncIterator[tuple[Scope, Event]]:
        ids = scope_ids.starting_at(last_scope) if scope is None else (scope,)
        async for each in visible_scopes(fleet.replica, ids, caller):
            events = each.events if each.id != last_scope else _events_after(each.events, last_position)
            for event in events:
                if (name is None or name in event.vms) and wanted.matches(event):
                    yield each, event

    found, more = await first_page(matching(), limit)
    now = fleet.clock.now()
    events = tuple([show_event(fleet, each, event, now=now) async for each, event in iterate_gradually(found)])
    next_ = f"{events[-1].scope}/{_position(found[-1][1])}" if more else None
    return v1.EventPage(events=events, next=next_, fleet_hold=show_hold(fleet.holds.current, None))


def _position(event: Event) -> str:
    """Return the position of an event in its scope; the time is used if the event has ended."""
    return f"{event.created_at.isoformat(timespec='microseconds')}/{event.id}"


def _events_after(events: tuple[Event, ...], position: str) -> tuple[Event, ...]:
    """Return the events after a position. If its event has ended, one may be repeated, but none is missed."""
    positions = [_position(event) for event in events]
    if position in positions:
        return events[positions.index(position) + 1 :]
    made_at = position.partition("/")[0]
    return tuple(event for event in events if _position(event) >= made_at)


async def show_event_detail(fleet: Fleet, id_: str) -> v1.EventDetail:
    """Return the detail of an event: its state and its journal."""
    found = fleet.replica.find_event(id_)
    rows = await _timeline(fleet, id_.upper(), None if found is None else found[0].id)
    if found is not None:
        view, event = found
        scope = fleet.replica.scope(view.id)
        shown = show_event(fleet, scope, event, now=fleet.clock.now())
        return v1.EventDetail(
            id=event.id,
            scope=view.id,
            type=event.type,
            vms=event.vms,
            event=shown,
            outcome=None,
            ended_at=None,
            journal=tuple(map(show_row, rows)),
        )
    if not rows:
        raise JournalEventNotFound(id_)
    return await _show_ended_event(fleet, id_.upper(), rows)


async def _show_ended_event(fleet: Fleet, id_: str, rows: Sequence[JournalRow]) -> v1.EventDetail:
    """Return the detail of an ended event, from its journal entries."""
    first = await _first_row(fleet, id_, rows)
    ending = next((row.entry for row in reversed(rows) if row.entry.kind in OUTCOMES), None)
    type_ = first.entry.facts.get("type")
    return v1.EventDetail(
        id=id_,
        scope=first.key.id,
        type=None if type_ is None else EventType(type_),
        vms=first.entry.vms,
        event=None,
        outcome=None if ending is None else OUTCOMES[ending.kind],
        ended_at=None if ending is None else ending.at,
        journal=tuple(map(show_row, rows)),
    )


async def _timeline(fleet: Fleet, id_: str, scope: str | None) -> list[JournalRow]:
    key = None if scope is None else RecordKey(RecordKind.SCOPE, scope)
    rows = await fleet.journal.query(JournalQuery(key=key, event=id_, newest_first=True, limit=MAX_TIMELINE))
    return rows[::-1]


async def _first_row(fleet: Fleet, id_: str, rows: Sequence[JournalRow]) -> JournalRow:
    """Return the event's first journal entry, or its oldest one that was not pruned."""
    if len(rows) < MAX_TIMELINE:
        return rows[0]
    return next(iter(await fleet.journal.query(JournalQuery(event=id_, kinds=FIRST_ENTRIES, limit=1))), rows[0])
