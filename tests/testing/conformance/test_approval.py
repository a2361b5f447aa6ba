"""Tests of the approval life cycle: the requests, and the trace of an event in each state."""

import json

import pytest

from forewarn.client.endpoint import parse_endpoint
from forewarn.testing.conformance.approval import (
    JSON_CONTENT_TYPE,
    MAX_POLLS,
    accepted_requests,
    approval_request,
    refused_requests,
    run_approval,
)
from forewarn.testing.conformance.probe import ApprovalTrace, Probe, SharedApproval, is_started
from forewarn.testing.conformance.raw_http import METADATA_HEADER, Pace, Request, Response
from tests.testing.conformance.mock import MockEndpoint, MockRequest, MockResponse, run_mock
from tests.testing.conformance.reports import GUARD, no_delay

ID = "0123ABCD-0000-4000-8000-000000000000"
PATH = "/metadata/scheduledevents"
EXPECT_REFUSED = {"expect-refused", "too-large", "unknown-first"}
EXPECT_ACCEPTED = {"expect", "expect-after"}


def run_on(mock: MockEndpoint, id_: str, pace: Pace | None = None) -> ApprovalTrace:
    with run_mock(mock) as url:
        return run_approval(Probe(parse_endpoint(url), pace=pace or no_delay(), timeout=GUARD), id_)


def statuses(trace: ApprovalTrace) -> dict[str, int]:
    return {name: trace.response(name).status for name in trace.responses}


def test_approval_is_a_post_with_header_and_version() -> None:
    assert approval_request(b"{}", JSON_CONTENT_TYPE) == Request(
        method="POST",
        target=f"{PATH}?api-version=2020-07-01",
        headers=(METADATA_HEADER, JSON_CONTENT_TYPE),
        body=b"{}",
        connection="close",
    )
    assert approval_request(None, version="", metadata=False, method="DELETE", connection=None) == Request(
        method="DELETE", target=PATH, headers=(), body=None, connection=None
    )


def test_invalid_approvals_differ_from_each_other_and_from_the_valid_one() -> None:
    requests = refused_requests(ID)
    assert len({*requests.values(), accepted_requests(ID)["again"]}) == len(requests) + 1


def test_no_invalid_approval_names_another_known_event() -> None:
    named = [request.body or b"" for request in refused_requests(ID).values()]
    assert [body for body in named if body.count(b"EventId") > 1 and ID.encode() not in body] == []


@pytest.mark.parametrize("name", accepted_requests(ID))
def test_every_accepted_approval_names_only_the_event(name: str) -> None:
    body = accepted_requests(ID)[name].body
    assert body is not None
    requests = json.loads(body.decode("utf-8-sig"))["StartRequests"]
    assert {request["EventId"].upper() for request in requests} == {ID}


def test_scheduled_event_is_approved_after_all_invalid_approvals() -> None:
    mock = MockEndpoint()
    id_ = mock.events[0]["EventId"]
    trace = run_on(mock, id_.lower())
    assert trace.id == id_
    found = statuses(trace)
    refused = set(refused_requests(id_)) | EXPECT_REFUSED
    assert {name for name, status in found.items() if status >= 400} == refused
    accepted = set(accepted_requests(id_)) | EXPECT_ACCEPTED | {"empty-list", "approve", "started"}
    assert set(found) == refused | accepted
    assert trace.before_approval is not None
    assert trace.before_approval.event(id_) == trace.initial
    assert trace.after_approval is not None
    assert is_started(trace.after_approval.event(id_))
    assert (trace.is_changed_by_empty_list, trace.is_gone, trace.is_closed_after_large_body) == (False, False, True)


def test_started_event_gets_no_invalid_approvals() -> None:
    mock = MockEndpoint()
    started = next(each["EventId"] for each in mock.events if each["EventStatus"] == "Started")
    trace = run_on(mock, started)
    assert set(statuses(trace)) == {*accepted_requests(started), *EXPECT_ACCEPTED, "approve", "empty-list"}
    assert (trace.before_approval, trace.after_approval) == (None, None)


def test_unknown_event_gets_one_approval() -> None:
    trace = run_on(MockEndpoint(), ID)
    assert (trace.id, trace.initial, statuses(trace)) == (ID, None, {"ended": 400})


class EndsApprovedEvents(MockEndpoint):
    def start(self, each: dict[str, object]) -> None:
        self.ended.add(str(each["EventId"]))
        self.events = [other for other in self.events if other is not each]
        self.incarnation += 1


