"""Parsing and formatting of durations."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core.duration import MAX_DURATION, at_speed, format_duration, parse_duration
from forewarn.core.errors import Invalid

WRITTEN = {
    "90s": timedelta(seconds=90),
    "15m": timedelta(minutes=15),
    "1h30m": timedelta(hours=1, minutes=30),
    "2d": timedelta(days=2),
    "1d1h1m1.5s": timedelta(days=1, hours=1, minutes=1, seconds=1.5),
    "0s": timedelta(0),
    "36500d": MAX_DURATION,
}


@pytest.mark.parametrize("text", WRITTEN)
def test_duration_is_parsed(text: str) -> None:
    assert parse_duration(text) == WRITTEN[text]


@pytest.mark.parametrize(
    "text",
    ["", "15", "m", "15 m", "-1m", "+1m", "1m1h", "1m1m", "1.5m", "1e3s", "١m", "1M", "15m\n", "1234567s", "36501d"],
)
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_duration(text)


@given(st.timedeltas(min_value=timedelta(0), max_value=MAX_DURATION))
def test_formatted_duration_is_parsed_back(duration: timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    ("minutes", "speed", "expected"),
    [
        (15, 60.0, timedelta(seconds=15)),
        (15, 1.0, timedelta(minutes=15)),
        (15, 0.5, timedelta(minutes=30)),
        (15, 1e-6, timedelta(days=400)),
        (15, 5e-324, timedelta(days=400)),
        (0, 5e-324, timedelta(0)),
        (1_000_000, 0.5, timedelta(minutes=1_000_000)),
        (1_000_000, 1.0, timedelta(minutes=1_000_000)),
    ],
)
def test_low_speed_makes_no_duration_longer_than_any_date(minutes: int, speed: float, expected: timedelta) -> None:
    assert at_speed(timedelta(minutes=minutes), speed) == expected
