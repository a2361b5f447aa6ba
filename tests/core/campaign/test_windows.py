"""Windows in the local time of their zones, and black-outs: every expectation is in UTC."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.core.campaign.spec import WEEKDAYS, Blackout, CampaignPolicy, Weekday, Window
from forewarn.core.campaign.windows import longest_span, next_start, start_spans
from tests.core.campaign.plan_invariants import is_open, may_start
from tests.support.examples import examples

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    """Parse a time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_window(text: str, zone: str = "Europe/Vienna") -> Window:
    """Parse a window such as `sat,sun 22:00-04:00`."""
    *days, hours = text.split()
    start, end = hours.split("-")
    return Window(days=tuple(Weekday(day) for day in ",".join(days).split(",") if day), start=start, end=end, zone=zone)


def spans(policy: CampaignPolicy, since: str, number: int = 3, length: timedelta = timedelta(0)) -> list[str]:
    found = start_spans(policy, at(since), length, ZoneInfo)
    return [f"{span.start:%m-%d %H:%M}/{span.end:%m-%d %H:%M}" for span, _ in zip(found, range(number), strict=False)]


@pytest.mark.parametrize(
    ("window", "zone", "since", "expected"),
    [
        # 2030-01-12 is a Saturday; Vienna is one hour ahead.
        ("sat 22:00-23:30", "Europe/Vienna", "2030-01-07", ["01-12 21:00/01-12 22:30", "01-19 21:00/01-19 22:30"]),
        ("sat 22:00-04:00", "Europe/Vienna", "2030-01-07", ["01-12 21:00/01-13 03:00", "01-19 21:00/01-20 03:00"]),
        (
            "sat 22:00-04:00",
            "Europe/Vienna",
            "2030-01-13T01:00",
            ["01-12 21:00/01-13 03:00", "01-19 21:00/01-20 03:00"],
        ),
        (
            "sat 22:00-04:00",
            "Europe/Vienna",
            "2030-01-13T03:00",
            ["01-19 21:00/01-20 03:00", "01-26 21:00/01-27 03:00"],
        ),
        ("sun 00:00-24:00", "UTC", "2030-01-07", ["01-13 00:00/01-14 00:00", "01-20 00:00/01-21 00:00"]),
        ("sun 12:00-12:00", "UTC", "2030-01-08", ["01-13 12:00/01-14 12:00", "01-20 12:00/01-21 12:00"]),
        # The day is that of the zone: Saturday evening in Honolulu is Sunday in UTC.
        ("sat 22:00-04:00", "Pacific/Honolulu", "2030-01-07", ["01-13 08:00/01-13 14:00", "01-20 08:00/01-20 14:00"]),
        ("09:15-09:45", "Asia/Kathmandu", "2030-01-07", ["01-07 03:30/01-07 04:00", "01-08 03:30/01-08 04:00"]),
        # Clocks in Vienna jump from 02:00 to 03:00 on 2030-03-31, at 01:00 UTC.
        ("01:30-03:30", "Europe/Vienna", "2030-03-31", ["03-31 00:30/03-31 01:30", "03-31 23:30/04-01 01:30"]),
        ("02:30-04:00", "Europe/Vienna", "2030-03-31", ["03-31 01:00/03-31 02:00", "04-01 00:30/04-01 02:00"]),
        ("01:00-02:30", "Europe/Vienna", "2030-03-31", ["03-31 00:00/03-31 01:00", "03-31 23:00/04-01 00:30"]),
        ("02:15-02:45", "Europe/Vienna", "2030-03-31", ["04-01 00:15/04-01 00:45", "04-02 00:15/04-02 00:45"]),
        ("sat 22:00-04:00", "Europe/Vienna", "2030-03-28", ["03-30 21:00/03-31 02:00", "04-06 20:00/04-07 02:00"]),
        # Clocks in Vienna go back from 03:00 to 02:00 on 2030-10-27, at 01:00 UTC: 02:00 to 03:00 comes twice.
        ("02:00-03:00", "Europe/Vienna", "2030-10-27", ["10-27 00:00/10-27 02:00", "10-28 01:00/10-28 02:00"]),
        ("02:15-02:45", "Europe/Vienna", "2030-10-27", ["10-27 00:15/10-27 01:45", "10-28 01:15/10-28 01:45"]),
        ("01:00-02:30", "Europe/Vienna", "2030-10-26T23:00", ["10-26 23:00/10-27 01:30", "10-28 00:00/10-28 01:30"]),
        ("sat 22:00-04:00", "Europe/Vienna", "2030-10-24", ["10-26 20:00/10-27 03:00", "11-02 21:00/11-03 03:00"]),
        # Lord Howe moves its clocks by half an hour: back on 2030-04-07 at 15:00 UTC the day before.
        (
            "01:30-02:30",
            "Australia/Lord_Howe",
            "2030-04-06T14:00",
            ["04-06 14:30/04-06 16:00", "04-07 15:00/04-07 16:00"],
        ),
        # Midnight was skipped in São Paulo on 2018-11-04: the day began at 01:00.
        ("sun 00:00-02:00", "America/Sao_Paulo", "2018-11-01", ["11-04 03:00/11-04 04:00", "11-11 02:00/11-11 04:00"]),
        # Samoa had no 2011-12-30.
        ("fri 10:00-12:00", "Pacific/Apia", "2011-12-28", ["01-05 20:00/01-05 22:00", "01-12 20:00/01-12 22:00"]),
    ],
)
def test_window_is_in_local_time_of_its_zone(window: str, zone: str, since: str, expected: list[str]) -> None:
    assert spans(CampaignPolicy(windows=(a_window(window, zone),)), since, len(expected)) == expected