def test_event_that_ends_at_once_is_gone() -> None:
    mock = EndsApprovedEvents()
    trace = run_on(mock, mock.events[0]["EventId"])
    found = statuses(trace)
    assert (trace.is_gone, found["approve"], found["ended"], "started" in found) == (True, 200, 200, False)


class TakesAnEmptyListForAllEvents(MockEndpoint):
    def approve(self, body: bytes | None) -> MockResponse:
        for each in self.events if not self.read_ids(body or b"") else ():
            if each["EventStatus"] == "Scheduled":
                self.start(each)
        return super().approve(body)


def test_change_by_an_empty_list_is_noticed() -> None:
    mock = TakesAnEmptyListForAllEvents()
    assert run_on(mock, mock.events[0]["EventId"]).is_changed_by_empty_list


class NeverStartsEvents(MockEndpoint):
    def start(self, each: dict[str, object]) -> None:
        """Leave the event as it is."""


def test_start_of_an_approved_event_is_awaited_with_pauses() -> None:
    slept: list[float] = []
    mock = NeverStartsEvents()
    trace = run_on(mock, mock.events[0]["EventId"], Pace(1e9, sleep=slept.append))
    assert [seconds for seconds in slept if seconds >= 1] == [1.0] * MAX_POLLS
    assert "started" not in trace.responses
    assert trace.after_approval is not None
    assert trace.after_approval.event(trace.id) == trace.initial


class TakesOnlyTheFirstStartRequest(MockEndpoint):
    """Accepts unknown events, and ignores all but the first."""

    def approve(self, body: bytes | None) -> MockResponse:
        first = self.read_ids(body or b"")[:1]
        for each in self.events:
            if [each["EventId"]] == first and each["EventStatus"] == "Scheduled":
                self.start(each)
        return self.approved()


class AcceptsUnknownEvents(MockEndpoint):
    def read_ids(self, body: bytes) -> list[str]:
        return [id_ for id_ in super().read_ids(body) if id_ in {each["EventId"] for each in self.events}]


def shared_of(mock: MockEndpoint, *, both: bool) -> SharedApproval | None:
    first, second = (each["EventId"] for each in mock.events[:2])
    with run_mock(mock) as url:
        probe = Probe(parse_endpoint(url), pace=no_delay(), timeout=GUARD)
        trace = run_approval(probe, first, second.lower() if both else None)
    if trace.shared is not None:
        assert trace.shared.second_id == (second if both else first)
    return trace.shared


def outcome(shared: SharedApproval | None) -> tuple[int, bool, bool]:
    assert shared is not None
    assert isinstance(shared.response, Response)
    return shared.response.status, shared.is_pending, shared.started_alone


@pytest.mark.parametrize("both", [True, False])
def test_endpoint_that_takes_only_the_first_start_request_is_noticed(both: bool) -> None:
    assert outcome(shared_of(TakesOnlyTheFirstStartRequest(), both=both)) == (200, False, True)


def test_two_events_are_approved_together() -> None:
    assert outcome(shared_of(MockEndpoint(), both=True)) == (200, False, False)


def test_unknown_event_may_be_refused_together_with_a_known_one() -> None:
    assert outcome(shared_of(MockEndpoint(), both=False)) == (400, False, False)


def test_event_that_is_named_second_may_start() -> None:
    assert outcome(shared_of(AcceptsUnknownEvents(), both=False)) == (200, False, False)


def test_blocked_event_stays_pending() -> None:
    assert outcome(shared_of(NeverStartsEvents(), both=True)) == (200, True, False)


@pytest.mark.parametrize(
    ("second", "why"),
    [(1, "had ended before an approval could name both"), (3, "had already started"), (None, "is not in the document")],
)
def test_shared_approval_is_not_sent_without_two_usable_events(second: int | None, why: str) -> None:
    mock = EndsApprovedEvents()
    other = ID if second is None else mock.events[second]["EventId"]
    with run_mock(mock) as url:
        probe = Probe(parse_endpoint(url), pace=no_delay(), timeout=GUARD)
        trace = run_approval(probe, mock.events[0]["EventId"], other)
    assert trace.shared is None
    assert trace.shared_skip_reason.endswith(why)


class RepeatsContinue(MockEndpoint):
    """Sends `100 Continue` twice, as Flask's development server does."""

    def written(self, asked: MockRequest | None, reply: MockResponse) -> bytes:
        again = b"HTTP/1.1 100 Continue\r\n\r\n" if asked is not None and asked.values("expect") else b""
        return again + super().written(asked, reply)


def test_repeated_continue_is_not_the_final_response() -> None:
    mock = RepeatsContinue()
    found = statuses(run_on(mock, mock.events[0]["EventId"]))
    assert (found["expect"], found["expect-after"]) == (100, 200)
