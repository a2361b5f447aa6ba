"""Watching Scheduled events: a start before NotBefore is wrong, and the kit says when it could not tell."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forewarn.client.endpoint import parse_endpoint
from forewarn.testing.conformance.document import CheckSkipped, Mismatch
from forewarn.testing.conformance.probe import Probe
from forewarn.testing.conformance.raw_http import Pace
from forewarn.testing.conformance.rule import Verdict
from forewarn.testing.conformance.rules import RULES
from forewarn.testing.conformance.runner import examine
from forewarn.testing.conformance.start_watch import starts_not_before
from forewarn.wire.http_date import format_http_date
from tests.testing.conformance.mock import Headers, MockEndpoint, MockRequest, MockResponse, event, run_mock
from tests.testing.conformance.reports import GUARD

BEGIN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
NOTICE = timedelta(minutes=15)  # of the events of the mock


class MovingEndpoint(MockEndpoint):
    """An endpoint whose time is that of the kit: each pause of the kit advances it. One Scheduled event starts."""

    def __init__(self, starts_after: timedelta | None = NOTICE) -> None:
        super().__init__()
        self.now = BEGIN
        self.starts_at = None if starts_after is None else BEGIN + starts_after
        self.events = [event("Reboot")]

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def query(self, asked: MockRequest, version: str) -> MockResponse:
        self.act()
        return super().query(asked, version)

    def act(self) -> None:
        for each in self.events:
            if self.starts_at is not None and self.now >= self.starts_at and each["EventStatus"] == "Scheduled":
                self.start(each)

    def usual_headers(self, reply: MockResponse) -> Headers:
        date = ("Date", format_http_date(self.now))
        return [date, *(pair for pair in super().usual_headers(reply) if pair[0] != "Date")]


def watch(mock: MovingEndpoint, seconds: float, *approves: str) -> Probe:
    pace = Pace(1e9, monotonic=lambda: (mock.now - BEGIN) / timedelta(seconds=1), sleep=mock.advance)
    with run_mock(mock) as url:
        probe = Probe(parse_endpoint(url), pace=pace, timeout=GUARD, watch_seconds=seconds, approves=approves)
        starts_not_before(probe)
    return probe


def test_start_at_its_time_is_right() -> None:
    mock = MovingEndpoint()
    watch(mock, 3600)
    assert mock.now == BEGIN + NOTICE  # not longer than needed


def test_event_that_starts_late_is_right() -> None:
    mock = MovingEndpoint(starts_after=2 * NOTICE)
    watch(mock, 3600)
    assert mock.now == BEGIN + NOTICE


@pytest.mark.parametrize("early", [2, 600])
def test_early_start_is_wrong(early: int) -> None:
    mock = MovingEndpoint(starts_after=NOTICE - timedelta(seconds=early))
    with pytest.raises(Mismatch, match="before its NotBefore, and the kit did not approve it"):
        watch(mock, 3600)


def test_second_of_rounding_is_allowed() -> None:
    watch(MovingEndpoint(starts_after=NOTICE - timedelta(seconds=1)), 3600)


class RenamesStartedEvents(MovingEndpoint):
    def start(self, each: dict[str, Any]) -> None:
        super().start(each)
        each["EventId"] = event("Reboot")["EventId"]


def test_early_start_under_another_id_is_wrong() -> None:
    with pytest.raises(Mismatch, match="started 14m before its NotBefore"):
        watch(RenamesStartedEvents(starts_after=timedelta(minutes=1)), 3600)


class CancelsEvents(MovingEndpoint):
    def start(self, each: dict[str, Any]) -> None:
        self.events = [other for other in self.events if other is not each]


def test_event_that_disappears_tells_nothing() -> None:
    with pytest.raises(CheckSkipped, match="gone before its NotBefore"):
        watch(CancelsEvents(starts_after=timedelta(minutes=1)), 3600)


def test_watch_that_is_too_short_is_not_passed() -> None:
    mock = MovingEndpoint()
    with pytest.raises(CheckSkipped, match=r"within 30s, but the next NotBefore is 14m30s ahead; watch longer"):
        watch(mock, 30)
    assert mock.now == BEGIN + timedelta(seconds=30)


class HasOnlyStartedEvents(MovingEndpoint):
    def __init__(self) -> None:
        super().__init__()
        self.events = [event("Reboot", status="Started")]


def test_no_scheduled_event_is_reported_at_once() -> None:
    mock = HasOnlyStartedEvents()
    with pytest.raises(CheckSkipped, match="there was no Scheduled event to watch"):
        watch(mock, 3600)
    assert mock.now == BEGIN


def test_approved_events_are_not_watched() -> None:
    mock = MovingEndpoint(starts_after=timedelta(minutes=1))
    with pytest.raises(CheckSkipped, match="there was no Scheduled event to watch besides those to approve"):
        watch(mock, 3600, mock.events[0]["EventId"])


class AddsAnEvent(MovingEndpoint):
    """Has another event from the first minute on, which starts at once."""

    def act(self) -> None:
        if self.now >= BEGIN + timedelta(minutes=1) and len(self.events) == 1:
            self.events.append(event("Freeze"))
        elif len(self.events) > 1 and self.events[1]["EventStatus"] == "Scheduled":
            self.start(self.events[1])


def test_events_that_appear_later_are_watched_too() -> None:
    with pytest.raises(Mismatch, match="started 13m59s before"):
        watch(AddsAnEvent(starts_after=None), 3600)


class FailsForAMinute(MovingEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        reply = super().query(asked, version)
        return MockResponse(500) if timedelta(0) < self.now - BEGIN < timedelta(minutes=1) else reply


def test_errors_during_the_watch_are_survived() -> None:
    mock = FailsForAMinute()
    watch(mock, 3600)
    assert mock.now == BEGIN + NOTICE


class HasNoDate(MovingEndpoint):
    def usual_headers(self, reply: MockResponse) -> Headers:
        return [pair for pair in super().usual_headers(reply) if pair[0] != "Date"]


def test_endpoint_without_a_clock_is_not_judged() -> None:
    with pytest.raises(CheckSkipped, match="no Date"):
        watch(HasNoDate(), 3600)


def test_nothing_is_watched_without_the_option() -> None:
    with pytest.raises(CheckSkipped, match="--watch DURATION"):
        watch(MovingEndpoint(), 0)


def test_event_that_is_due_soon_is_watched_before_the_other_rules() -> None:
    mock = MovingEndpoint(starts_after=NOTICE)
    mock.now += NOTICE - timedelta(seconds=10)
    pace = Pace(4, monotonic=lambda: (mock.now - BEGIN) / timedelta(seconds=1), sleep=mock.advance)
    with run_mock(mock) as url:
        report = examine(url, watch_seconds=60, pace=pace, timeout=GUARD)
    assert [finding.row for finding in report.findings] == [rule.id for rule in RULES]
    assert {finding.row: finding.verdict for finding in report.findings}["not-before-unapproved"] is Verdict.PASSED
