"""Charts of a campaign: its plan before the start, and afterwards the plan against what happened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, zip_longest
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from forewarn.core.campaign.calendar import wave_duration, wave_notice
from forewarn.core.campaign.plan import Plan, PlannedWave
from forewarn.core.campaign.record import Campaign, ScopeProgress, WaveState
from forewarn.core.campaign.spec import CampaignPolicy
from forewarn.core.campaign.windows import Span, start_spans
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.policy import RuleContext
from forewarn.core.text import natural_sort_key
from forewarn.fleet.campaign.time_zones import find_zone
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.time_chart import (
    BackgroundKind,
    BarKind,
    ChartBackground,
    ChartBar,
    ChartItem,
    ChartOutcome,
    ChartRow,
    TimeChart,
    name_list,
    to_seconds,
)

MAX_SCOPES = 100
"""How many scopes a chart has."""

MAX_BACKGROUNDS = 300
"""How many windows, black-outs and stops it has."""

MARGIN = 0.04
"""The share of the range that is shown before and after it."""

PHASES = {
    EntryKind.WAVE_ANNOUNCED: BarKind.NOTICE,
    EntryKind.WAVE_UNANNOUNCED: BarKind.PLANNED,
    EntryKind.WAVE_CLEARED: BarKind.IMPACT,
    EntryKind.WAVE_FAILED: BarKind.STUCK,
    EntryKind.WAVE_RETRIED: BarKind.IMPACT,
}
"""The phase of a wave that begins with an entry of the journal."""

ENDS = (EntryKind.WAVE_SETTLED, EntryKind.WAVE_SKIPPED, EntryKind.WAVE_LEFT)
"""The entries with which a wave ends."""

OUTCOMES = {
    WaveState.DONE: ChartOutcome.DONE,
    WaveState.SKIPPED: ChartOutcome.CANCELED,
    WaveState.LEFT: ChartOutcome.CANCELED,
    WaveState.FAILED: ChartOutcome.FAILED,
}

STOPS = {
    EntryKind.GATE_CLOSED: ("Gate closed", (EntryKind.GATE_OPENED,)),
    EntryKind.CAMPAIGN_PAUSED: ("Paused", (EntryKind.CAMPAIGN_RESUMED, EntryKind.CAMPAIGN_ABORTED)),
    EntryKind.CAMPAIGN_HALTED: ("Halted", (EntryKind.CAMPAIGN_RESUMED, EntryKind.CAMPAIGN_ABORTED)),
}
"""Entries with which a campaign stops, with a name and the entries with which it continues."""

CHART_KINDS = (
    *PHASES,
    *ENDS,
    *STOPS,
    EntryKind.GATE_OPENED,
    EntryKind.CAMPAIGN_RESUMED,
    EntryKind.CAMPAIGN_ABORTED,
    EntryKind.CAMPAIGN_ENDED,
)
"""The entries of a campaign's journal that its chart shows."""


class CampaignChart(NamedTuple):
    """A chart, and how many scopes found no room in it."""

    chart: TimeChart
    omitted: int


def plan_chart(plan: Plan, policy: CampaignPolicy, *, now: datetime) -> CampaignChart:
    """Return the planned waves, a row per scope in the order of their starts."""
    waves = plan.by_scope()
    missing: dict[str, int] = {}
    for each in plan.unplaced:
        waves.setdefault(each.scope, [])
        missing[each.scope] = missing.get(each.scope, 0) + len(each.vms)
    rows = tuple(
        ChartRow(
            label=scope,
            href=_scope_link(scope),
            note=f"{missing[scope]:,} unplaced" if scope in missing else "",
            items=tuple(map(_planned_item, found)),
        )
        for scope, found in islice(waves.items(), MAX_SCOPES)
    )
    shown = Span(min((wave.announce_at for wave in plan.waves), default=now), plan.ends_at or now + timedelta(hours=1))
    return CampaignChart(_chart(rows, shown, policy_backgrounds(policy, shown)), max(len(waves) - MAX_SCOPES, 0))


def _planned_item(wave: PlannedWave) -> ChartItem:
    announced = () if wave.announced else (("Announced", "no: no VM of the scope polls"),)
    return ChartItem(
        label=f"Wave {wave.n}",
        bars=_planned_bars(wave.announce_at, wave.not_before, wave.ends_at)[not wave.announced :],
        facts=(
            ("Update domain", str(wave.update_domain)),
            ("VMs", name_list(wave.vms)),
            ("Hosts", name_list(wave.hosts)),
            *announced,
        ),
    )


def _planned_bars(announced_at: datetime, start: datetime, end: datetime) -> tuple[ChartBar, ChartBar]:
    return _bar(BarKind.PLANNED, announced_at, start), _bar(BarKind.EXPECTED, start, end)


