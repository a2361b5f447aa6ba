"""The trace of a handler: documents it received and approvals it sent."""

from tests.testing.exam.traces import OWN, ask, post, record, seen

SCHEDULED, STARTED = ("E1", "Scheduled", OWN), ("E1", "Started", OWN)


def test_documents_are_those_that_the_handler_received() -> None:
    trace = record(ask(1, SCHEDULED), ask(2, status=410), seen(3, "GET", "/other", 200), ask(4, STARTED), ask(5))
    assert [(document.at, list(document.events)) for document in trace.documents] == [(1, ["E1"]), (4, ["E1"]), (5, [])]
    assert len(trace.polls) == 4
    started = trace.first_document_with("E1", status="Started")
    assert started is not None
    assert (started.at, trace.gone_at("E1"), trace.gone_at("E2")) == (4, 5, None)
    before = trace.latest_document(4.5)
    assert before is started
    assert trace.latest_document(0.5) is None


def test_event_is_as_it_was_first_and_last_received_before_its_start() -> None:
    trace = record(ask(1, SCHEDULED), ask(2, STARTED))
    first, last = trace.event("E1"), trace.last_scheduled_event("E1")
    assert first is not None
    assert first == last
    assert first.status == "Scheduled"
    assert (trace.event("E2"), record(ask(1, STARTED)).last_scheduled_event("E1")) == (None, None)


def test_approvals_are_listed_one_by_one() -> None:
    trace = record(post(1, "E1", "E2"), post(2, "E1", status=404))
    assert [(approval.at, approval.id, approval.is_accepted) for approval in trace.approvals] == [
        (1, "E1", True),
        (1, "E2", True),
        (2, "E1", False),
    ]
    assert [approval.at for approval in trace.approvals_of("E1")] == [1, 2]


def test_request_through_a_proxy_is_the_same_request() -> None:
    path = "/metadata/scheduledevents"
    trace = record(seen(1, "GET", f"http://169.254.169.254{path}?api-version=1", 200), seen(2, "GET", f"{path}/", 410))
    assert (len(trace.polls), len(trace.event_requests)) == (2, 2)
