"""Parse durations and times given as options, and format durations."""

from datetime import UTC, datetime, time, timedelta

from forewarn.cli.errors import CliError, ExitCode
from forewarn.core.duration import format_duration, parse_duration
from forewarn.core.errors import Invalid

DAY = timedelta(days=1)

CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far the user's clock may be ahead of the service's."""


def read_duration(text: str | None, option: str) -> str | None:
    """Check a typed duration and return it in the form that the service accepts."""
    if text is None:
        return None
    try:
        return format_duration(parse_duration(text))
    except Invalid as error:
        raise CliError(ExitCode.USAGE, f"{option}: {error}") from None


def read_future(text: str | None, option: str, *, now: datetime) -> datetime | None:
    """Read a future time: a date with its zone, or a time of day, which means its next occurrence."""
    if text is None:
        return None
    if (time_of_day := _parse_time_of_day(text)) is not None:
        moment = _today_at(time_of_day, now)
        return moment if moment >= now else moment + DAY
    return _parse_zoned(text, option, "2026-01-31T10:15Z, or 03:12")


def _parse_zoned(text: str, option: str, example: str) -> datetime:
    """Read a date; it must have a zone, because guessing one is dangerous."""
    moment = _parse_moment(text)
    if moment is None:
        raise CliError(ExitCode.USAGE, f"{option}: {text!r} is not a time; write it like {example}")
    if moment.tzinfo is None:
        raise CliError(
            ExitCode.USAGE, f"{option}: {text!r} has no time zone; add Z for UTC, or an offset such as +02:00"
        )
    return moment


def read_past(text: str | None, option: str, *, now: datetime) -> datetime | None:
    """Read a past time: a duration ago, a time of day (its last occurrence) or a date. The default zone is UTC."""
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
            f"{option}: {text!r} is not a time; write it like 2h (ago), 03:12 or 2026-01-31T10:15Z",
        )
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_expiry(text: str | None, option: str) -> datetime | None:
    """Read a future time of the real clock: a duration from now, or a date with its zone."""
    if text is None:
        return None
    try:
        return datetime.now(UTC).replace(microsecond=0) + parse_duration(text)
    except Invalid:
        return _parse_zoned(text, option, "90d (from now), or 2026-01-31T10:15Z")


def span_text(span: timedelta) -> str:
    """Format a time span to the second, or to the minute if it is a day or longer."""
    seconds = max(span, timedelta(0)) // timedelta(seconds=1)
    return format_duration(timedelta(seconds=seconds if seconds < DAY.total_seconds() else seconds // 60 * 60))


def _parse_moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _parse_time_of_day(text: str) -> time | None:
    """Read a time of day; the leading zero is optional."""
    if ":" not in text:
        return None
    try:
        return time.fromisoformat(f"0{text}" if text[1:2] == ":" else text)
    except ValueError:
        return None


def _today_at(time_of_day: time, now: datetime) -> datetime:
    """Return this time of day on the current date; the default zone is UTC."""
    zone = time_of_day.tzinfo or UTC
    return datetime.combine(now.astimezone(zone).date(), time_of_day, tzinfo=zone)


def _last_at(time_of_day: time, now: datetime) -> datetime:
    moment = _today_at(time_of_day, now)
    return moment if moment <= now + CLOCK_TOLERANCE else moment - DAY
