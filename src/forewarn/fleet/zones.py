"""Time zones by their names, as the system or the package `tzdata` knows them."""

from datetime import tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from forewarn.core.errors import Invalid


@lru_cache(maxsize=256)
def zone_named(name: str) -> tzinfo:
    """Find a time zone; a name that none has is refused."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError):
        raise Invalid(f'there is no time zone {name!r}: write it like "Europe/Vienna" or "UTC"') from None
