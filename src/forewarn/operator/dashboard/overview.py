"""Overview page, for people on call: what needs a person, what is in impact, what comes next, and totals."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import NamedTuple

from litestar import Response, get

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.campaign.record import Campaign, CampaignState, coming_waves
from forewarn.core.event import Event, State
from forewarn.core.explain import has_only_stuck_work
from forewarn.core.scope import Scope
from forewarn.fleet.errors import CampaignNotFound
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.dashboard.pages import PAUSE_PER_ITEM, AnyRequest, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.lookup import can_see_campaign
from forewarn.operator.pagination import visible_scopes
from forewarn.operator.routes.faults import visible_faults
from forewarn.operator.routes.holds import list_visible_holds
from forewarn.operator.state import AppState
from forewarn.operator.views.campaigns import show_campaign
from forewarn.operator.views.events import show_event

SOON = timedelta(hours=24)
"""How far the list of coming events and waves reaches."""

MAX_ROWS = 20
"""How many rows each table of events has at most; it says how many there are."""

MAX_ITEMS = 5
"""How many holds, faults and silent hosts are listed at most; many of a kind have one cause."""


class Totals(NamedTuple):
    """The size of what the caller may see."""

    scopes: int
    vms: int
    hosts: int
    held_scopes: int
    silent_scopes: int
    """Scopes that are not enabled: none of their VMs polls."""


class EventList(NamedTuple):
    """Open events: the most urgent ones, in order, and how many there are."""

    first: list[v1.Event]
    total: int


class EventLists(NamedTuple):
    """The open events that the caller may see.

    Events that wait for a stuck one or for a hold are among the coming ones: to settle the cause is enough.
    """

    stuck: EventList
    in_impact: EventList
    soon: EventList
    later: int

    @property
    def total(self) -> int:
        """How many there are."""
        return self.stuck.total + self.in_impact.total + self.soon.total + self.later


class PlannedWaves(NamedTuple):
    """Planned waves of a campaign that start at the same time, and are not announced yet."""

    campaign: v1.Campaign
    planned_at: datetime
    scope: str
    """One of their scopes."""
    scopes: int
    vms: int


class SilentHost(NamedTuple):
    """A host whose process is not heard from: no planned maintenance of its VMs starts."""

    name: str
    silent_since: datetime | None
    """None if it has not been heard from since this process started."""
    vms: int


@get(ROOT, opt=requires(Role.VIEWER))
async def show_overview(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Show the overview."""
    position = await state.fleet.journal.end()
    events = await list_events(state, caller)
    campaigns: list[v1.Campaign] = []
    waves: list[PlannedWaves] = []
    later_waves = 0
    for campaign in state.fleet.campaigns.all():
        if not campaign.state.is_over and can_see_campaign(caller, campaign):
            with suppress(CampaignNotFound):  # ended and pruned in the meantime
                shown = await show_campaign(state.fleet, campaign)
                soon, later = await _list_waves(campaign, shown, until=state.fleet.clock.now() + SOON)
                campaigns.append(shown)
                waves += soon
                later_waves += later
    silent_hosts = list(_silent_hosts(state, caller))
    coming: list[v1.Event | PlannedWaves] = [*events.soon.first, *waves]
    coming.sort(key=_starts_at)
    return render_page(
        request,
        "overview.html",
        title="Overview",
        live="all",
        renews=True,
        position=position,
        pause=PAUSE_PER_ITEM * sum(campaign.scope_count for campaign in campaigns),
        max_items=MAX_ITEMS,
        events=events,
        coming=coming[:MAX_ROWS],
        coming_total=events.soon.total + len(waves),
        later_waves=later_waves,
        silent_hosts=silent_hosts,
        stopped_campaigns=[each for each in campaigns if needs_person(each)],
        running_campaigns=[each for each in campaigns if not needs_person(each)],
        holds=list_visible_holds(state.fleet, caller).holds,
        faults=[] if state.guests.faults is None else visible_faults(state, caller),
        problems=[*await state.fleet.health.problems(), *state.fleet.health.limitations()],
        totals=await _count(state, caller),
    )


def needs_person(campaign: v1.Campaign) -> bool:
    """Return whether a campaign continues only when a person decides."""
    return campaign.is_stuck or campaign.state in (CampaignState.PAUSED, CampaignState.HALTED)


def _starts_at(coming: v1.Event | PlannedWaves) -> datetime:
    return coming.planned_at if isinstance(coming, PlannedWaves) else coming.not_before


async def _list_waves(campaign: Campaign, shown: v1.Campaign, *, until: datetime) -> tuple[list[PlannedWaves], int]:
    """Return the coming waves of a campaign by their planned starts, and the number of those that start later."""
    found: dict[datetime, PlannedWaves] = {}
    later = 0
    async for progress, _, wave in iterate_gradually(coming_waves(campaign)):
        planned_at = campaign.moment(progress, wave.planned)
        if planned_at > until:
            later += 1
            continue
        known = found.get(planned_at) or PlannedWaves(shown, planned_at, progress.scope, 0, 0)
        found[planned_at] = known._replace(scopes=known.scopes + 1, vms=known.vms + wave.vms)
    return list(found.values()), later


def _silent_hosts(state: AppState, caller: Caller) -> Iterator[SilentHost]:
    placed = state.fleet.replica.hosts()
    for name, host in sorted(state.fleet.cluster.hosts.silent().items()):
        if vms := sum(caller.can_see(view.id) for view, _ in placed[name]):
            yield SilentHost(name, host.silent_since, vms)


async def list_events(state: AppState, caller: Caller) -> EventLists:
    """Return the open events that the caller may see. Those beyond the rows of a table are only counted."""
    now = state.fleet.clock.now()
    stuck: list[tuple[Scope, Event]] = []
    in_impact: list[tuple[Scope, Event]] = []
    soon: list[tuple[Scope, Event]] = []
    later = 0
    async for scope, event in iterate_gradually(_open_events(state)):
        if not caller.can_see(scope.id):
            continue
        if event.state is State.STARTED:
            (stuck if has_only_stuck_work(event) else in_impact).append((scope, event))
        elif event.not_before <= now + SOON:
            soon.append((scope, event))
        else:
            later += 1

    def shown(events: list[tuple[Scope, Event]]) -> EventList:
        first = nsmallest(MAX_ROWS, events, key=lambda found: found[1].started_at or found[1].not_before)
        return EventList([show_event(state.fleet, scope, event, now=now) for scope, event in first], len(events))

    return EventLists(shown(stuck), shown(in_impact), shown(soon), later)


def _open_events(state: AppState) -> Iterator[tuple[Scope, Event]]:
    for view in state.fleet.replica.views_with_events():
        if view.scope is not None:
            for event in view.scope.events:
                yield view.scope, event


async def _count(state: AppState, caller: Caller) -> Totals:
    scopes = vms = held = silent = 0
    hosts: set[str] = set()
    async for scope in visible_scopes(state.fleet.replica, state.scope_ids.ids(), caller):
        scopes += 1
        vms += len(scope.roster)
        held += scope.hold is not None
        silent += not scope.enabled
        if caller.scopes:
            hosts.update(vm.host for vm in scope.roster if vm.host is not None)
    return Totals(scopes, vms, len(hosts) if caller.scopes else len(state.fleet.replica.hosts()), held, silent)
