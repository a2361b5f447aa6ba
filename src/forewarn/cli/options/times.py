"""Parse durations and times given as options, and format durations."""

from datetime import UTC, datetime, time, timedelta

from forewarn.cli.errors import CliError, ExitCode
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid

DAY = timedelta(days=1)

CLOCK_TOLERANCE = timedelta(minutes=5)
"""So far may the clock of whoever asks what has happened be ahead of the service's."""


def read_duration(text: str | None, option: str) -> str | None:
    """Check a duration that was typed, and return it as the service takes it."""
    if text is None:
        return None
    try:
        return format_duration(parse_duration(text))
    except Invalid as error:
        raise CliError(ExitCode.USAGE, f"{option}: {error}") from None


def read_future(text: str | None, option: str, *, now: datetime) -> datetime | None:
    """Read a moment to come: a date with its zone, or a time of day, the next time it is so late."""
    if text is None:
        return None
    if (time_of_day := _parse_time_of_day(text)) is not None:
        moment = _today_at(time_of_day, now)
        return moment if moment >= now else moment + DAY
    return _parse_zoned(text, option, "2026-01-31T10:15Z, or 03:12")


def _parse_zoned(text: str, option: str, example: str) -> datetime:
    """Read a date: it is written with its zone, so that nobody has to guess."""
    moment = _parse_moment(text)
    if moment is None:
        raise CliError(ExitCode.USAGE, f"{option}: {text!r} is no time: write it like {example}")
    if moment.tzinfo is None:
        raise CliError(ExitCode.USAGE, f"{option}: {text!r} has no zone: add Z for UTC, or another, like +02:00")
    return moment


def read_past(text: str | None, option: str, *, now: datetime) -> datetime | None:
    """Read a moment that has passed: so long ago, a time of day the last time it was, or a date. UTC unless said."""
    if text is None:
        return None
    try:
        return now - parse_duration(text)
    except Invalid:
        pass
    time_of_day = _parse_time_of_day(text)
    moment = _parse_moment(text) if time_of_day is None else _last_at(time_of_day, now)
    if moment is None:
        raise CliError(
            ExitCode.USAGE,
            f"{option}: {text!r} is no time: write how long ago, like 2h, or 03:12, or 2026-01-31T10:15Z",
        )
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_expiry(text: str | None, option: str) -> datetime | None:
    """Read a moment to come, in real time: so long from now, or a date with its zone."""
    if text is None:
        return None
    try:
        return datetime.now(UTC).replace(microsecond=0) + parse_duration(text)
    except Invalid:
        return _parse_zoned(text, option, "90d (from now), or 2026-01-31T10:15Z")


def span_text(span: timedelta) -> str:
    """Write an amount of time to the second, or more roughly where it is long."""
    seconds = max(span, timedelta(0)) // timedelta(seconds=1)
    return format_duration(timedelta(seconds=seconds if seconds < DAY.total_seconds() else seconds // 60 * 60))


def _parse_moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _parse_time_of_day(text: str) -> time | None:
    """Read a time of day; it needs no leading zero."""
    if ":" not in text:
        return None
    try:
        return time.fromisoformat(f"0{text}" if text[1:2] == ":" else text)
    except ValueError:
        return None


def _today_at(time_of_day: time, now: datetime) -> datetime:
    """Return when it is, or was, so late today; UTC unless it says its zone."""
    zone = time_of_day.tzinfo or UTC
    return datetime.combine(now.astimezone(zone).date(), time_of_day, tzinfo=zone)


def _last_at(time_of_day: time, now: datetime) -> datetime:
    moment = _today_at(time_of_day, now)
    return moment if moment <= now + CLOCK_TOLERANCE else moment - DAY
