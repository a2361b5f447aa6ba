"""Calendar of maintenance: the open events and planned waves that a token may see, as entries of an iCalendar feed."""

from heapq import nsmallest

from forewarn.core.campaign.record import Campaign, ScopeProgress, Wave, coming_waves
from forewarn.core.event import Event, State
from forewarn.core.scope import Scope
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.service import Fleet
from forewarn.operator.auth import Caller
from forewarn.operator.icalendar import CalendarEntry
from forewarn.operator.lookup import can_see_campaign

MAX_ENTRIES = 2_000
"""How many entries a calendar has: those that start first."""

MAX_NAMES = 50
"""How many VMs an entry names."""


async def list_entries(fleet: Fleet, caller: Caller, *, scope: str | None, dashboard_url: str) -> list[CalendarEntry]:
    """Return the entries that the caller may see, of one scope or of all, in the order of their starts."""
    found: list[CalendarEntry] = []
    async for view in iterate_gradually(fleet.replica.views_with_events()):
        value = view.scope
        if value is not None and caller.can_see(view.id) and scope in (None, view.id):
            found += [_event_entry(value, event, dashboard_url) for event in value.events]
    for campaign in fleet.campaigns.all():
        if can_see_campaign(caller, campaign):
            url = f"{dashboard_url}/campaigns/{campaign.id}"
            async for progress, n, wave in iterate_gradually(coming_waves(campaign)):
                if scope in (None, progress.scope):
                    found.append(_wave_entry(campaign, progress, n, wave, url))
    return nsmallest(MAX_ENTRIES, found, key=lambda entry: (entry.starts_at, entry.uid))


def _event_entry(scope: Scope, event: Event, dashboard_url: str) -> CalendarEntry:
    is_started = event.state is State.STARTED and event.started_at is not None
    lines = [
        event.description,
        f"VMs: {', '.join(event.vms[:MAX_NAMES])}{' and more' if len(event.vms) > MAX_NAMES else ''}",
        *([f"Reason: {event.why}"] if event.why else []),
    ]
    return CalendarEntry(
        uid=f"event-{event.id.lower()}@forewarn",
        changed_at=(event.started_at if is_started else None) or event.created_at,
        sequence=1 if is_started else 0,
        starts_at=(event.started_at if is_started else None) or event.not_before,
        duration=event.duration,
        is_tentative=False,
        summary=f"{event.type.value} of {_count_vms(len(event.vms))} in {scope.id}{' (started)' if is_started else ''}",
        description="\n".join(lines),
        location=scope.id,
        url=f"{dashboard_url}/events/{event.id}",
    )


def _wave_entry(campaign: Campaign, progress: ScopeProgress, n: int, wave: Wave, url: str) -> CalendarEntry:
    name = campaign.spec.type.value
    return CalendarEntry(
        uid=f"wave-{campaign.request(progress.scope, n).lower()}@forewarn",
        changed_at=campaign.started_at,
        sequence=0,
        starts_at=campaign.moment(progress, wave.planned),
        duration=campaign.spec.expected,
        is_tentative=True,
        summary=f"{name} of {_count_vms(wave.vms)} in {progress.scope} (planned by {campaign.name})",
        description=f"Wave {n} of campaign {campaign.name}: update domain {wave.update_domain}. Not announced yet.",
        location=progress.scope,
        url=url,
    )


def _count_vms(number: int) -> str:
    return f"{number:,} VM{'' if number == 1 else 's'}"
