"""The calendar of a campaign: when its waves can start, apart from limits.

Plan, announcement, clearing and estimate use the same calendar, so that they agree about starts.
"""

from bisect import bisect_right
from datetime import datetime, timedelta
from typing import TypeVar

from forewarn.core.campaign.record import SECOND
from forewarn.core.campaign.spec import CampaignSpec
from forewarn.core.campaign.windows import DAY, ZoneLookup, start_spans
from forewarn.core.duration import at_speed
from forewarn.core.policy import RuleContext
from forewarn.core.schedule import ceil_to_second

NEVER_OPEN = "no window is open within a year"

Time = TypeVar("Time", datetime, int)
"""A time, or the seconds since the campaign started."""


def wave_notice(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return the time from a wave's announcement to its start."""
    notice, policy = spec.policy.notice, context.policy
    return _whole_seconds(policy.faster_notice(policy.minimum_notice[spec.type] if notice is None else notice))


def wave_gap(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return the shortest time from the end of a scope's wave to the start of its next."""
    return _whole_seconds(at_speed(spec.policy.gap, context.policy.speed))


def wave_duration(spec: CampaignSpec, context: RuleContext) -> timedelta:
    """Return how long a wave is expected to take."""
    return max(_whole_seconds(at_speed(spec.expected, context.policy.speed)), SECOND)


def _whole_seconds(duration: timedelta) -> timedelta:
    """Return the duration rounded up to whole seconds."""
    return -(-duration // SECOND) * SECOND


def announce_at(spec: CampaignSpec, now: datetime) -> datetime:
    """Return the first time, not before now, at which a wave may be announced."""
    return ceil_to_second(now if spec.start_at is None else max(now, spec.start_at))


class Calendar:
    """The times of a campaign's waves, and its windows from `since` on.

    Windows are computed only as far as needed, up to a year from `since`.
    """

    def __init__(self, spec: CampaignSpec, context: RuleContext, zones: ZoneLookup, *, since: datetime) -> None:
        self.spec = spec
        self.notice, self.gap = wave_notice(spec, context), wave_gap(spec, context)
        self.length = wave_duration(spec, context)
        self.rest = max(self.gap, self.notice)
        """From the end of a scope's wave to the start of its next one, which is announced only after that end."""
        self._zones = zones
        self._set_since(since)

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

    def earliest_start(self, not_before: Time, *, rested_at: Time, planned_at: Time) -> Time:
        """Return when a wave may start at the earliest, apart from windows.

        `not_before`: when its notice is over. `rested_at`: when the gap after its scope's previous wave is over.
        """
        start = max(not_before, rested_at)
        return start if self.spec.policy.advance else max(start, planned_at)

    def first_start(self, now: datetime, *, rested_at: datetime, planned_at: datetime) -> datetime | None:
        """Return the earliest start of a wave that is announced as soon as possible; None: not within a year."""
        not_before = announce_at(self.spec, now) + self.notice
        return self.next_start(self.earliest_start(not_before, rested_at=rested_at, planned_at=planned_at))