def progress_chart(
    campaign: Campaign, entries: Iterable[Entry], context: RuleContext, *, now: datetime
) -> CampaignChart:
    """Return the planned waves of a campaign and below them what happened, a row per scope.

    `entries` are those of its journal, the oldest first. Of many scopes, those that need attention come first.
    """
    listed = list(entries)
    history: dict[tuple[str, str], list[Entry]] = {}
    for entry in listed:
        if entry.kind in PHASES or entry.kind in ENDS:
            history.setdefault((entry.facts["scope"], entry.facts["wave"]), []).append(entry)
    chosen = sorted(sorted(campaign.scopes, key=_urgency)[:MAX_SCOPES], key=lambda each: natural_sort_key(each.scope))
    rows = tuple(
        ChartRow(
            label=progress.scope,
            href=_scope_link(progress.scope),
            items=tuple(_items(campaign, progress, history, context, now)),
        )
        for progress in chosen
    )
    end = campaign.ended_at or now
    shown = Span(campaign.started_at, max(end, campaign.planned_end or end))
    backgrounds = (*policy_backgrounds(campaign.spec.policy, shown), *_stops(listed, end=end))
    return CampaignChart(_chart(rows, shown, backgrounds), max(len(campaign.scopes) - MAX_SCOPES, 0))


def _urgency(progress: ScopeProgress) -> int:
    """Return how early a scope is chosen: failed waves, then open ones, then planned ones, then finished scopes."""
    state = progress.current_state
    if state is None:
        return 3
    return 0 if state is WaveState.FAILED else 1 if state.is_open else 2


def _items(
    campaign: Campaign,
    progress: ScopeProgress,
    history: Mapping[tuple[str, str], Sequence[Entry]],
    context: RuleContext,
    now: datetime,
) -> Iterator[ChartItem]:
    notice, length = wave_notice(campaign.spec, context), wave_duration(campaign.spec, context)
    for number, wave in enumerate(progress.waves, 1):
        start = campaign.moment(progress, wave.planned)
        facts = (("Update domain", str(wave.update_domain)), ("VMs", f"{wave.vms:,}"))
        yield ChartItem(
            label=f"Wave {number}",
            bars=_planned_bars(start - notice, start, start + length),
            facts=(*facts, ("State", "plan")),
            plan=True,
        )
        state, entries = campaign.effective_state(wave), history.get((progress.scope, str(number)), ())
        bars = tuple(_actual_bars(entries, length, now=now))
        if not bars and state in OUTCOMES and wave.at:  # the journal no longer has it
            at = to_seconds(campaign.moment(progress, wave.at))
            bars = (ChartBar(BarKind.WAVE, at, at),)
        if bars:
            known = (*facts, ("State", state.text))
            yield ChartItem(label=f"Wave {number}", bars=bars, facts=known, mark=OUTCOMES.get(state))


def _actual_bars(entries: Sequence[Entry], length: timedelta, *, now: datetime) -> Iterator[ChartBar]:
    """Yield the phases of a wave: each lasts until its next entry, or until now."""
    for entry, following in zip_longest(entries, entries[1:]):
        if entry.kind not in PHASES:
            continue
        kind, end = PHASES[entry.kind], None if following is None else following.at
        due = _time_fact(entry, "not_before")
        if due is None:
            yield _bar(kind, entry.at, end)
            continue
        yield _bar(kind, entry.at, min(due, end or due))
        if due < (end or now):
            yield _bar(BarKind.WAITING, due, end)
        elif end is None:
            yield _bar(BarKind.EXPECTED, due, due + length)


def _time_fact(entry: Entry, name: str) -> datetime | None:
    try:
        return msgspec.convert(entry.facts.get(name), type=datetime)
    except msgspec.ValidationError:
        return None


def _stops(entries: Sequence[Entry], *, end: datetime) -> Iterator[ChartBackground]:
    """Yield when the gate was closed and when the campaign was paused or halted."""
    for position, entry in enumerate(entries):
        if entry.kind in STOPS:
            name, continuations = STOPS[entry.kind]
            kinds = (*continuations, EntryKind.CAMPAIGN_ENDED)
            until = next((later.at for later in entries[position + 1 :] if later.kind in kinds), end)
            yield _background(BackgroundKind.STOP, Span(entry.at, until), f"{name}: {entry.why}" if entry.why else name)


def policy_backgrounds(policy: CampaignPolicy, shown: Span, *, name: str = "") -> Iterator[ChartBackground]:
    """Yield the black-outs and windows of a policy in a range; their labels have the name of its campaign, if given."""
    for out in policy.blackouts:
        if out.start < shown.end and out.end > shown.start:
            yield _background(BackgroundKind.BLACKOUT, Span(out.start, out.end), out.why or name or "Black-out")
    if policy.windows:
        whole = msgspec.structs.replace(policy, blackouts=(), must_end_inside=False)
        for span in start_spans(whole, shown.start, timedelta(0), find_zone):
            if span.start >= shown.end:
                return
            yield _background(BackgroundKind.WINDOW, span, name or "Window")


def _background(kind: BackgroundKind, span: Span, label: str) -> ChartBackground:
    return ChartBackground(kind=kind, start=to_seconds(span.start), end=to_seconds(span.end), label=label)


def _bar(kind: BarKind, start: datetime, end: datetime | None) -> ChartBar:
    return ChartBar(kind, to_seconds(start), None if end is None else to_seconds(end))


def _scope_link(scope: str) -> str:
    return f"{ROOT}/fleet?{urlencode({'scope': scope})}"


def _chart(rows: tuple[ChartRow, ...], shown: Span, backgrounds: Iterable[ChartBackground]) -> TimeChart:
    margin = int(MARGIN * (shown.end - shown.start).total_seconds()) + 60
    return TimeChart(
        start=to_seconds(shown.start) - margin,
        end=to_seconds(shown.end) + margin,
        rows=rows,
        backgrounds=tuple(islice(backgrounds, MAX_BACKGROUNDS)),
    )
