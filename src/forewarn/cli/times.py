"""Durations and times, as they are typed and as they are shown."""

from datetime import UTC, datetime, time, timedelta

from forewarn.cli.exits import Exit, Stop
from forewarn.core.duration import duration_text, parse_duration
from forewarn.core.errors import Invalid

DAY = timedelta(days=1)


def read_duration(text: str | None, option: str) -> str | None:
    """Check a duration that was typed, and return it as the service takes it."""
    if text is None:
        return None
    try:
        return duration_text(parse_duration(text))
    except Invalid as error:
        raise Stop(Exit.USAGE, f"{option}: {error}") from None


def read_moment(text: str | None, option: str) -> datetime | None:
    """Read a moment at which something is to happen: it is written with its zone, so that nobody has to guess."""
    if text is None:
        return None
    moment = _moment(text)
    if moment is None or moment.tzinfo is None:
        raise Stop(Exit.USAGE, f"{option}: {text!r} is no time: write it with its zone, like 2026-01-31T10:15Z")
    return moment


def read_past(text: str | None, option: str, *, now: datetime) -> datetime | None:
    """Read a moment that has passed: so long ago, a time of day the last time it was, or a date. UTC unless said."""
    if text is None:
        return None
    try:
        return now - parse_duration(text)
    except Invalid:
        pass
    moment = _moment(text) or _last_time_it_was(text, now)
    if moment is None:
        raise Stop(
            Exit.USAGE, f"{option}: {text!r} is no time: write how long ago, like 2h, or 03:12, or 2026-01-31T10:15Z"
        )
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_later(text: str | None, option: str) -> datetime | None:
    """Read a moment to come, in real time: so long from now, or a date with its zone."""
    if text is None:
        return None
    try:
        return datetime.now(UTC).replace(microsecond=0) + parse_duration(text)
    except Invalid:
        return read_moment(text, option)


def span_text(span: timedelta) -> str:
    """Write an amount of time to the second, or more roughly where it is long."""
    seconds = max(span, timedelta(0)) // timedelta(seconds=1)
    return duration_text(timedelta(seconds=seconds if seconds < DAY.total_seconds() else seconds // 60 * 60))


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _last_time_it_was(text: str, now: datetime) -> datetime | None:
    try:
        time_of_day = time.fromisoformat(text)
    except ValueError:
        return None
    zone = time_of_day.tzinfo or UTC
    moment = datetime.combine(now.astimezone(zone).date(), time_of_day, tzinfo=zone)
    return moment if moment <= now else moment - DAY
