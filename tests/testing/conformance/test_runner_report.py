"""Tests of the report's times: in total and for each rule."""

from itertools import count

import pytest

from forewarn.testing.conformance import Pace, Report, cases, examine
from tests.testing.conformance.mock import MockEndpoint, run_mock
from tests.testing.conformance.reports import GUARD


class CountingClock:
    """A fake clock that advances by one second at each wait for the next request."""

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


def test_total_time_is_the_time_of_all_requests(report: Report) -> None:
    assert report.seconds == report.requests - 1  # the first request does not wait


def test_time_of_a_rule_is_the_time_of_its_own_requests(report: Report) -> None:
    seconds = {finding.row: finding.seconds for finding in report.findings}
    assert (seconds["query"], seconds["versions"], seconds["header-twice"]) == (0.0, 1.0, 2.0)
    assert sum(seconds.values()) == report.seconds


def test_cases_have_the_times_of_the_findings(report: Report) -> None:
    assert [case.seconds for case in cases(report)] == [finding.seconds for finding in report.findings]


def test_time_of_an_earlier_run_is_not_counted() -> None:
    clock = CountingClock()
    pace = Pace(1, monotonic=lambda: clock.now, sleep=clock.sleep)
    with run_mock(MockEndpoint()) as url:
        first, second = (examine(url, pace=pace, timeout=GUARD) for _ in range(2))
    assert second.seconds == first.seconds + 1
