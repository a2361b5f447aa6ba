"""Durations as tests write them: text, timedelta or seconds."""

from datetime import timedelta

from forewarn.core.duration import format_duration

DurationLike = str | timedelta | float
"""`"15m"` or `"1h30m"`, a timedelta, or a number of seconds."""


def to_text(duration: DurationLike) -> str:
    """Write a duration in the form of the operator API."""
    match duration:
        case str():
            return duration
        case timedelta():
            return format_duration(duration)
        case _:
            return format_duration(timedelta(seconds=duration))


def to_optional_text(duration: DurationLike | None) -> str | None:
    """Write an optional duration in the form of the operator API."""
    return None if duration is None else to_text(duration)
