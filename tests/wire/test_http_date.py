"""Times on the wire: formatted in one way, parsed in every way that services have used."""

import locale
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.wire.http_date import format_http_date, parse_date

MOMENT = datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (MOMENT, "Mon, 19 Sep 2016 18:29:47 GMT"),
        (datetime(2024, 2, 29, 0, 0, 0, tzinfo=UTC), "Thu, 29 Feb 2024 00:00:00 GMT"),
        (datetime(2099, 12, 6, 23, 59, 59, tzinfo=UTC), "Sun, 06 Dec 2099 23:59:59 GMT"),
        (datetime(987, 1, 2, 3, 4, 5, tzinfo=UTC), "Tue, 02 Jan 0987 03:04:05 GMT"),
    ],
)
def test_time_is_formatted_and_parsed(moment: datetime, text: str) -> None:
    assert (format_http_date(moment), parse_date(text)) == (text, moment)


@given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis adds the zone
def test_every_time_is_formatted_as_by_the_standard_library(moment: datetime) -> None:
    text = format_http_date(moment)
    assert text == format_datetime(moment, usegmt=True)
    assert parse_date(text) == moment.replace(microsecond=0)


def test_other_zones_are_formatted_as_gmt() -> None:
    there = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert format_http_date(there) == "Mon, 19 Sep 2016 18:29:47 GMT"


def test_names_are_english_in_every_locale() -> None:
    before = locale.setlocale(locale.LC_TIME)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "ja_JP.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_TIME, name)
        except locale.Error:
            continue
        try:
            assert format_http_date(MOMENT) == "Mon, 19 Sep 2016 18:29:47 GMT"
        finally:
            locale.setlocale(locale.LC_TIME, before)


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 19 Sep 2016 18:29:47 GMT",
        "19 Sep 2016 18:29:47 GMT",
        "mon, 19 SEP 2016 18:29:47 utc",
        " Mon,19 Sep 2016 18:29:47 Z ",
        "2016-09-19T18:29:47Z",
        "2016-09-19T18:29:47",
        "2016-09-19 18:29:47+00:00",
        "2016-09-19T20:29:47+02:00",
        "2016-09-19T18:29:47.0000000Z",
    ],
)
def test_time_is_parsed_in_many_forms(text: str) -> None:
    assert parse_date(text) == MOMENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "Mon, 19 Xyz 2016 18:29:47 GMT",
        "Mon, 31 Feb 2016 18:29:47 GMT",
        "Mon, 19 Sep 2016 18:29:47 CET",
        "Mon, 19 Sep 2016 18:29 GMT",
        "Mon, 19 Sep 99999999999999999999 18:29:47 GMT",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_text_that_is_not_a_time_is_parsed_as_none(text: str) -> None:
    assert parse_date(text) is None


@given(st.text())
def test_parsing_never_raises(text: str) -> None:
    moment = parse_date(text)
    assert moment is None or moment.tzinfo is UTC