def test_window_without_a_zone_uses_the_zone_of_the_policy() -> None:
    window = Window(start="09:00", end="10:00")
    assert spans(CampaignPolicy(windows=(window,)), "2030-01-07", 1) == ["01-07 09:00/01-07 10:00"]
    assert spans(CampaignPolicy(windows=(window,), zone="Asia/Tokyo"), "2030-01-07", 1) == ["01-07 00:00/01-07 01:00"]


def test_windows_of_several_zones_are_in_order() -> None:
    windows = tuple(a_window("02:00-04:00", zone) for zone in ("America/New_York", "Europe/Vienna", "Asia/Tokyo"))
    expected = ["01-07 01:00/01-07 03:00", "01-07 07:00/01-07 09:00", "01-07 17:00/01-07 19:00"]
    assert spans(CampaignPolicy(windows=windows), "2030-01-07") == expected


@pytest.mark.parametrize(
    ("moment", "opens_at"),
    [
        ("2030-01-12T20:59:59", "2030-01-12T21:00"),
        ("2030-01-12T21:00", "2030-01-12T21:00"),
        ("2030-01-13T02:59:59", "2030-01-13T02:59:59"),
        ("2030-01-13T03:00", "2030-01-19T21:00"),
    ],
)
def test_window_is_open_from_its_start_up_to_its_end(moment: str, opens_at: str) -> None:
    policy = CampaignPolicy(windows=(a_window("sat 22:00-04:00"),))
    assert next_start(policy, at(moment), timedelta(0), ZoneInfo) == at(opens_at)
    assert is_open(policy, at(moment), ZoneInfo) == (moment == opens_at)


def test_without_windows_it_is_always_open() -> None:
    assert is_open(CampaignPolicy(), at("2030-01-07T03:04:05"), ZoneInfo)


XMAS = Blackout(start=at("2030-12-24T12:00"), end=at("2030-12-27"), why="the shops")


@pytest.mark.parametrize(
    ("moment", "length", "fits_at"),
    [
        ("2030-12-24T11:00", HOUR, "2030-12-24T11:00"),
        ("2030-12-24T11:00:01", HOUR, "2030-12-27T00:00"),
        ("2030-12-24T11:59:59", timedelta(0), "2030-12-24T11:59:59"),
        ("2030-12-24T12:00", timedelta(0), "2030-12-27T00:00"),
        ("2030-12-26T23:59:59", HOUR, "2030-12-27T00:00"),
        ("2030-12-27T00:00", HOUR, "2030-12-27T00:00"),
    ],
)
def test_wave_ends_before_a_black_out(moment: str, length: timedelta, fits_at: str) -> None:
    policy = CampaignPolicy(blackouts=(XMAS,))
    assert next_start(policy, at(moment), length, ZoneInfo) == at(fits_at)
    assert may_start(policy, at(moment), length, ZoneInfo) == (at(moment) == at(fits_at))


def test_wave_ends_inside_the_window_if_the_policy_requires_it() -> None:
    windows = (a_window("22:00-02:00", "UTC"), a_window("02:00-03:00", "UTC"))
    policy = CampaignPolicy(windows=windows, must_end_inside=True)
    assert may_start(policy, at("2030-01-07T23:00"), 4 * HOUR, ZoneInfo), "adjacent windows count as one"
    assert next_start(policy, at("2030-01-07T23:00:01"), 4 * HOUR, ZoneInfo) == at("2030-01-08T22:00")
    assert next_start(policy, at("2030-01-07T23:00"), 6 * HOUR, ZoneInfo) is None
    assert longest_span(policy, at("2030-01-07T12:00"), ZoneInfo) == 5 * HOUR


def test_no_time_is_open_if_black_outs_cover_every_window() -> None:
    policy = CampaignPolicy(
        windows=(a_window("12:00-13:00", "UTC"),), blackouts=(Blackout(start=at("2030-01-01"), end=at("2032-01-01")),)
    )
    assert next_start(policy, at("2030-06-01"), timedelta(0), ZoneInfo) is None
    assert longest_span(policy, at("2030-06-01"), ZoneInfo) == timedelta(0)


def test_no_time_is_open_in_a_black_out_of_more_than_a_year() -> None:
    policy = CampaignPolicy(blackouts=(Blackout(start=at("2030-01-01"), end=at("2032-01-01")),))
    assert next_start(policy, at("2030-01-02"), timedelta(0), ZoneInfo) is None
    assert next_start(policy, at("2031-01-02"), timedelta(0), ZoneInfo) == at("2032-01-01")


