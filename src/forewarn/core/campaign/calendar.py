"""The calendar of a campaign: when a wave can start, and whether limits leave room for it then.

The plan, the announcement of waves and the estimate ask the same calendar, so that they mean the same by a start."""

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
    """Return the least time from the end of a scope's wave to the start of its next."""
    return _apply_speed(spec.policy.gap, context)


def wave_duration(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return how long a wave is expected to take."""
    return max(_apply_speed(spec.expected, context), SECOND)


def _apply_speed(time: timedelta, context: RuleContext) -> timedelta:
    """Return the time as the service keeps it, rounded up to whole seconds."""
    seconds = -(-(time / context.policy.speed) // SECOND)
    return seconds * SECOND


LoadChange = tuple[datetime, int, Load, bool]
"""A moment at which a load comes or goes, the number of this change, the load, and whether it comes."""


class Calendar:
    """The times of a campaign's waves, the windows from `since` on, and the load that is expected at a moment.

    Windows are worked out as far as they are asked for, up to a year from `since`. The load is that of one moment,
    which `set_moment` chooses and `advance` moves forward.
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
        """From the end of a scope's wave to the start of its next, which is announced only then."""
        self.limits = limits
        self.is_limited = limits != CampaignLimits()
        self._zones = zones
        self._set_since(since)
        self.set_moment(since)

    # Windows.

    def next_start(self, moment: datetime) -> datetime | None:
        """Return the first moment, not before this one, at which a wave may start; None: never.

        A window that opens within a second opens at the next whole one, as waves start then.
        """
        while not self._ends or self._ends[-1] <= moment:
            span = next(self._spans, None)
            if span is None:
                return None
            start = ceil_to_second(span.start)
            # One that ends earlier than another that began before it adds nothing.
            if start < span.end and (not self._ends or span.end > self._ends[-1]):
                self._starts.append(start)
                self._ends.append(span.end)
        return max(moment, self._starts[bisect_right(self._ends, moment)])

    def is_open(self, moment: datetime) -> bool:
        """Tell whether waves may start at the moment, by windows and black-outs."""
        return self.next_start(moment) == moment

    def keep_current(self, now: datetime) -> None:
        """Let the year in which windows are looked for begin today; ask for nothing earlier afterwards."""
        if not self._since <= now < self._since + DAY:
            self._set_since(now)

    def _set_since(self, since: datetime) -> None:
        self._since = since = since.replace(microsecond=0)  # without windows, all times from here on are open
        self._spans = start_spans(self.spec.policy, since, self.length, self._zones)
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []

    def first_start(self, now: datetime, *, rested_at: datetime, planned_at: datetime) -> datetime | None:
        """Return when a wave could start whose scope has rested then, if it were announced as soon as that makes sense.

        None: no window is open within a year.
        """
        start = max(rested_at, ceil_to_second(now + self.notice))
        if self.spec.start_at is not None:
            start = max(start, self.spec.start_at + self.notice)
        if not self.spec.policy.advance:
            start = max(start, planned_at)
        return self.next_start(start)

    # Room.

    def set_moment(self, moment: datetime) -> None:
        """Forget what is expected, and count what is in impact at this moment from now on."""
        self._moment, self._usage = moment, Usage()
        self._load_changes: list[LoadChange] = []
        self._change_count = 0
        self._is_heap = False
        """Whether the changes are a heap, as they are once somebody has asked for the next."""

    def expect(self, load: Load, start: datetime, end: datetime) -> None:
        """Count a load from its start to its end: no wave without room for it lasts into that time."""
        if end <= self._moment:
            return
        if start <= self._moment or (comes_at := start - self.length + SECOND) <= self._moment:
            self._usage.add(load)
        else:
            self._add_load_change(comes_at, load, comes=True)
        if end < FAR_FUTURE:
            self._add_load_change(end, load, comes=False)

    def advance(self, moment: datetime) -> None:
        """Count what is in impact at a later moment."""
        self._moment = moment
        while (at := self.next_change) is not None and at <= moment:
            _, _, load, comes = heappop(self._load_changes)
            if comes:
                self._usage.add(load)
            else:
                self._usage.remove(load)

    @property
    def next_change(self) -> datetime | None:
        """When a load comes or goes next."""
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
        """The hosts that have something in impact."""
        return self._usage.hosts

    def fits(self, load: Load) -> bool:
        """Tell whether limits leave room for a load."""
        return self.limits.allows(self._usage.plus(load))

    def exceeded(self, load: Load) -> ExceededLimit | None:
        """Return the limit that leaves no room for a load; None: there is room."""
        amounts = self._usage.plus(load)
        return None if self.limits.allows(amounts) else self.limits.exceeded(amounts)[0]


def calendar_of(campaign: Campaign, context: RuleContext, zones: ZoneLookup, *, since: datetime) -> Calendar:
    """Return the calendar of a started campaign: its limits are of what was selected then."""
    limits = resolve_limits(campaign.spec.policy, campaign.selected)
    return Calendar(campaign.spec, context, zones, since=since, limits=limits)
