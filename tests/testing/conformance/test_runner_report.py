"""A report says how long everything took, and each of its rows."""

from itertools import count

import pytest

from forewarn.testing.conformance import Pace, Report, cases, examine
from tests.testing.conformance.mock import MockEndpoint, run_mock
from tests.testing.conformance.reports import GUARD


class CountingClock:
    """A clock that goes on by a second whenever a request may pass, and stands still otherwise."""

    def __init__(self) -> None:
        self._seconds = count(100.0)
        self.now = next(self._seconds)

    def sleep(self, _: float) -> None:
        self.now = next(self._seconds)


@pytest.fixture(scope="module")
def report() -> Report:
    clock = CountingClock()
    with run_mock(MockEndpoint()) as url:
        return examine(url, pace=Pace(1, monotonic=lambda: clock.now, sleep=clock.sleep), timeout=GUARD)


def test_all_of_it_takes_as_long_as_its_requests(report: Report) -> None:
    assert report.seconds == report.requests - 1  # the first one need not wait


def test_row_takes_as_long_as_its_own_requests(report: Report) -> None:
    seconds = {finding.row: finding.seconds for finding in report.findings}
    assert (seconds["query"], seconds["versions"], seconds["path-case"]) == (0.0, 1.0, 2.0)
    assert sum(seconds.values()) == report.seconds


def test_cases_say_it_too(report: Report) -> None:
    assert [case.seconds for case in cases(report)] == [finding.seconds for finding in report.findings]


def test_time_of_one_who_looked_earlier_is_not_counted() -> None:
    clock = CountingClock()
    pace = Pace(1, monotonic=lambda: clock.now, sleep=clock.sleep)
    with run_mock(MockEndpoint()) as url:
        first, second = (examine(url, pace=pace, timeout=GUARD) for _ in range(2))
    assert second.seconds == first.seconds + 1
