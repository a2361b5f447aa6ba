"""Tests of the probe: cached responses, retries, stable documents and the trace of an approval."""

from collections.abc import Callable

import pytest

from forewarn.client.endpoint import parse_endpoint
from forewarn.testing.conformance import Pace, Report, Verdict, examine
from forewarn.testing.conformance.document import CheckSkipped
from forewarn.testing.conformance.probe import (
    EVENTS_QUERY,
    ApprovalTrace,
    Probe,
    conditional,
    etag,
    is_scheduled,
    is_started,
    query,
)
from forewarn.testing.conformance.raw_http import Request, RequestFailed, Response
from tests.testing.conformance.mock import VERSIONS, MockEndpoint, MockRequest, MockResponse, event, run_mock
from tests.testing.conformance.reports import GUARD, finding_lines, no_delay


def run_kit(mock: MockEndpoint) -> Report:
    """Run the kit on an endpoint, and let it approve the first event."""
    approved = mock.events[0]["EventId"]
    with run_mock(mock) as url:
        return examine(url, approve_event=approved, pace=no_delay(), timeout=GUARD)


def probe_of(url: str, sleep: Callable[[float], None] = lambda _: None) -> Probe:
    return Probe(parse_endpoint(url), pace=Pace(1e9, sleep=sleep), timeout=GUARD)


def response_of(status: int = 200, *headers: tuple[str, str]) -> Response:
    return Response(status=status, reason="OK", headers=headers, body=b"")


class CountsRequests(MockEndpoint):
    asked = 0

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        self.asked += 1
        return super().answer(asked, body)


def test_response_is_cached_until_the_request_is_sent_again() -> None:
    mock = CountsRequests()
    with run_mock(mock) as url:
        probe = probe_of(url)
        first, again = probe.send_once(EVENTS_QUERY), probe.send_once(EVENTS_QUERY)
        assert (first.status, again is first, mock.asked) == (200, True, 1)
        assert probe.send(EVENTS_QUERY) is not first
        assert mock.asked == 2
    assert len(probe.exchanges) == 3


def test_failure_is_cached_too() -> None:
    with run_mock(MockEndpoint()) as url:
        pass
    probe = probe_of(url)
    with pytest.raises(RequestFailed) as first:
        probe.send_once(EVENTS_QUERY)
    with pytest.raises(RequestFailed) as again:
        probe.send_once(EVENTS_QUERY)
    assert str(first.value) == str(again.value)
    assert probe.pace.requests == 1


