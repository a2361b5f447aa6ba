"""The service's clock between two requests."""

from datetime import UTC, datetime, timedelta

import pytest

from forewarn.api import v1
from forewarn.cli.live.service_clock import ServiceClock

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.mark.parametrize(("manual", "passed"), [(False, 90), (True, 0)])
def test_real_clock_goes_on_and_a_manual_one_stands_still(
    monkeypatch: pytest.MonkeyPatch, manual: bool, passed: int
) -> None:
    now = 1000.0
    monkeypatch.setattr("forewarn.cli.live.service_clock.time.monotonic", lambda: now)
    clock = ServiceClock(v1.Clock(now=TEN, manual=manual, next_change_at=None))
    now += 90
    assert (clock.is_manual, clock.now) == (manual, TEN + timedelta(seconds=passed))
