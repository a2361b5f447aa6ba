"""Tests of the request log: queries of a handler's requests, and waiting for them."""

import re
import threading
from collections.abc import Iterator

import pytest

from forewarn.api.errors import NotFound
from forewarn.client import NotUnderstood, Refused, ScheduledEvents, Unavailable
from forewarn.testing import Forewarn, TooManyRequests, WaitTimeout, request_log
from forewarn.testing.failure_report import report_sections
from tests.testing.handlers import GUARD, run_handler

NO_SUCH_EVENT = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def service() -> Iterator[Forewarn]:
    with Forewarn(["web/web-0", "web/web-1"]) as forewarn:
        yield forewarn


def test_wait_for_approval_returns_the_handlers_request(service: Forewarn) -> None:
    vm = service.vm("web-0")
    with run_handler(vm.url):
        service.wait_until_asked(vm, timeout=GUARD)
        first = service.schedule("Reboot", vm, notice="15m")
        assert service.wait_for_approval(first, vm=vm, timeout=GUARD).vm == "web/web-0"
        assert first.state == "Started"
        second = service.schedule("Freeze", vm, notice="15m")
        service.wait_for_approval(second, timeout=GUARD)
    assert service.approvals("web-0") == [first.id, second.id] == service.approvals()
    assert service.approvals("web-1") == []


def test_observer_sees_a_request_before_its_response_is_sent(service: Forewarn) -> None:
    vm, reported = service.vm("web-0"), list[tuple[str, bool]]()
    is_answered = threading.Event()
    service.observe_requests(lambda request: reported.append((request.method, is_answered.is_set())))
    vm.document()
    is_answered.set()
    assert set(reported) == {("GET", False)}


