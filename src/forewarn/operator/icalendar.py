"""Encoder of iCalendar feeds (RFC 5545): content lines with escaped text, folded at 75 bytes."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec

MEDIA_TYPE = "text/calendar"

PRODUCT = "-//Forewarn//Scheduled maintenance//EN"

LINE_BYTES = 75
"""The longest line without its end, in bytes; the rest continues on the next line after a space (§3.1)."""

REFRESH = "PT15M"
"""How often subscribers should ask again (RFC 7986 §5.7)."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What no text may contain (§3.1)."""

ESCAPES = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n"})
"""Characters with a meaning in a text (§3.3.11)."""


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a calendar. Its `uid` stays the same while it changes; `sequence` grows with its times and status."""

    uid: str
    changed_at: datetime
    """When it was last changed. Without a METHOD this is its DTSTAMP (§3.8.7.2): an unchanged entry has equal bytes."""
    sequence: int
    starts_at: datetime
    duration: timedelta | None
    """None: unknown. The entry is then a moment."""
    is_tentative: bool
    summary: str
    description: str
    location: str
    url: str


def encode_calendar(name: str, entries: Iterable[CalendarEntry]) -> bytes:
    """Encode a calendar."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:{PRODUCT}",
        "CALSCALE:GREGORIAN",
        f"NAME:{escape_text(name)}",
        f"X-WR-CALNAME:{escape_text(name)}",
        f"REFRESH-INTERVAL;VALUE=DURATION:{REFRESH}",
        f"X-PUBLISHED-TTL:{REFRESH}",
    ]
    for entry in entries:
        lines += _entry_lines(entry)
    lines.append("END:VCALENDAR")
    return b"".join(map(fold_line, lines))


def _entry_lines(entry: CalendarEntry) -> Iterator[str]:
    yield "BEGIN:VEVENT"
    yield f"UID:{escape_text(entry.uid)}"
    yield f"DTSTAMP:{_moment(entry.changed_at)}"
    yield f"LAST-MODIFIED:{_moment(entry.changed_at)}"
    yield f"SEQUENCE:{entry.sequence}"
    yield f"DTSTART:{_moment(entry.starts_at)}"
    if entry.duration is not None:
        yield f"DTEND:{_moment(entry.starts_at + entry.duration)}"
    yield f"SUMMARY:{escape_text(entry.summary)}"
    yield f"DESCRIPTION:{escape_text(entry.description)}"
    yield f"LOCATION:{escape_text(entry.location)}"
    yield f"URL:{entry.url}"
    yield f"STATUS:{'TENTATIVE' if entry.is_tentative else 'CONFIRMED'}"
    yield "TRANSP:TRANSPARENT"  # maintenance does not make its reader busy
    yield "END:VEVENT"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def escape_text(text: str) -> str:
    """Escape a text; control characters, which no text may contain, are left out."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return CONTROL.sub("", lines).translate(ESCAPES)


def fold_line(line: str) -> bytes:
    """Encode a content line, folded so that no character is split."""
    data, pieces, limit = line.encode(), [], LINE_BYTES
    while len(data) > limit:
        end = limit
        while data[end] & 0xC0 == 0x80:  # the middle of a character
            end -= 1
        pieces.append(data[:end])
        data, limit = data[end:], LINE_BYTES - 1  # the space counts
    return b"\r\n ".join((*pieces, data)) + b"\r\n"
