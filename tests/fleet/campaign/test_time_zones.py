"""Time zones by name."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.core.errors import Invalid
from forewarn.fleet.campaign.time_zones import find_zone


def test_zone_has_the_offset_of_summer_and_winter() -> None:
    zone = find_zone("Europe/Vienna")
    offsets = [datetime(2030, month, 1, 12, tzinfo=UTC).astimezone(zone).utcoffset() for month in (1, 7)]
    assert offsets == [timedelta(hours=1), timedelta(hours=2)]


def test_zone_is_looked_up_once() -> None:
    assert find_zone("Europe/Vienna") is find_zone("Europe/Vienna")


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"], ids=ascii
)
def test_unknown_zone_is_refused(name: str) -> None:
    """A path or a folder of zones is no zone either."""
    with pytest.raises(Invalid, match="time zone"):
        find_zone(name)
