"""Time zones by name, from the system or the package `tzdata`."""

from datetime import tzinfo
from functools import lru_cache

from forewarn.core.errors import Invalid


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo:
    """Return the time zone; raise Invalid if it does not exist."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # imported late: a service starts faster without it

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise Invalid(f'there is no time zone {name!r}: write it like "Europe/Vienna" or "UTC"') from None
