"""Parsing and formatting of times and durations."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from forewarn.cli.errors import CliError
from forewarn.cli.options.times import read_future, read_past, span_text

NOW = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2h", datetime(2026, 3, 10, 10, 30, tzinfo=UTC)),
        ("1d12h", datetime(2026, 3, 9, 0, 30, tzinfo=UTC)),
        ("03:12", datetime(2026, 3, 10, 3, 12, tzinfo=UTC)),
        ("12:30", NOW),
        ("3:12", datetime(2026, 3, 10, 3, 12, tzinfo=UTC)),
        ("12:34", datetime(2026, 3, 10, 12, 34, tzinfo=UTC)),
        ("12:36", datetime(2026, 3, 9, 12, 36, tzinfo=UTC)),
        ("03:12:07Z", datetime(2026, 3, 10, 3, 12, 7, tzinfo=UTC)),
        ("13:00+02:00", datetime(2026, 3, 10, 11, tzinfo=UTC)),
        ("23:59+14:00", datetime(2026, 3, 10, 9, 59, tzinfo=UTC)),
        ("2026-03-01T10:15Z", datetime(2026, 3, 1, 10, 15, tzinfo=UTC)),
        ("2026-03-01 10:15:00Z", datetime(2026, 3, 1, 10, 15, tzinfo=UTC)),
        ("2026-03-01T10:15", datetime(2026, 3, 1, 10, 15, tzinfo=UTC)),
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T10:15+01:00", datetime(2026, 3, 1, 10, 15, tzinfo=timezone(timedelta(hours=1)))),
    ],
)
def test_past_time_is_parsed(typed: str, meant: datetime) -> None:
    assert read_past(typed, "--since", now=NOW) == meant


@pytest.mark.parametrize("typed", ["", "soon", "25:00", "2026-13-01", "3 hours"])
def test_invalid_past_time_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(CliError, match="write it like 2h"):
        read_past(typed, "--since", now=NOW)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("12:30", NOW),
        ("12:31", datetime(2026, 3, 10, 12, 31, tzinfo=UTC)),
        ("3:12", datetime(2026, 3, 11, 3, 12, tzinfo=UTC)),
        ("2026-03-11T10:15Z", datetime(2026, 3, 11, 10, 15, tzinfo=UTC)),
    ],
)
def test_future_time_is_parsed(typed: str, meant: datetime) -> None:
    assert read_future(typed, "--at", now=NOW) == meant


@pytest.mark.parametrize(
    ("typed", "said"),
    [("soon", "write it like 2026-01-31T10:15Z, or 03:12"), ("2026-03-11T10:15", "has no time zone; add Z for UTC")],
)
def test_invalid_future_time_is_refused(typed: str, said: str) -> None:
    with pytest.raises(CliError, match=said):
        read_future(typed, "--at", now=NOW)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=-1), "0s"),
        (timedelta(seconds=59.9), "59s"),
        (timedelta(minutes=14, seconds=59), "14m59s"),
        (timedelta(days=2, hours=3, minutes=4, seconds=5), "2d3h4m"),
    ],
)
def test_span_is_formatted_to_the_second_or_minute(span: timedelta, text: str) -> None:
    assert span_text(span) == text
