"""The short form of each type is read as the same value."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.api.form import SHORT_FORMS
from forewarn.core.campaign.spec import Blackout, Limit, Weekday, Window

VALUES: dict[type, tuple[tuple[object, str | int], ...]] = {
    timedelta: ((timedelta(hours=1, minutes=30), "1h30m"),),
    Limit: ((Limit(number=10), 10), (Limit(percent=12.5), "12.5%")),
    Window: ((Window(days=(Weekday.SAT, Weekday.SUN), start="22:00", end="04:00"), "sat,sun 22:00-04:00"),),
    Blackout: (
        (
            Blackout(start=datetime(2026, 12, 24, 12, tzinfo=UTC), end=datetime(2027, 1, 2, 6, tzinfo=UTC)),
            "2026-12-24T12:00:00Z/2027-01-02T06:00:00Z",
        ),
    ),
}


@pytest.mark.parametrize("type_", SHORT_FORMS)
def test_short_form_is_read_as_the_same_value(type_: type) -> None:
    form = SHORT_FORMS[type_]
    for value, written in VALUES[type_]:
        assert form.write(value) == written
        assert form.parse(written) == value


@pytest.mark.parametrize("type_", SHORT_FORMS)
def test_value_of_another_type_is_refused(type_: type) -> None:
    with pytest.raises(TypeError):
        SHORT_FORMS[type_].parse([])
