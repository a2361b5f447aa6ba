"""The iCalendar encoder, read by a real parser; folding and escaping by the letter of RFC 5545."""

from datetime import UTC, datetime, timedelta

import icalendar
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.operator.icalendar import LINE_BYTES, CalendarEntry, encode_calendar, escape_text, fold_line
from tests.support.examples import examples

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)

REBOOT = CalendarEntry(
    uid="event-1@forewarn",
    changed_at=TEN,
    sequence=3,
    starts_at=TEN + timedelta(minutes=15),
    duration=timedelta(minutes=5),
    is_tentative=False,
    summary="Reboot of 2 VMs in web",
    description="new kernel; ask Ann, Bob\nC:\\temp",
    location="web",
    url="http://127.0.0.1:8170/ui/events/1",
)


def parse(data: bytes) -> icalendar.Calendar:
    return icalendar.Calendar.from_ical(data)


def test_parser_reads_what_was_encoded() -> None:
    data = encode_calendar("Maintenance of web", [REBOOT])
    calendar = parse(data)
    (entry,) = calendar.walk("VEVENT")
    assert calendar.errors == entry.errors == []
    assert (str(calendar["version"]), str(calendar["name"])) == ("2.0", "Maintenance of web")
    times = {name: entry.decoded(name) for name in ("dtstamp", "last-modified", "dtstart", "dtend")}
    assert times == {
        "dtstamp": TEN,
        "last-modified": TEN,
        "dtstart": REBOOT.starts_at,
        "dtend": REBOOT.starts_at + timedelta(minutes=5),
    }
    texts = {name: str(entry[name]) for name in ("uid", "summary", "description", "location", "url", "status")}
    assert texts == {
        "uid": REBOOT.uid,
        "summary": REBOOT.summary,
        "description": REBOOT.description,
        "location": "web",
        "url": REBOOT.url,
        "status": "CONFIRMED",
    }
    assert (str(entry["sequence"]), str(entry["transp"])) == ("3", "TRANSPARENT")


def test_planned_entry_without_a_known_end_is_a_tentative_moment() -> None:
    planned = msgspec.structs.replace(REBOOT, duration=None, is_tentative=True)
    (entry,) = parse(encode_calendar("x", [planned])).walk("VEVENT")
    assert ("dtend" in entry, str(entry["status"])) == (False, "TENTATIVE")


def test_lines_end_with_crlf_and_are_not_longer_than_75_bytes() -> None:
    long = msgspec.structs.replace(REBOOT, summary="Größe €" * 40)
    data = encode_calendar("x", [long])
    lines = data.split(b"\r\n")
    assert lines[-1] == b""
    assert max(map(len, lines)) <= LINE_BYTES
    assert b"\n" not in data.replace(b"\r\n", b"")


def test_equal_entries_have_equal_bytes() -> None:
    assert encode_calendar("x", [REBOOT]) == encode_calendar("x", [REBOOT])


def test_special_characters_are_escaped_and_control_characters_left_out() -> None:
    assert escape_text('a\\b;c,d\r\ne\rf\x00\x1b"g"\u200d\u00a0:') == 'a\\\\b\\;c\\,d\\ne\\nf"g"\u200d\u00a0:'


def test_line_is_folded_between_characters() -> None:
    assert fold_line("X:" + "é" * 60) == ("X:" + "é" * 36).encode() + b"\r\n " + ("é" * 24).encode() + b"\r\n"
    assert fold_line("a" * 75) == b"a" * 75 + b"\r\n"


@settings(max_examples=examples(100))
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.sampled_from("\n;,\\:"), max_size=300))
def test_every_text_is_read_as_it_was(text: str) -> None:
    (entry,) = parse(encode_calendar("x", [msgspec.structs.replace(REBOOT, description=text)])).walk("VEVENT")
    assert str(entry["description"]) == text
