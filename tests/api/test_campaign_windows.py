"""Windows and blackouts from one line of text."""

from datetime import UTC, datetime

import pytest

from forewarn.api.campaign_windows import parse_blackout, parse_moment, parse_window
from forewarn.core.campaign.spec import WEEKDAYS, Blackout, Weekday, Window
from forewarn.core.errors import Invalid


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("22:00-04:00", Window(start="22:00", end="04:00")),
        (" 1:00 - 5:00 ", Window(start="01:00", end="05:00")),
        ("every day 22:00-04:00", Window(start="22:00", end="04:00")),
        ("daily 22:00-04:00 UTC", Window(start="22:00", end="04:00", zone="UTC")),
        (
            "sat,sun 22:00-04:00 Europe/Vienna",
            Window(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00", zone="Europe/Vienna"),
        ),
        ("monday - friday 01:00-05:00", Window(days=WEEKDAYS[:5], start="01:00", end="05:00")),
        (
            "sat-mon 01:00-05:00",
            Window(days=(Weekday.SAT, Weekday.SUN, Weekday.MON), start="01:00", end="05:00"),
        ),
        ("wed-wed 01:00-05:00", Window(days=(Weekday.WED,), start="01:00", end="05:00")),
        ("tues 01:00-05:00", Window(days=(Weekday.TUE,), start="01:00", end="05:00")),
    ],
)
def test_window_is_parsed(text: str, window: Window) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize("text", ["", "22:00", "noon-22:00", "xyz 22:00-04:00", "mo 22:00-04:00", "25:00-04:00"])
def test_text_that_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_window(text)


def test_blackout_is_parsed_with_its_reason() -> None:
    start, end = datetime(2026, 12, 24, 12, tzinfo=UTC), datetime(2027, 1, 2, 6, tzinfo=UTC)
    for text, why in (
        ("2026-12-24T12:00Z/2027-01-02T06:00Z", ""),
        (" 2026-12-24T12:00Z / 2027-01-02T06:00Z holidays, of all ", "holidays, of all"),
    ):
        assert parse_blackout(text) == Blackout(start=start, end=end, why=why)


@pytest.mark.parametrize("text", ["", "2026-12-24T12:00Z", "today/tomorrow", "2027-01-02T06:00Z/2026-12-24T12:00Z"])
def test_text_that_is_no_blackout_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_blackout(text)


def test_text_that_is_no_time_is_refused() -> None:
    with pytest.raises(Invalid, match="soon"):
        parse_moment("soon")
