"""Parse windows and blackouts from one line of text, such as `sat,sun 22:00-04:00 Europe/Vienna`."""

import re
from datetime import datetime

from forewarn.core.campaign.spec import WEEKDAYS, Blackout, Weekday, Window
from forewarn.core.errors import Invalid

EVERY_DAY = ("every day", "daily")

_WINDOW = re.compile(r"(?:(?P<days>[a-z][a-z, -]*?)\s+)?(?P<start>[0-9:]+)\s?-\s?(?P<end>[0-9:]+)(?:\s+(?P<zone>\S+))?")
_BLACKOUT = re.compile(r"(?P<start>\S+?)\s?/\s?(?P<end>\S+)(?:\s+(?P<why>.+))?")


def parse_window(text: str) -> Window:
    """Read a window: `22:00-04:00`, `sat,sun 22:00-04:00 Europe/Vienna`, `mon-fri 01:00-05:00`."""
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise Invalid(f'{text!r} is not a window; write it like "sat,sun 22:00-04:00 Europe/Vienna"')
    return Window(
        days=_parse_day_list(found["days"] or ""),
        start=_padded_time(found["start"]),
        end=_padded_time(found["end"]),
        zone=found["zone"] or "",
    )


def _padded_time(time: str) -> str:
    """Add the leading zero to a time of day."""
    return f"0{time}" if time[1:2] == ":" else time


def _parse_day_list(text: str) -> tuple[Weekday, ...]:
    if not text or text in EVERY_DAY:
        return ()
    return tuple(day for part in text.split(",") for day in _parse_days(part.strip()))


def _parse_days(text: str) -> tuple[Weekday, ...]:
    """Read a day or a range of days, which may wrap around the end of the week."""
    first, dash, last = text.partition("-")
    begin, end = _parse_day(first.strip()), _parse_day(last.strip() if dash else first.strip())
    number, length = WEEKDAYS.index(begin), (WEEKDAYS.index(end) - WEEKDAYS.index(begin)) % len(WEEKDAYS) + 1
    return (*WEEKDAYS, *WEEKDAYS)[number : number + length]


def _parse_day(text: str) -> Weekday:
    for day in Weekday:
        if text[:3] == day.value and _FULL_NAMES[day].startswith(text):
            return day
    raise Invalid(f"{text!r} is not a day; use {', '.join(Weekday)}")


_FULL_NAMES = {
    Weekday.MON: "monday",
    Weekday.TUE: "tuesday",
    Weekday.WED: "wednesday",
    Weekday.THU: "thursday",
    Weekday.FRI: "friday",
    Weekday.SAT: "saturday",
    Weekday.SUN: "sunday",
}


def parse_blackout(text: str) -> Blackout:
    """Read a blackout: `2026-12-24T12:00Z/2027-01-02T06:00Z`, with an optional reason."""
    found = _BLACKOUT.fullmatch(text.strip())
    if found is None:
        raise Invalid(f'{text!r} is not a blackout; write it like "2026-12-24T12:00Z/2027-01-02T06:00Z holidays"')
    return Blackout(start=parse_moment(found["start"]), end=parse_moment(found["end"]), why=found["why"] or "")


def parse_moment(text: str) -> datetime:
    """Read a time. A missing zone is allowed here and refused by the caller."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a time; write it like 2026-12-24T12:00Z") from None
