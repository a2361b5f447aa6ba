"""An event or a planned wave on the timeline: what is known of its life, and how a chart shows it. No I/O."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import quote, urlencode

import msgspec

from forewarn.core.campaign.windows import Span
from forewarn.core.change import OUTCOMES
from forewarn.core.event import Event, State
from forewarn.core.explain import has_only_stuck_work
from forewarn.core.journal import EntryKind
from forewarn.core.scope import EventOutcome
from forewarn.operator.dashboard.session_middleware import ROOT
from forewarn.operator.dashboard.time_chart import BarKind, ChartBar, ChartItem, ChartOutcome, name_list, to_seconds
from forewarn.store.port import JournalRow

LIFE_KINDS = (EntryKind.SCHEDULED, EntryKind.APPROVED, EntryKind.STARTED, *OUTCOMES)
"""The entries of the journal that `TimelineItem.add_entry` reads."""

MARKS = {
    EventOutcome.COMPLETED: ChartOutcome.DONE,
    EventOutcome.CANCELED: ChartOutcome.CANCELED,
    EventOutcome.FAILED: ChartOutcome.FAILED,
}

PLANNED = "planned"
"""The state of a wave that was not announced yet."""

Grouping = Literal["scope", "host", "vm"]
"""What a row is."""


class TimelineItem(msgspec.Struct, kw_only=True):
    """An event or a planned wave. Times that are unknown, or have not come, are None."""

    id: str
    scope: str
    type: str = ""
    vms: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    update_domain: int | None = None
    campaign: str = ""
    wave: str = ""
    reason: str = ""
    state: str = ""
    created_at: datetime | None = None
    not_before: datetime | None = None
    approved_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: EventOutcome | None = None
    duration: timedelta | None = None
    is_open: bool = False
    is_stuck: bool = False
    is_announced: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether the entries of an ended event included its first and its last one."""
        return bool(self.type) and self.ended_at is not None

    def add_entry(self, row: JournalRow) -> None:
        """Add what an entry of the journal says about an event. Entries can come in any order."""
        entry = row.entry
        if entry.kind in OUTCOMES:
            self.outcome, self.ended_at = OUTCOMES[entry.kind], entry.at
            self.state = self.outcome.value
        elif entry.kind is EntryKind.APPROVED:
            self.approved_at = min(entry.at, self.approved_at or entry.at)
        elif entry.kind is EntryKind.STARTED:
            self.started_at = entry.at
        if "type" in entry.facts:  # its first entry
            self.type = entry.facts["type"]
            self.campaign = entry.facts.get("campaign", "")
            self.wave = entry.facts.get("wave", "")
            self.is_announced = "unannounced" not in entry.facts
            self.reason = entry.why
            self.created_at = entry.at
        if len(entry.vms) > len(self.vms):
            self.vms = entry.vms

    def is_within(self, shown: Span, now: datetime) -> bool:
        """Return whether it has a time in common with a range."""
        times = (self.created_at, self.not_before, self.approved_at, self.started_at, self.ended_at)
        known = [time for time in times if time is not None]
        if not known:
            return False
        end = self.ended_at or max(known) + (self.duration or timedelta(0))
        return min(known) <= shown.end and (max(end, now) if self.is_open else end) >= shown.start

    def rows(self, group: Grouping) -> list[str]:
        """Return the names of the rows that it is in; an empty name if its hosts are unknown."""
        match group:
            case "scope":
                return [self.scope]
            case "host":
                return list(self.hosts) or [""]
            case "vm":
                return [f"{self.scope}/{name}" for name in self.vms] or [self.scope]

    def show(self, group: Grouping, campaigns: Mapping[str, str], now: datetime) -> ChartItem:
        """Return it as a chart shows it; `campaigns` has the names of those that the caller may see."""
        campaign = campaigns.get(self.campaign, "")
        if self.state == PLANNED:
            label, href = f"{campaign} wave {self.wave}", f"{ROOT}/campaigns/{quote(self.campaign, safe='')}"
        else:
            label, href = f"{self.type or 'Event'} {self.id[:8]}", f"{ROOT}/events/{self.id}"
        return ChartItem(
            label=label,
            href=href,
            bars=tuple(self._bars(now)),
            facts=tuple(self._facts(group, campaign, now)),
            mark=None if self.outcome is None else MARKS[self.outcome],
        )

    def _facts(self, group: Grouping, campaign: str, now: datetime) -> Iterator[tuple[str, str]]:
        is_late = self.state == PLANNED and self.created_at is not None and self.created_at < now
        yield "State", f"{self.state}, but late" if is_late else self.state or "ended"
        if group != "scope":
            yield "Scope", self.scope
        if self.state == PLANNED:
            yield "Type", self.type
        if self.vms:
            yield "VMs", name_list(self.vms)
        if self.update_domain is not None:
            yield "Update domain", str(self.update_domain)
        if self.hosts and group != "host":
            yield "Host", name_list(self.hosts)
        if campaign and self.state != PLANNED:
            yield "Campaign", f"{campaign}, wave {self.wave}" if self.wave else campaign
        if self.reason:
            yield "Reason", self.reason
        if not self.is_announced:
            yield "Announced", "no: no VM of the scope polls"

    def _bars(self, now: datetime) -> Iterator[ChartBar]:
        """Yield the phases; a later one is drawn over an earlier one."""
        start = self.started_at or self.ended_at or self.not_before
        first = self.created_at or self.approved_at
        if first is not None and start is not None and first < start:
            yield _bar(BarKind.PLANNED if self.state == PLANNED else BarKind.NOTICE, first, start)
        if self.approved_at is not None:
            yield _bar(BarKind.APPROVAL, self.approved_at, self.started_at or self.ended_at)
        if self.started_at is not None:
            yield _bar(BarKind.STUCK if self.is_stuck else BarKind.IMPACT, self.started_at, self.ended_at)
        elif self.ended_at is None and self.not_before is not None:
            if self.is_open and self.not_before < now:
                yield _bar(BarKind.WAITING, self.not_before, None)
            else:
                yield _bar(BarKind.EXPECTED, self.not_before, self.not_before + (self.duration or timedelta(0)))


class TimelineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events and waves to show; an empty field matches all."""

    text: str = ""
    """A part of the name of a scope, VM or host, in lower case."""
    type: str = ""
    campaign: str = ""
    """The id of a campaign."""

    def matches(self, item: TimelineItem) -> bool:
        """Return whether an item matches."""
        return (
            self.type in ("", item.type)
            and self.campaign in ("", item.campaign)
            and (not self.text or any(self.text in name.casefold() for name in (item.scope, *item.vms, *item.hosts)))
        )


def open_event(scope: str, event: Event) -> TimelineItem:
    """Return an open event of a scope."""
    is_stuck = has_only_stuck_work(event)
    return TimelineItem(
        id=event.id,
        scope=scope,
        type=event.type.value,
        vms=event.vms,
        hosts=() if event.host is None else (event.host,),
        update_domain=event.update_domain,
        campaign=event.campaign,
        reason=event.why,
        state="stuck" if is_stuck else "in impact" if event.state is State.STARTED else "scheduled",
        created_at=event.created_at,
        not_before=event.not_before,
        approved_at=min((approval.at for approval in event.approvals), default=None),
        started_at=event.started_at,
        duration=event.duration,
        is_open=True,
        is_stuck=is_stuck,
        is_announced=event.announced,
    )


def row_link(name: str, group: Grouping) -> str | None:
    """Return the page of what a row is; None if it is unknown."""
    if not name:
        return None
    match group:
        case "scope":
            return f"{ROOT}/fleet?{urlencode({'scope': name})}"
        case "host":
            return f"{ROOT}/fleet?{urlencode({'view': 'hosts', 'host': name})}"
        case "vm":
            return f"{ROOT}/vms/{quote(name, safe='/')}"


def _bar(kind: BarKind, start: datetime, end: datetime | None) -> ChartBar:
    return ChartBar(kind, to_seconds(start), None if end is None else max(to_seconds(end), to_seconds(start)))
