"""Maintenance windows in their time zones, and black-outs: when a wave may start.

A window that starts in an hour that is skipped (daylight saving time) starts after the jump; one that ends there ends
then. An hour that occurs twice belongs to the window from its first start to its last end.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from heapq import merge
from typing import NamedTuple

from forewarn.core.campaign.spec import MAX_CAMPAIGN_DURATION, WEEKDAYS, CampaignPolicy, Window

ZoneLookup = Callable[[str], tzinfo]
"""Finds a time zone by its name. The shell passes `zoneinfo.ZoneInfo`; pure code reads no files."""

INSTANT = timedelta(microseconds=1)
"""No wave is shorter: one that starts at the very beginning of a black-out would be in it."""

DAY = timedelta(days=1)


class Span(NamedTuple):
    """A time from its start up to, but without, its end."""

    start: datetime
    end: datetime


def is_open(policy: CampaignPolicy, moment: datetime, zones: ZoneLookup) -> bool:
    """Tell whether windows and black-outs let anything start at the moment."""
    return may_start(policy, moment, timedelta(0), zones)


def may_start(policy: CampaignPolicy, moment: datetime, length: timedelta, zones: ZoneLookup) -> bool:
    """Tell whether a wave of this length may start at the moment.

    It has to start in a window, to be over before a black-out, and to end in the window only where the policy says so.
    """
    return next_start(policy, moment, length, zones) == moment


def next_start(policy: CampaignPolicy, moment: datetime, length: timedelta, zones: ZoneLookup) -> datetime | None:
    """Return the first moment, not before this one, at which a wave of this length may start.

    None: there is none within `MAX_CAMPAIGN_DURATION`.
    """
    return next((max(span.start, moment) for span in start_spans(policy, moment, length, zones)), None)


def start_spans(policy: CampaignPolicy, since: datetime, length: timedelta, zones: ZoneLookup) -> Iterator[Span]:
    """Yield, in order, the times in which a wave of this length may start; the first may have begun before `since`."""
    length = max(length, INSTANT)
    before_end = length - INSTANT
    taken = sorted(Span(out.start - before_end, out.end) for out in policy.blackouts if out.end > since)
    windows, late = _windows(policy, since, zones), timedelta(0)
    if policy.must_end_inside:
        windows, late = _merge(windows), before_end
    for window in windows:
        yield from _subtract(Span(window.start, window.end - late), taken, since)


def longest_span(policy: CampaignPolicy, since: datetime, zones: ZoneLookup) -> timedelta:
    """Return the longest time, of windows and between black-outs, that is open without a break."""
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

    Without windows it is always open.
    """
    until = since + MAX_CAMPAIGN_DURATION
    if not policy.windows:
        return iter((Span(since, until),))
    return merge(*(_spans(window, zones(window.zone or policy.zone), since, until) for window in policy.windows))


def _merge(spans: Iterator[Span]) -> Iterator[Span]:
    """Yield spans that touch as one, so that a wave may go on from one window into the next."""
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
    """Yield a window as it comes round, day by day. The day before yesterday's can last until today at most."""
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
    """Return when clocks in the zone show this time, the first or the last time; if never, when they jump past it."""
    moment = wall.replace(tzinfo=zone, fold=int(last)).astimezone(UTC)
    if _wall(moment, zone) == wall:
        return moment
    # PEP 495: of a time that is skipped, fold=1 gives a moment before the jump and fold=0 one that is not.
    low, high = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (middle, high) if _wall(middle, zone) < wall else (low, middle)
    return high


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)
