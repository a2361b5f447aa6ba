"""The log of requests: bounded, in order of arrival, and what it tells of them."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from forewarn.guest.observer import Observed
from forewarn.testing import request_log
from forewarn.testing.request_log import (
    EVENTS_PATH,
    RequestLog,
    approved_ids,
    event_in_response,
    is_events_query,
    summarize,
)

EVENT = (
    b'{"DocumentIncarnation":2,"Events":[{"EventId":"E1","EventStatus":"Scheduled","EventType":"Reboot",'
    b'"ResourceType":"VirtualMachine","Resources":["web-0"],"NotBefore":"Mon, 19 Sep 2016 18:29:47 GMT"}]}'
)


def a_request(number: int = 1, **fields: Any) -> Observed:
    values: dict[str, Any] = {
        "vm": "web/web-0",
        "at": 0.0,
        "wall": datetime(2026, 3, 2, 10, tzinfo=UTC),
        "method": "GET",
        "target": EVENTS_PATH,
        "status": 200,
    }
    return Observed(number=number, **values | fields)


def test_requests_are_in_the_order_in_which_they_came() -> None:
    log = RequestLog()
    late, early, other = a_request(2), a_request(1, status=None), a_request(3, vm="db/db-0")
    for request in (late, early, other):
        log.record(request)
    assert log.requests() == [early, late, other]
    assert log.requests("db/db-0") == [other]
    assert log.vms == {"web/web-0", "db/db-0"}


def test_response_replaces_the_request_that_waited_for_it() -> None:
    log = RequestLog()
    log.record(a_request(1, status=None))
    log.record(a_request(1, status=304))
    assert log.requests() == [a_request(1, status=304)]


@pytest.mark.parametrize(("limit", "value"), [("MAX_REQUESTS", 3), ("MAX_BYTES", 30)])
def test_oldest_requests_are_dropped_above_a_limit(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(request_log, limit, value)
    log = RequestLog()
    for number in range(5):
        log.record(a_request(number, body=b"x" * 4, answer=b"x" * 6))
    assert ([request.number for request in log.requests()], log.dropped) == ([2, 3, 4], 2)
    log.clear()
    assert (log.requests(), log.dropped, log.vms) == ([], 0, frozenset({"web/web-0"}))


def test_one_request_is_kept_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MAX_BYTES", 1)
    log = RequestLog()
    log.record(a_request(body=b"xxx"))
    assert len(log.requests()) == 1


def test_waiting_caller_is_woken_by_a_request() -> None:
    log = RequestLog()
    looked = threading.Event()

    def find() -> str | None:
        looked.set()
        return "found" if log.requests() else None

    def record() -> None:
        looked.wait(60)
        log.record(a_request())

    thread = threading.Thread(target=record)
    thread.start()
    assert log.wait_for(find, 60) == "found"
    thread.join()


def test_caller_that_waits_in_vain_gets_nothing() -> None:
    assert RequestLog().wait_for(lambda: None, 0.0) is None


@pytest.mark.parametrize(
    ("method", "target", "query"),
    [
        ("GET", f"{EVENTS_PATH}?api-version=2020-07-01", True),
        ("GET", "/Metadata/ScheduledEvents/", True),
        ("POST", EVENTS_PATH, False),
        ("GET", "/metadata/instance", False),
    ],
)
def test_poll_of_events_is_recognised(method: str, target: str, query: bool) -> None:
    assert is_events_query(a_request(method=method, target=target)) is query


def test_approval_counts_if_it_was_accepted() -> None:
    assert approved_ids(a_request(method="POST", approved=("E1",))) == ("E1",)
    assert approved_ids(a_request(method="POST", approved=("E1",), status=404)) == ()


def test_event_is_found_in_the_response_that_showed_it() -> None:
    found = event_in_response(a_request(answer=EVENT), "e1")
    assert found is not None
    assert found.resources == ("web-0",)
    for request in (a_request(answer=EVENT, status=304), a_request(answer=b"nonsense"), a_request(answer=b"")):
        assert event_in_response(request, "E1") is None
    assert event_in_response(a_request(answer=EVENT), "E2") is None


def test_summary_has_number_last_request_and_approvals() -> None:
    assert summarize([]) == "It has sent no request."
    one = summarize([a_request(status=None)])
    assert "one request" in one
    assert "nothing" in one
    two = summarize([a_request(method="POST", approved=("E1",)), a_request(2)])
    assert "2 requests" in two
    assert "E1" in two