class Overloaded(MockEndpoint):
    """Answers the first requests with these statuses and values of Retry-After."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        super().__init__()
        self.answers = list(answers)

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        if not self.answers:
            return super().answer(asked, body)
        status, retry_after = self.answers.pop(0)
        return MockResponse(status, b"", (("Retry-After", retry_after),))


def test_backoff_is_the_retry_after_within_a_maximum() -> None:
    slept: list[float] = []
    with run_mock(Overloaded((429, "2"), (503, "3600"))) as url:
        probe = probe_of(url, slept.append)
        assert probe.send(EVENTS_QUERY).status == 200
    assert [seconds for seconds in slept if seconds >= 1] == [2.0, 15.0]
    assert probe.rate_limit_response is not None
    assert probe.rate_limit_response.status == 429


def test_documents_of_all_versions_have_the_same_events() -> None:
    mock = MockEndpoint()
    with run_mock(mock) as url:
        probe = probe_of(url)
        found = probe.documents()
        assert probe.documents() is found
    assert sorted(found) == sorted(VERSIONS)
    assert [each["EventId"] for each in probe.document().events] == [each["EventId"] for each in mock.events]
    with pytest.raises(CheckSkipped, match="no document in version 2001-01-01"):
        probe.document("2001-01-01")


class ChangesWithEveryQuery(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        self.events.append(event("Reboot"))
        self.incarnation += 1
        return super().query(asked, version)


def test_events_that_keep_changing_cannot_be_checked() -> None:
    with run_mock(ChangesWithEveryQuery()) as url:
        probe = probe_of(url)
        for _ in range(2):
            with pytest.raises(CheckSkipped, match="the events changed between the requests"):
                probe.documents()
        assert len(probe.document_pairs) == 3
        with pytest.raises(CheckSkipped, match="the document changes too often"):
            probe.expect_not_modified(lambda tag: tag)


def test_events_are_selected_by_a_condition() -> None:
    with run_mock(MockEndpoint()) as url:
        probe = probe_of(url)
        assert [each["EventType"] for each in probe.events(is_started)] == ["Redeploy"]
        with pytest.raises(CheckSkipped, match="the document has no event of the future"):
            probe.events(lambda _: False, what="event of the future")


def test_unchanged_document_is_not_modified() -> None:
    with run_mock(MockEndpoint()) as url:
        response = probe_of(url).expect_not_modified(lambda tag: f"W/{tag}")
    assert (response.status, response.body) == (304, b"")


def test_conditional_request_has_the_tag() -> None:
    metadata = ("Metadata", "true")
    assert conditional('"7"') == Request(headers=(metadata, ("If-None-Match", '"7"')))
    assert conditional("*", "/x") == Request(target="/x", headers=(metadata, ("If-None-Match", "*")))
    assert query("2019-01-01") == Request(target="/metadata/scheduledevents?api-version=2019-01-01")


def test_etag_is_that_of_the_response() -> None:
    assert etag(response_of(200, ("ETag", '"7"'))) == '"7"'
    with pytest.raises(CheckSkipped, match="the response has no ETag"):
        etag(response_of())


def test_status_of_an_event() -> None:
    scheduled, started = event("Reboot"), event("Reboot", status="Started")
    assert [is_scheduled(scheduled), is_scheduled(started), is_scheduled(None)] == [True, False, False]
    assert [is_started(scheduled), is_started(started), is_started(None)] == [False, True, False]


@pytest.mark.parametrize(
    ("initial", "reason"),
    [
        (None, "event E is not in the document"),
        (event("Reboot"), "event E has not started or ended yet"),
        (event("Reboot", status="Started"), "event E had already started"),
    ],
)
def test_trace_has_a_reason_for_requests_that_were_not_sent(initial: dict[str, object] | None, reason: str) -> None:
    with pytest.raises(CheckSkipped, match=reason):
        ApprovalTrace("E", initial).response("approve")


def test_trace_returns_the_response_or_raises_the_failure() -> None:
    response = response_of()
    trace = ApprovalTrace("E", responses={"approve": response, "again": RequestFailed("no response")})
    assert trace.response("approve") is response
    with pytest.raises(RequestFailed, match="no response"):
        trace.response("again")


class NotEnabledYet(MockEndpoint):
    """The first responses are empty, as those of the real service can be."""

    asked = 0

    def query(self, asked: MockRequest, version: str) -> MockResponse:
        self.asked += 1
        return MockResponse(200) if self.asked <= 3 else super().query(asked, version)


def test_empty_responses_are_allowed_before_enablement() -> None:
    assert finding_lines(run_kit(NotEnabledYet()), Verdict.WRONG) == []


class SometimesUnavailable(MockEndpoint):
    """Every fourth response asks the client to retry later."""

    answers = 0

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        self.answers += 1
        if self.answers % 4 == 0:
            return MockResponse(410) if self.answers % 8 else MockResponse(503, b"", (("Retry-After", "2"),))
        return super().answer(asked, body)


def test_requests_are_retried_if_the_service_is_unavailable() -> None:
    assert finding_lines(run_kit(SometimesUnavailable()), Verdict.WRONG) == []


class AlwaysUnavailable(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        return MockResponse(503) if asked.path == "/metadata/versions" else super().answer(asked, body)


def test_retries_end_if_the_service_stays_unavailable() -> None:
    slept: list[float] = []
    with run_mock(AlwaysUnavailable()) as url:
        report = examine(url, pace=Pace(1e9, sleep=slept.append), timeout=GUARD)
    found = {finding.row: finding for finding in report.findings}
    assert found["versions"].verdict is Verdict.WRONG
    assert found["versions"].why == "the service is unavailable, even after retries: 503 Other"
    assert 70 < sum(slept) <= 121


class BeingUpdated(MockEndpoint):
    """Responds with 410 for 70 seconds, like the real service while it is updated."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        return super().answer(asked, body) if self.seconds >= 70 else MockResponse(410)

    def pass_seconds(self, seconds: float) -> None:
        self.seconds += seconds


def test_kit_waits_for_the_end_of_an_update() -> None:
    mock = BeingUpdated()
    with run_mock(mock) as url:
        report = examine(url, pace=Pace(1e9, sleep=mock.pass_seconds), timeout=GUARD)
    assert finding_lines(report, Verdict.WRONG) == []
