"""Format and parse dates on the wire: RFC 1123 with English names and a literal GMT, independent of the locale."""

from datetime import UTC, datetime

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
UTC_NAMES = ("GMT", "UTC", "UT", "Z")


def format_http_date(moment: datetime) -> str:
    """Format an aware datetime; fractions of a second are cut off."""
    utc = moment.astimezone(UTC)
    day, month = DAYS[utc.weekday()], MONTHS[utc.month - 1]
    return f"{day}, {utc.day:02} {month} {utc.year:04} {utc.hour:02}:{utc.minute:02}:{utc.second:02} GMT"


def parse_date(text: str) -> datetime | None:
    """Parse RFC 1123 or ISO 8601 (UTC without a zone); return None for anything else, including an empty text."""
    words = text.replace(",", " ").split()
    try:
        return _rfc_1123(words) if len(words) in (5, 6) else _iso_8601(text.strip())
    except (ValueError, OverflowError):
        return None


def _rfc_1123(words: list[str]) -> datetime:
    day, month, year, time_of_day, zone = words[-5:]
    if zone.upper() not in UTC_NAMES:
        raise ValueError(zone)
    hour, minute, second = time_of_day.split(":")
    number = MONTHS.index(month.title()) + 1
    return datetime(int(year), number, int(day), int(hour), int(minute), int(second), tzinfo=UTC)


def _iso_8601(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
