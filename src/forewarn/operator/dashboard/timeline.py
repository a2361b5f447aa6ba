"""Timeline: the events and waves of a time range, from the journal, the open events and the plans of campaigns.

Everything is bounded; `TimelinePage.omissions` says in sentences what is left out.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

import msgspec

from forewarn.core.campaign.calendar import wave_duration, wave_notice
from forewarn.core.campaign.record import Campaign, coming_waves
from forewarn.core.campaign.selection import Selector
from forewarn.core.campaign.windows import Span
from forewarn.core.text import natural_sort_key
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.replica import Replica
from forewarn.operator.auth import Caller
from forewarn.operator.dashboard.campaign_chart import policy_backgrounds
from forewarn.operator.dashboard.pages import show_count
from forewarn.operator.dashboard.time_chart import (
    BackgroundKind,
    ChartBackground,
    ChartItem,
    ChartRow,
    name_list,
)
from forewarn.operator.dashboard.timeline_item import (
    LIFE_KINDS,
    PLANNED,
    Grouping,
    TimelineFilter,
    TimelineItem,
    open_event,
    row_link,
)
from forewarn.operator.lookup import can_see_campaign
from forewarn.operator.state import AppState
from forewarn.store.port import JournalQuery, RecordKind

MAX_ITEMS = 5_000
"""How many items a timeline has at most, in all rows together."""

MAX_ENTRIES = 40_000
"""How many entries of the journal are read for it, the newest."""

ENTRY_PAGE = 2_000
"""How many of them are read at a time."""

MAX_LOOKUPS = 500
"""For how many events with further entries, before or after these, the journal is asked one by one."""

MAX_BACKGROUNDS = 300
"""How many windows and black-outs a timeline has at most; those that campaigns have in common count once."""

MAX_WINDOWS = 3_000
"""How many windows and black-outs of campaigns are looked at for them."""

NAMES_SHOWN = 3
"""How many campaigns the label of a window or black-out that they share names."""

MARGIN = timedelta(days=1)
"""An ended event is found if it was announced, approved, started or ended this close to the range."""

MANY = 4
"""A row with this many items says how many it has."""


class TimelinePage(NamedTuple):
    """What a timeline shows, and in sentences what it leaves out."""

    rows: tuple[ChartRow, ...]
    backgrounds: tuple[ChartBackground, ...]
    omissions: tuple[str, ...]


async def read_timeline(
    state: AppState, caller: Caller, shown: Span, wanted: TimelineFilter, group: Grouping
) -> TimelinePage:
    """Return the events and waves of a range that the caller may see and that match, in rows.

    If there are too many, open events come first, then ended ones, then waves.
    """
    now = state.fleet.clock.now()
    campaigns = [each for each in state.fleet.campaigns.all() if can_see_campaign(caller, each)]
    ended, omissions = await _ended_events(state, caller, shown)
    rows = _Rows(group, {campaign.id: campaign.name for campaign in campaigns}, now)
    async for item in _all_items(state, caller, ended, campaigns, shown):
        if item.is_within(shown, now) and wanted.matches(item):
            rows.add(item)
    if rows.omitted:
        omissions.append(
            f"{show_count(rows.omitted, 'item')} left out: a timeline has at most {MAX_ITEMS:,}. "
            "Choose a shorter range or a filter."
        )
    windows = list(islice(_backgrounds(campaigns, shown, wanted), MAX_WINDOWS + 1))
    backgrounds = _merged(windows[:MAX_WINDOWS])
    if len(windows) > MAX_WINDOWS or len(backgrounds) > MAX_BACKGROUNDS:
        omissions.append("Some windows and black-outs are left out: choose a shorter range or a campaign.")
    return TimelinePage(await rows.sorted(), backgrounds[:MAX_BACKGROUNDS], tuple(omissions))


class _Rows:
    """Items by row, up to the limit."""

    def __init__(self, group: Grouping, campaigns: dict[str, str], now: datetime) -> None:
        self._group: Grouping = group
        self._campaigns = campaigns
        self._now = now
        self._items: dict[str, list[ChartItem]] = {}
        self._room = MAX_ITEMS
        self.omitted = 0

    def add(self, item: TimelineItem) -> None:
        names = item.rows(self._group)
        kept = names[: self._room]
        self._room -= len(kept)
        self.omitted += len(names) - len(kept)
        if kept:
            shown = item.show(self._group, self._campaigns, self._now)
            for name in kept:
                self._items.setdefault(name, []).append(shown)

    async def sorted(self) -> tuple[ChartRow, ...]:
        """Return the rows in the natural order of their names."""
        keys = [(natural_sort_key(name), name) async for name in iterate_gradually(self._items)]
        return tuple([self._row(name) async for _, name in iterate_gradually(sorted(keys))])

    def _row(self, name: str) -> ChartRow:
        items = self._items[name]
        return ChartRow(
            label=name or "no known host",
            href=row_link(name, self._group),
            note=show_count(len(items), "item") if len(items) >= MANY else "",
            items=tuple(items),
        )


async def _all_items(
    state: AppState, caller: Caller, ended: list[TimelineItem], campaigns: list[Campaign], shown: Span
) -> AsyncIterator[TimelineItem]:
    async for view in iterate_gradually(state.fleet.replica.views_with_events()):
        if view.scope is not None and caller.can_see(view.id):
            for event in view.scope.events:
                yield open_event(view.id, event)
    async for item in iterate_gradually(ended):
        yield item
    for campaign in campaigns:
        async for item in _planned_waves(state, campaign, shown):
            yield item


async def _ended_events(state: AppState, caller: Caller, shown: Span) -> tuple[list[TimelineItem], list[str]]:
    """Return the ended events with an entry near the range, the newest first, and what is missing."""
    replica, journal = state.fleet.replica, state.fleet.journal
    found: dict[str, TimelineItem] = {}
    omissions: list[str] = []
    query = JournalQuery(
        kinds=LIFE_KINDS, since=shown.start - MARGIN, until=shown.end + MARGIN, newest_first=True, limit=ENTRY_PAGE
    )
    for _ in range(MAX_ENTRIES // ENTRY_PAGE):
        rows = await journal.query(query)
        async for row in iterate_gradually(rows):
            event = row.entry.event
            if event is not None and row.key.kind is RecordKind.SCOPE and caller.can_see(row.key.id):
                if event not in found:
                    found[event] = TimelineItem(id=event, scope=row.key.id)
                found[event].add_entry(row)
        if len(rows) < ENTRY_PAGE:
            break
        query = msgspec.structs.replace(query, before=rows[-1].position)
    else:
        omissions.append(f"The journal has more than {MAX_ENTRIES:,} entries about this range: the oldest are missing.")
    ended = [item async for item in iterate_gradually(found.values()) if replica.find_event(item.id) is None]
    incomplete = [item for item in ended if not item.is_complete]
    for item in incomplete[:MAX_LOOKUPS]:
        for row in await journal.query(JournalQuery(event=item.id, kinds=LIFE_KINDS, limit=ENTRY_PAGE)):
            item.add_entry(row)
    if len(incomplete) > MAX_LOOKUPS:
        more = show_count(len(incomplete) - MAX_LOOKUPS, "event")
        omissions.append(f"Of {more}, only what happened near this range is shown: choose a shorter range.")
    async for item in iterate_gradually(ended):
        item.hosts = _present_hosts(replica, item)
    return ended, omissions


def _present_hosts(replica: Replica, item: TimelineItem) -> tuple[str, ...]:
    """Return where the VMs of an ended event run now: the journal does not say where they ran."""
    scope, _ = replica.newest(item.scope)
    found = () if scope is None else (scope.roster.find(name) for name in item.vms)
    return tuple(dict.fromkeys(vm.host for vm in found if vm is not None and vm.host is not None))


async def _planned_waves(state: AppState, campaign: Campaign, shown: Span) -> AsyncIterator[TimelineItem]:
    """Yield the waves of a campaign in the range that are not announced yet, at their planned times."""
    context = state.fleet.scopes.rule_context
    notice, length = wave_notice(campaign.spec, context), wave_duration(campaign.spec, context)
    selector = Selector(campaign.spec.selection)
    async for progress, number, wave in iterate_gradually(coming_waves(campaign)):
        start = campaign.moment(progress, wave.planned)
        if start - notice > shown.end or start + length < shown.start:
            continue
        scope, _ = state.fleet.replica.newest(progress.scope)
        selected = () if scope is None else selector.select(scope)
        vms = [vm for vm in selected if vm.update_domain == wave.update_domain]
        yield TimelineItem(
            id=f"{campaign.id}/{progress.scope}/{number}",
            scope=progress.scope,
            type=campaign.spec.type.value,
            vms=tuple(vm.name for vm in vms),
            hosts=tuple(dict.fromkeys(vm.host for vm in vms if vm.host is not None)),
            update_domain=wave.update_domain,
            campaign=campaign.id,
            wave=str(number),
            state=PLANNED,
            created_at=start - notice,
            not_before=start,
            duration=length,
        )


def _backgrounds(campaigns: list[Campaign], shown: Span, wanted: TimelineFilter) -> Iterator[ChartBackground]:
    """Yield the windows and black-outs of the campaigns that ran or run in the range."""
    for campaign in campaigns:
        ran = Span(max(shown.start, campaign.started_at), min(shown.end, campaign.ended_at or shown.end))
        if ran.start < ran.end and wanted.campaign in ("", campaign.id):
            yield from policy_backgrounds(campaign.spec.policy, ran, name=campaign.name)


def _merged(backgrounds: Iterable[ChartBackground]) -> tuple[ChartBackground, ...]:
    """Return windows and black-outs at the same time as one, with the labels of all."""
    labels: dict[tuple[BackgroundKind, int, int], set[str]] = {}
    for each in backgrounds:
        labels.setdefault((each.kind, each.start, each.end), set()).add(each.label)
    return tuple(
        ChartBackground(kind=kind, start=start, end=end, label=name_list(sorted(names), NAMES_SHOWN))
        for (kind, start, end), names in labels.items()
    )