def test_queries_raise_after_requests_were_dropped(service: Forewarn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MAX_REQUESTS", 3)
    vm = service.vm("web-0")
    event = service.schedule("Reboot", vm, notice="15m")
    vm.approve(event)
    for _ in range(3):
        vm.document()
    assert (service.dropped_requests, len(service.newest_requests(vm))) == (1, 3)
    for ask in (service.requests, service.approvals):
        with pytest.raises(TooManyRequests, match="the 1 oldest were dropped"):
            ask(vm)
    assert len(service.wait_until_asked(vm, times=3, timeout=GUARD)) == 3
    with pytest.raises(TooManyRequests):
        service.wait_for_approval(event, timeout=0)
    (_, asked) = dict(report_sections(service)).values()
    assert asked.splitlines()[0] == "… 1 older requests were dropped"
    service.forget_requests()
    assert (service.dropped_requests, service.requests()) == (0, [])
    with pytest.raises(WaitTimeout):
        service.wait_for_approval(event, timeout=0)


def test_log_drops_requests_above_its_byte_limit(service: Forewarn, monkeypatch: pytest.MonkeyPatch) -> None:
    vm = service.vm("web-0")
    vm.document()
    (one,) = service.requests()
    monkeypatch.setattr(request_log, "MAX_BYTES", 2 * len(one.answer))
    for _ in range(4):
        vm.document()
    assert (service.dropped_requests, len(service.newest_requests())) == (3, 2)


def test_wait_until_told_returns_the_request_with_the_event(service: Forewarn) -> None:
    vm = service.vm("web-0")
    with run_handler(vm.url, prepare=lambda _: False):
        event = service.schedule("Reboot", vm, notice="15m")
        told = service.wait_until_told(event, vm=vm, timeout=GUARD)
        assert event.id.encode() in told.answer
        service.advance("15m")
        started = service.wait_until_told(event, status="Started", timeout=GUARD)
        assert started.number > told.number
    assert service.approvals(vm) == []


def test_approval_by_another_vm_does_not_count_for_this_vm(service: Forewarn) -> None:
    event = service.schedule("Reboot", "web-0", notice="15m")
    service.vm("web-1").approve(event)
    assert service.wait_for_approval(event).vm == "web/web-1"
    with pytest.raises(WaitTimeout):
        service.wait_for_approval(event, vm="web-0", timeout=0)


def test_approvals_include_repetitions_but_no_refused_ones(service: Forewarn) -> None:
    vm = service.vm("web-0")
    event = service.schedule("Reboot", vm, notice="15m")
    vm.approve(event)
    vm.approve(event)
    with pytest.raises(Refused, match="there is no event"):
        vm.approve(NO_SUCH_EVENT)
    assert service.approvals(vm) == [event.id, event.id]
    assert [(request.approved, request.status) for request in service.requests(vm)] == [
        ((event.id,), 200),
        ((event.id,), 200),
        ((NO_SUCH_EVENT,), 400),
    ]


def test_requests_are_in_order_with_their_responses(service: Forewarn) -> None:
    service.vm("web-1").document()
    service.vm("web-0").document()
    seen = [(request.vm, request.method, request.status, request.answer) for request in service.requests()]
    nothing = b'{"DocumentIncarnation":1,"Events":[]}'
    assert seen == [("web/web-1", "GET", 200, nothing), ("web/web-0", "GET", 200, nothing)]


def test_wait_until_asked_counts_earlier_requests(service: Forewarn) -> None:
    vm = service.vm("web-0")
    vm.document()
    vm.document()
    assert len(service.wait_until_asked(vm, times=2, timeout=0)) == 2


def test_pending_long_poll_counts_as_a_poll(service: Forewarn) -> None:
    vm = service.vm("web-0")
    with run_handler(vm.url, prepare=lambda _: False):
        asked = service.wait_until_asked(vm, times=2, timeout=GUARD)
    assert "wait=" in asked[1].target


def test_other_requests_do_not_count_as_polls(service: Forewarn) -> None:
    with ScheduledEvents(service.vm("web-0").url) as client:
        assert client.name == "web-0"
    assert len(service.requests("web-0")) == 1
    with pytest.raises(WaitTimeout):
        service.wait_until_asked("web-0", timeout=0)


def test_requests_of_a_deleted_vm_can_be_queried(service: Forewarn) -> None:
    vm = service.vm("web-0")
    event = service.schedule("Reboot", vm)
    vm.approve(event)
    service.advance("5m")
    for name in ("web-0", "web-1"):
        service.delete(name)
    assert service.approvals("web-0") == service.approvals("web/web-0") == [event.id]
    assert service.requests("web-1") == []


@pytest.mark.parametrize("name", ["web-00", "web/web-00", "shop/web-0"])
def test_unknown_vm_name_is_refused(service: Forewarn, name: str) -> None:
    """An assertion that a VM approved nothing must not pass because of a mistyped name."""
    with pytest.raises(NotFound, match="there is no"):
        service.approvals(name)


def test_wait_for_state_ends_when_another_thread_advances_the_clock(service: Forewarn) -> None:
    event = service.schedule("Reboot", "web-0", notice="15m")
    waiting = threading.Thread(
        target=service.wait_for_state, args=(event, "completed"), kwargs={"timeout": 10 * GUARD}, daemon=True
    )
    waiting.start()
    service.wait_for_state(event, "Scheduled", timeout=0)
    service.advance("20m")
    waiting.join(GUARD)
    assert not waiting.is_alive()


def test_wait_until_accepts_any_condition(service: Forewarn) -> None:
    with run_handler(service.vm("web-0").url):
        seen = service.wait_until(lambda: service.requests("web-0")[2:], timeout=GUARD)
        assert [request.number for request in seen] == [3]
    with pytest.raises(WaitTimeout, match=r"did not become true within 0 s\. web/web-0: It has sent \d+ requests"):
        service.wait_until(lambda: service.approvals("web-0"), timeout=0)


class TestFailing:
    def test_message_names_the_missing_request_and_those_seen(self, service: Forewarn) -> None:
        vm = service.vm("web-0")
        event = service.schedule("Reboot", vm)
        other = service.schedule("Freeze", "web-1")
        vm.document()
        vm.approve(other)
        message = (
            f"web/web-0 has not approved event {event} within 0.01 s. It has sent 2 requests, the last one POST "
            f"/metadata/scheduledevents?api-version=2020-07-01, answered 200. It has approved {other}."
        )
        with pytest.raises(WaitTimeout, match=re.escape(message)):
            service.wait_for_approval(event, vm=vm, timeout=0.01)

    def test_message_says_that_no_request_was_sent(self, service: Forewarn) -> None:
        event = service.schedule("Reboot", "web-0")
        with pytest.raises(WaitTimeout, match=r"no VM has approved event .* No VM has sent a request\."):
            service.wait_for_approval(event, timeout=0)
        with pytest.raises(WaitTimeout, match=r"not polled its events 3 times within 0 s\. It has sent no request\."):
            service.wait_until_asked("web-0", times=3, timeout=0)
        with pytest.raises(WaitTimeout, match=r"web/web-0 has not received event .* as Started within"):
            service.wait_until_told(event, vm="web-0", status="Started", timeout=0)
        with pytest.raises(WaitTimeout, match="is not Started within"):
            service.wait_for_state(event, "Started", timeout=0)

    def test_timeout_is_an_assertion_error(self) -> None:
        assert issubclass(WaitTimeout, AssertionError)


class TestFaults:
    def test_fault_affects_one_vm_a_number_of_times(self, service: Forewarn) -> None:
        service.fault("410", vm="web-0", times=2)
        vm, other = service.vm("web-0"), service.vm("web-1")
        for _ in range(2):
            with pytest.raises(Unavailable):
                vm.document()
        assert other.document() == vm.document()
        assert [request.status for request in service.requests(vm)] == [410, 410, 200]

    def test_handler_that_retries_survives_a_fault(self, service: Forewarn) -> None:
        vm = service.vm("web-0")
        service.fault("500", vm=vm, times=1)
        with run_handler(vm.url):
            event = service.schedule("Reboot", vm)
            service.wait_for_approval(event, timeout=GUARD)

    def test_faults_are_cleared_one_by_one_or_all(self, service: Forewarn) -> None:
        first, second, _ = (service.fault(kind) for kind in ("429", "empty-body", "extra-field"))
        service.clear_fault(first)
        service.clear_fault(second.id)
        assert [fault.kind for fault in service.faults] == ["extra-field"]
        service.clear_faults()
        assert service.faults == []

    def test_duration_of_a_fault_is_measured_by_the_services_clock(self, service: Forewarn) -> None:
        service.fault("truncated", lasting="5m")
        with pytest.raises(NotUnderstood):
            service.vm("web-0").document()
        service.advance("5m")
        assert service.vm("web-0").document().events == ()

    def test_invalid_document_does_not_count_as_received(self, service: Forewarn) -> None:
        event = service.schedule("Reboot", "web-0")
        service.fault("truncated", times=1)
        with pytest.raises(NotUnderstood):
            service.vm("web-0").document()
        with pytest.raises(WaitTimeout):
            service.wait_until_told(event, timeout=0)
        service.vm("web-0").document()
        service.wait_until_told(event, timeout=0)

    @pytest.mark.parametrize(("amount", "written"), [("-1h", "-1h"), (-3600, "-1h"), (90.5, "1m30.5s")])
    def test_amount_of_a_fault_can_be_text_or_seconds(
        self, service: Forewarn, amount: str | float, written: str
    ) -> None:
        assert service.fault("wrong-date", amount=amount).amount == written