def test_longest_open_time_is_between_black_outs() -> None:
    outs = (
        Blackout(start=at("2030-01-09"), end=at("2030-01-10")),
        Blackout(start=at("2030-01-12"), end=at("2040-01-01")),
    )
    assert longest_span(CampaignPolicy(blackouts=outs), at("2030-01-08"), ZoneInfo) == timedelta(days=2)


ZONES = [
    "UTC",
    "Europe/Vienna",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
    "Pacific/Apia",
]
CLOCK_TIMES = st.builds(
    lambda hour, minute: f"{hour:02}:{minute:02}", st.integers(0, 23), st.sampled_from([0, 15, 30, 59])
)
WINDOWS = st.builds(
    Window,
    days=st.sets(st.sampled_from(WEEKDAYS), max_size=3).map(lambda days: tuple(sorted(days, key=WEEKDAYS.index))),
    start=CLOCK_TIMES,
    end=CLOCK_TIMES,
    zone=st.sampled_from(ZONES),
)
# Days with and without a DST change somewhere.
DAYS = st.one_of(
    st.dates(date(2005, 1, 1), date(2035, 1, 1)),
    st.sampled_from([date(2030, 3, 31), date(2030, 10, 27), date(2030, 3, 10), date(2030, 11, 3), date(2011, 12, 30)]),
    st.sampled_from([date(2018, 2, 18), date(2018, 11, 4), date(2030, 4, 7), date(2030, 10, 6), date(2010, 3, 28)]),
)


def minutes_of(day: date) -> Iterator[datetime]:
    """Yield every minute, in UTC, in which it can be this day or the next one anywhere on earth."""
    moment = datetime.combine(day, time(), UTC) - timedelta(days=1)
    return (moment + number * MINUTE for number in range(4 * 24 * 60))


def open_minutes(window: Window, day: date) -> set[datetime]:
    """Read the zone's clock minute by minute: the window opens when it first shows the start or later, and closes when
    it has last shown a time before the end."""
    zone = ZoneInfo(window.zone)
    if window.days and WEEKDAYS[day.weekday()] not in window.days:
        return set()
    start = datetime.combine(day, time.fromisoformat(window.start))
    end = datetime.combine(day, time.fromisoformat(window.end))
    end += timedelta(days=1) * (end <= start)
    shown = [(minute, minute.astimezone(zone).replace(tzinfo=None, fold=0)) for minute in minutes_of(day)]
    first = min(minute for minute, wall in shown if wall >= start)
    last = max(minute for minute, wall in shown if wall < end)
    return {minute for minute, _ in shown if first <= minute <= last}


@settings(max_examples=examples(40))
@given(window=WINDOWS, day=DAYS)
def test_window_matches_a_minute_by_minute_simulation(window: Window, day: date) -> None:
    policy = CampaignPolicy(windows=(window,))
    expected = set().union(*(open_minutes(window, day + timedelta(days=offset)) for offset in (-2, -1, 0, 1)))
    since = datetime.combine(day, time(), UTC)
    found = list(islice(start_spans(policy, since, timedelta(0), ZoneInfo), 5))
    for minute in (since + number * MINUTE for number in range(24 * 60)):
        assert any(span.start <= minute < span.end for span in found) == (minute in expected), minute
    assert is_open(policy, since, ZoneInfo) == (since in expected)


@settings(max_examples=examples(40))
@given(
    windows=st.lists(WINDOWS, max_size=3).map(tuple),
    since=DAYS.map(lambda day: datetime.combine(day, time(), UTC)),
    outs=st.lists(st.tuples(st.integers(0, 200), st.integers(1, 100)), max_size=3),
    length=st.integers(0, 300).map(lambda minutes: minutes * MINUTE),
    must_end_inside=st.booleans(),
)
def test_next_start_is_the_first_time_that_fits(
    windows: tuple[Window, ...],
    since: datetime,
    outs: list[tuple[int, int]],
    length: timedelta,
    must_end_inside: bool,
) -> None:
    blackouts = tuple(Blackout(start=since + a * 15 * MINUTE, end=since + (a + b) * 15 * MINUTE) for a, b in outs)
    policy = CampaignPolicy(windows=windows, blackouts=blackouts, must_end_inside=must_end_inside)
    without_blackouts = CampaignPolicy(windows=windows)
    found = next_start(policy, since, length, ZoneInfo)
    if found is None:
        assert must_end_inside
        return
    end = found + length
    assert not any(found < out.end and max(end, found + MINUTE / 60) > out.start for out in blackouts)
    assert is_open(without_blackouts, found, ZoneInfo)
    if must_end_inside:
        assert all(is_open(without_blackouts, found + n * MINUTE, ZoneInfo) for n in range(length // MINUTE))
    for number in range(1, min(200, (found - since) // (15 * MINUTE))):
        assert not may_start(policy, found - number * 15 * MINUTE, length, ZoneInfo)
