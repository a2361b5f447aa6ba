"""The short forms of values: how a file, and partly the API, writes them as a text or number.

The core has a `timedelta` or a struct; `SHORT_FORMS` lists each short form once, for files and the derived API types.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from forewarn.api.campaign_windows import parse_blackout, parse_window
from forewarn.core.campaign.spec import Blackout, Limit, Window
from forewarn.core.duration import format_duration, parse_duration


class ShortForm(NamedTuple):
    """The form of a type as a text or number. `parse` raises TypeError for other types of values."""

    parse: Callable[[Any], Any]
    write: Callable[[Any], str | int]
    allowed: str
    is_table_allowed: bool = True
    """Whether a file can also have it as a table."""


def require_str(value: object) -> str:
    """Return a text; raise TypeError for other values."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _parse_limit(value: object) -> Limit:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise TypeError
    return Limit.parse(value)


SHORT_FORMS: Mapping[type, ShortForm] = {
    timedelta: ShortForm(lambda value: parse_duration(require_str(value)), format_duration, 'a duration such as "5m"'),
    Limit: ShortForm(
        _parse_limit,
        lambda limit: limit.number or str(limit),
        'a number such as 10, or a percentage such as "10%"',
        is_table_allowed=False,
    ),
    Window: ShortForm(
        lambda value: parse_window(require_str(value)), str, 'a text such as "sat,sun 22:00-04:00", or a table'
    ),
    Blackout: ShortForm(
        lambda value: parse_blackout(require_str(value)),
        str,
        'a text such as "2026-12-24T12:00Z/2027-01-02T06:00Z", or a table with start and end',
    ),
}
