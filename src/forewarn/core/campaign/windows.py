"""Maintenance windows in their time zones, and black-outs: when a wave may start.

If daylight saving time skips an hour, a window that would start in it starts after the jump, and a window that would
end in it ends at the jump. If an hour occurs twice, a window starts at its first and ends at its last occurrence.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from heapq import merge
from typing import NamedTuple

from forewarn.core.campaign.spec import MAX_CAMPAIGN_DURATION, WEEKDAYS, CampaignPolicy, Window

ZoneLookup = Callable[[str], tzinfo]
"""Finds a time zone by name. The shell passes `zoneinfo.ZoneInfo`, because pure code does not read files."""

INSTANT = timedelta(microseconds=1)
"""The shortest wave, so that one that starts at the very beginning of a black-out counts as in it."""

DAY = timedelta(days=1)


class Span(NamedTuple):
    """A time range from its start up to, but not including, its end."""

    start: datetime
    end: datetime


def next_start(policy: CampaignPolicy, moment: datetime, length: timedelta, zones: ZoneLookup) -> datetime | None:
    """Return the first time, not before this one, at which a wave of this length may start.

    It must start in a window and end before a black-out; it must end in the window only if the policy requires that.
    None if there is no such time within `MAX_CAMPAIGN_DURATION`.
    """
    return next((max(span.start, moment) for span in start_spans(policy, moment, length, zones)), None)


def start_spans(policy: CampaignPolicy, since: datetime, length: timedelta, zones: ZoneLookup) -> Iterator[Span]:
    """Yield, in order, the spans in which a wave of this length may start; the first may have begun before `since`."""
    length = max(length, INSTANT)
    before_end = length - INSTANT
    taken = sorted(Span(out.start - before_end, out.end) for out in policy.blackouts if out.end > since)
    windows, late = _windows(policy, since, zones), timedelta(0)
    if policy.must_end_inside:
        windows, late = _merge(windows), before_end
    for window in windows:
        yield from _subtract(Span(window.start, window.end - late), taken, since)


def longest_span(policy: CampaignPolicy, since: datetime, zones: ZoneLookup) -> timedelta:
    """Return the longest uninterrupted open time, within windows and between black-outs."""
    taken = sorted(Span(out.start, out.end) for out in policy.blackouts if out.end > since)
    spans = (span for window in _merge(_windows(policy, since, zones)) for span in _subtract(window, taken, since))
    return max(
        (min(span.end, since + MAX_CAMPAIGN_DURATION) - max(span.start, since) for span in spans), default=DAY * 0
    )


def _subtract(span: Span, taken: Sequence[Span], since: datetime) -> Iterator[Span]:
    start = span.start
    for out in taken:
        if start < out.start and start < span.end and since < min(out.start, span.end):
            yield Span(start, min(out.start, span.end))
        start = max(start, out.end)
    if start < span.end and since < span.end:
        yield Span(start, span.end)


def _windows(policy: CampaignPolicy, since: datetime, zones: ZoneLookup) -> Iterator[Span]:
    """Yield the windows that end after `since` and begin within `MAX_CAMPAIGN_DURATION`, in order of their starts.

    Without windows, one endless span.
    """
    until = since + MAX_CAMPAIGN_DURATION
    if not policy.windows:
        return iter((Span(since, until),))
    return merge(*(_spans(window, zones(window.zone or policy.zone), since, until) for window in policy.windows))


def _merge(spans: Iterator[Span]) -> Iterator[Span]:
    """Merge adjacent and overlapping spans, so that a wave may last from one window into the next."""
    current = next(spans, None)
    for span in spans:
        if current is not None and span.start <= current.end:
            current = Span(current.start, max(current.end, span.end))
        elif current is not None:
            yield current
            current = span
    if current is not None:
        yield current


def _spans(window: Window, zone: tzinfo, since: datetime, until: datetime) -> Iterator[Span]:
    """Yield the occurrences of a window, day by day. Even one of the day before yesterday can last until today."""
    day = since.astimezone(zone).date() - 2 * DAY
    while (span := _span_on(window, zone, day)).start < until:
        if _is_open_on(window, day) and span.start < span.end and span.end > since:
            yield span
        day += DAY


def _is_open_on(window: Window, day: date) -> bool:
    return not window.days or WEEKDAYS[day.weekday()] in window.days


def _span_on(window: Window, zone: tzinfo, day: date) -> Span:
    end_day = day if _is_within_a_day(window) else day + DAY
    end = time() if window.end == "24:00" else time.fromisoformat(window.end)
    start = datetime.combine(day, time.fromisoformat(window.start))
    return Span(_moment(start, zone, last=False), _moment(datetime.combine(end_day, end), zone, last=True))


def _is_within_a_day(window: Window) -> bool:
    return window.start < window.end < "24:00"


def _moment(wall: datetime, zone: tzinfo, *, last: bool) -> datetime:
    """Return when clocks in the zone first or last show this time; if they skip it, the time of the jump."""
    moment = wall.replace(tzinfo=zone, fold=int(last)).astimezone(UTC)
    if _wall(moment, zone) == wall:
        return moment
    # PEP 495: of a skipped time, fold=1 gives a time before the jump, and fold=0 one after it.
    low, high = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (middle, high) if _wall(middle, zone) < wall else (low, middle)
    return high


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)
