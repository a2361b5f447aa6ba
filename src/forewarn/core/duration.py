"""Parse and format durations: "90s", "15m", "1h30m", "2d"."""

import re
from datetime import timedelta

import msgspec

from forewarn.core.errors import Invalid

DURATION_PATTERN = r"^([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,6}(\.[0-9]{1,6})?s)?$"
"""Days, hours, minutes and seconds, in this order; at least one of them."""

MAX_DURATION = timedelta(days=36_500)

MAX_SLOWED_DURATION = timedelta(days=400)
"""No duration gets longer than this because of a low speed. It is longer than any notice that is allowed."""

RANGE = "range"
"""The key of a duration's bounds in the metadata of its field."""

_PARTS = re.compile(
    r"(?:(?P<days>[0-9]{1,6})d)?(?:(?P<hours>[0-9]{1,6})h)?(?:(?P<minutes>[0-9]{1,6})m)?"
    r"(?:(?P<seconds>[0-9]{1,6}(?:\.[0-9]{1,6})?)s)?"
)


def parse_duration(text: str) -> timedelta:
    """Parse a duration."""
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        raise Invalid(f'{text!r} is not a duration: write it like "90s", "15m", "1h30m" or "2d"')
    duration = timedelta(**{unit: float(number) for unit, number in parts.groupdict().items() if number is not None})
    if duration > MAX_DURATION:
        raise Invalid(f"{text!r} is too long: the longest duration is {MAX_DURATION.days}d")
    return duration


def parse_optional_duration(text: str | None) -> timedelta | None:
    """Parse a duration that a caller can omit."""
    return None if text is None else parse_duration(text)


def format_duration(duration: timedelta) -> str:
    """Format a duration in the form that `parse_duration` accepts."""
    minutes, seconds = divmod(duration - timedelta(days=duration.days), timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    amount = f"{seconds / timedelta(seconds=1):.6f}".rstrip("0").rstrip(".")
    parts = ((duration.days, "d"), (hours, "h"), (minutes, "m"), (amount if seconds else 0, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def at_speed(duration: timedelta, speed: float) -> timedelta:
    """Divide a duration by a speed. Below 1, the result has an upper bound, so that no date becomes too late."""
    longest = max(duration, MAX_SLOWED_DURATION)
    return longest if duration.total_seconds() > longest.total_seconds() * speed else duration / speed


def duration_range(least: timedelta, most: timedelta) -> msgspec.Meta:
    """Return the metadata of a field whose durations have these bounds. `core/field_rule.py` enforces them."""
    return msgspec.Meta(extra={RANGE: (least, most)})
