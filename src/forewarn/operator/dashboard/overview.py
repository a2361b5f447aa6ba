"""Overview page, for people on call: what needs a person, what is in impact, what comes next, and totals."""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from litestar import Response, get

from forewarn.api import v1
from forewarn.core.access import Role
from forewarn.core.campaign.record import CampaignState
from forewarn.core.event import Event, State
from forewarn.core.fault import Fault
from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.auth import Caller, CallerDep, requires
from forewarn.operator.dashboard.pages import AnyRequest, render_page
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.lookup import can_see_campaign
from forewarn.operator.pagination import visible_scopes
from forewarn.operator.state import AppState
from forewarn.operator.views.campaigns import show_campaign
from forewarn.operator.views.events import show_event
from forewarn.operator.views.inventory import show_hold

SOON = timedelta(hours=24)
"""How far the list of coming events reaches."""

MAX_ROWS = 50
"""How many rows each list of the overview has at most; it says how many there are."""


class Totals(NamedTuple):
    """The size of what the caller may see."""

    scopes: int
    vms: int
    hosts: int
    held_scopes: int
    silent_scopes: int
    """Scopes that are not enabled: none of their VMs polls."""


class EventLists(NamedTuple):
    """The open events that the caller may see, each list in order of urgency.

    Events that wait for a stuck one or for a hold are among the coming ones: to settle the cause is enough.
    """

    stuck: list[v1.Event]
    in_impact: list[v1.Event]
    soon: list[v1.Event]
    later: int

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.stuck) + len(self.in_impact) + len(self.soon) + self.later


@get(ROOT, opt=requires(Role.VIEWER))
async def show_overview(request: AnyRequest, state: AppState, caller: CallerDep) -> Response[str]:
    """Show the overview."""
    position = await state.fleet.journal.end()
    events = await list_events(state, caller)
    campaigns = [
        await show_campaign(state.fleet, campaign)
        for campaign in state.fleet.campaigns.all()
        if not campaign.state.is_over and can_see_campaign(caller, campaign)
    ]
    return render_page(
        request,
        "overview.html",
        title="Overview",
        live="all",
        position=position,
        max_rows=MAX_ROWS,
        events=events,
        stopped_campaigns=[each for each in campaigns if needs_person(each)],
        running_campaigns=[each for each in campaigns if not needs_person(each)],
        holds=[
            show_hold(hold, scope) for scope, hold in state.fleet.holds.all() if scope is None or caller.can_see(scope)
        ],
        faults=list(_visible_faults(state, caller)),
        problems=[*await state.fleet.health.problems(), *state.fleet.health.limitations()],
        totals=await _count(state, caller),
    )


def needs_person(campaign: v1.Campaign) -> bool:
    """Return whether a campaign continues only when a person decides."""
    return campaign.is_stuck or campaign.state in (CampaignState.PAUSED, CampaignState.HALTED)


async def list_events(state: AppState, caller: Caller) -> EventLists:
    """Return the open events that the caller may see."""
    fleet = state.fleet
    now = fleet.clock.now()
    stuck: list[v1.Event] = []
    in_impact: list[v1.Event] = []
    soon: list[v1.Event] = []
    later = 0
    async for scope, event in iterate_gradually(_open_events(state)):
        if not caller.can_see(scope.id):
            continue
        shown = show_event(fleet, scope, event, now=now)
        if shown.is_stuck and event.state is State.STARTED:
            stuck.append(shown)
        elif event.state is State.STARTED:
            in_impact.append(shown)
        elif event.not_before <= now + SOON:
            soon.append(shown)
        else:
            later += 1
    stuck.sort(key=lambda event: event.started_at or event.not_before)
    in_impact.sort(key=lambda event: event.started_at or event.not_before)
    soon.sort(key=lambda event: event.not_before)
    return EventLists(stuck, in_impact, soon, later)


def _open_events(state: AppState) -> Iterator[tuple[Scope, Event]]:
    for view in state.fleet.replica.views_with_events():
        if view.scope is not None:
            for event in view.scope.events:
                yield view.scope, event


def _visible_faults(state: AppState, caller: Caller) -> Iterator[Fault]:
    for fault in state.guests.faults.list() if state.guests.faults is not None else ():
        if fault.vm is None or caller.can_see(fault.vm.rpartition("/")[0]):
            yield fault


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
