"""The calendar of a campaign: when a wave can start, and whether limits leave room for it then.

The plan, the announcement of waves and the estimate use the same calendar, so that they agree about starts.
"""

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush

from forewarn.core.campaign.limits import CampaignLimits, ExceededLimit, Load, Usage, resolve_limits
from forewarn.core.campaign.record import SECOND, Campaign
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.campaign.windows import DAY, ZoneLookup, start_spans
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ceil_to_second

FAR_FUTURE = datetime.max.replace(tzinfo=UTC)


def wave_notice(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return the time from a wave's announcement to its start."""
    notice = spec.policy.notice
    return _apply_speed(context.policy.minimum_notice[spec.type] if notice is None else notice, context)


def wave_gap(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return the shortest time from the end of a scope's wave to the start of its next."""
    return _apply_speed(spec.policy.gap, context)


def wave_duration(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return how long a wave is expected to take."""
    return max(_apply_speed(spec.expected, context), SECOND)


def _apply_speed(time: timedelta, context: RuleContext) -> timedelta:
    """Return the duration divided by the service's speed, rounded up to whole seconds."""
    seconds = -(-(time / context.policy.speed) // SECOND)
    return seconds * SECOND


LoadChange = tuple[datetime, int, Load, bool]
"""The time at which a load starts or ends, a sequence number, the load, and whether it starts."""


class Calendar:
    """The times of a campaign's waves, the windows from `since` on, and the load that is expected at one time.

    Windows are computed only as far as needed, up to a year from `since`. `set_moment` sets the time of the load, and
    `advance` moves it forward.
    """

    def __init__(
        self,
        spec: CampaignSpec,
        context: RuleContext,
        zones: ZoneLookup,
        *,
        since: datetime,
        limits: CampaignLimits,
    ) -> None:
        self.spec = spec
        self.notice, self.gap = wave_notice(spec, context), wave_gap(spec, context)
        self.length = wave_duration(spec, context)
        self.rest = max(self.gap, self.notice)
        """From the end of a scope's wave to the start of its next one, which is announced only after that end."""
        self.limits = limits
        self.is_limited = limits != CampaignLimits()
        self._zones = zones
        self._set_since(since)
        self.set_moment(since)

    # Windows.

    def next_start(self, moment: datetime) -> datetime | None:
        """Return the first time, not before this one, at which a wave may start; None: never.

        A window that opens within a second counts from the next whole second, because waves start at whole seconds.
        """
        while not self._ends or self._ends[-1] <= moment:
            span = next(self._spans, None)
            if span is None:
                return None
            start = ceil_to_second(span.start)
            # A span that ends before an earlier one does adds nothing.
            if start < span.end and (not self._ends or span.end > self._ends[-1]):
                self._starts.append(start)
                self._ends.append(span.end)
        return max(moment, self._starts[bisect_right(self._ends, moment)])

    def is_open(self, moment: datetime) -> bool:
        """Return whether windows and black-outs allow waves to start at this time."""
        return self.next_start(moment) == moment

    def keep_current(self, now: datetime) -> None:
        """Let the year in which windows are searched start now; do not ask for an earlier time afterwards."""
        if not self._since <= now < self._since + DAY:
            self._set_since(now)

    def _set_since(self, since: datetime) -> None:
        self._since = since = since.replace(microsecond=0)  # without windows, everything from here on is open
        self._spans = start_spans(self.spec.policy, since, self.length, self._zones)
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []

    def first_start(self, now: datetime, *, rested_at: datetime, planned_at: datetime) -> datetime | None:
        """Return the earliest start of a wave whose scope's gap ends at `rested_at`, if it is announced at once.

        None: no window is open within a year.
        """
        start = max(rested_at, ceil_to_second(now + self.notice))
        if self.spec.start_at is not None:
            start = max(start, self.spec.start_at + self.notice)
        if not self.spec.policy.advance:
            start = max(start, planned_at)
        return self.next_start(start)

    # Load.

    def set_moment(self, moment: datetime) -> None:
        """Clear all expected loads, and set the time of the load."""
        self._moment, self._usage = moment, Usage()
        self._load_changes: list[LoadChange] = []
        self._change_count = 0
        self._is_heap = False
        """Whether the changes are a heap, which they become when the next one is first requested."""

    def expect(self, load: Load, start: datetime, end: datetime) -> None:
        """Add a load from its start to its end; no wave is placed that would exceed a limit in that time."""
        if end <= self._moment:
            return
        if start <= self._moment or (comes_at := start - self.length + SECOND) <= self._moment:
            self._usage.add(load)
        else:
            self._add_load_change(comes_at, load, comes=True)
        if end < FAR_FUTURE:
            self._add_load_change(end, load, comes=False)

    def advance(self, moment: datetime) -> None:
        """Move the time of the load forward."""
        self._moment = moment
        while (at := self.next_change) is not None and at <= moment:
            _, _, load, comes = heappop(self._load_changes)
            if comes:
                self._usage.add(load)
            else:
                self._usage.remove(load)

    @property
    def next_change(self) -> datetime | None:
        """The next time at which a load starts or ends."""
        if not self._is_heap:
            heapify(self._load_changes)
            self._is_heap = True
        return self._load_changes[0][0] if self._load_changes else None

    def _add_load_change(self, at: datetime, load: Load, *, comes: bool) -> None:
        self._change_count += 1
        change = (at, self._change_count, load, comes)
        if self._is_heap:
            heappush(self._load_changes, change)
        else:
            self._load_changes.append(change)

    @property
    def hosts(self) -> set[str]:
        """The hosts with a load."""
        return self._usage.hosts

    def fits(self, load: Load) -> bool:
        """Return whether the limits leave room for a load."""
        return self.limits.allows(self._usage.plus(load))

    def exceeded(self, load: Load) -> ExceededLimit | None:
        """Return the limit that a load would exceed; None if there is room."""
        amounts = self._usage.plus(load)
        return None if self.limits.allows(amounts) else self.limits.exceeded(amounts)[0]


def calendar_of(campaign: Campaign, context: RuleContext, zones: ZoneLookup, *, since: datetime) -> Calendar:
    """Return the calendar of a started campaign, with the limits for what was selected at its start."""
    limits = resolve_limits(campaign.spec.policy, campaign.selected)
    return Calendar(campaign.spec, context, zones, since=since, limits=limits)
