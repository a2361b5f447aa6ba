"""What a test sees of a handler, and how it waits for it."""

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


def test_handler_is_waited_for_without_sleeping(service: Forewarn) -> None:
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


def test_more_than_can_be_remembered_is_never_answered_wrongly(
    service: Forewarn, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert asked.splitlines()[0] == "… 1 older requests were not remembered"
    service.forget_requests()
    assert (service.dropped_requests, service.requests()) == (0, [])
    with pytest.raises(WaitTimeout):
        service.wait_for_approval(event, timeout=0)


def test_large_answers_are_not_remembered_for_ever(service: Forewarn, monkeypatch: pytest.MonkeyPatch) -> None:
    vm = service.vm("web-0")
    vm.document()
    (one,) = service.requests()
    monkeypatch.setattr(request_log, "MAX_BYTES", 2 * len(one.answer))
    for _ in range(4):
        vm.document()
    assert (service.dropped_requests, len(service.newest_requests())) == (3, 2)


def test_handler_that_approves_nothing_is_seen_to_have_been_told(service: Forewarn) -> None:
    vm = service.vm("web-0")
    with run_handler(vm.url, prepare=lambda _: False):
        event = service.schedule("Reboot", vm, notice="15m")
        told = service.wait_until_told(event, vm=vm, timeout=GUARD)
        assert event.id.encode() in told.answer
        service.advance("15m")
        started = service.wait_until_told(event, status="Started", timeout=GUARD)
        assert started.number > told.number
    assert service.approvals(vm) == []


def test_approval_of_a_neighbour_counts_for_any_vm_only(service: Forewarn) -> None:
    event = service.schedule("Reboot", "web-0", notice="15m")
    service.vm("web-1").approve(event)
    assert service.wait_for_approval(event).vm == "web/web-1"
    with pytest.raises(WaitTimeout):
        service.wait_for_approval(event, vm="web-0", timeout=0)


def test_repeated_and_refused_approvals_are_told_apart(service: Forewarn) -> None:
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


def test_requests_are_in_order_with_what_was_asked_and_answered(service: Forewarn) -> None:
    service.vm("web-1").document()
    service.vm("web-0").document()
    seen = [(request.vm, request.method, request.status, request.answer) for request in service.requests()]
    nothing = b'{"DocumentIncarnation":1,"Events":[]}'
    assert seen == [("web/web-1", "GET", 200, nothing), ("web/web-0", "GET", 200, nothing)]


def test_requests_are_counted_from_the_beginning(service: Forewarn) -> None:
    vm = service.vm("web-0")
    vm.document()
    vm.document()
    assert len(service.wait_until_asked(vm, times=2, timeout=0)) == 2


def test_question_that_is_held_has_been_asked(service: Forewarn) -> None:
    vm = service.vm("web-0")
    with run_handler(vm.url, prepare=lambda _: False):
        asked = service.wait_until_asked(vm, times=2, timeout=GUARD)
    assert "wait=" in asked[1].target


def test_other_questions_are_no_questions_for_events(service: Forewarn) -> None:
    with ScheduledEvents(service.vm("web-0").url) as client:
        assert client.name == "web-0"
    assert len(service.requests("web-0")) == 1
    with pytest.raises(WaitTimeout):
        service.wait_until_asked("web-0", timeout=0)


def test_vm_that_has_left_is_still_known(service: Forewarn) -> None:
    vm = service.vm("web-0")
    event = service.schedule("Reboot", vm)
    vm.approve(event)
    service.advance("5m")
    for name in ("web-0", "web-1"):
        service.delete(name)
    assert service.approvals("web-0") == service.approvals("web/web-0") == [event.id]
    assert service.requests("web-1") == []


@pytest.mark.parametrize("name", ["web-00", "web/web-00", "shop/web-0"])
def test_name_that_no_vm_ever_bore_is_refused(service: Forewarn, name: str) -> None:
    """An assertion that a VM approved nothing must not pass because of a mistyped name."""
    with pytest.raises(NotFound, match="there is no"):
        service.approvals(name)


def test_waiting_ends_when_another_thread_makes_it_happen(service: Forewarn) -> None:
    event = service.schedule("Reboot", "web-0", notice="15m")
    waiting = threading.Thread(
        target=service.wait_for_state, args=(event, "completed"), kwargs={"timeout": 10 * GUARD}, daemon=True
    )
    waiting.start()
    service.wait_for_state(event, "Scheduled", timeout=0)
    service.advance("20m")
    waiting.join(GUARD)
    assert not waiting.is_alive()


def test_anything_can_be_waited_for(service: Forewarn) -> None:
    with run_handler(service.vm("web-0").url):
        seen = service.wait_until(lambda: service.requests("web-0")[2:], timeout=GUARD)
        assert [request.number for request in seen] == [3]
    with pytest.raises(WaitTimeout, match=r"does not hold within 0 s\. web/web-0: It has made \d+ requests"):
        service.wait_until(lambda: service.approvals("web-0"), timeout=0)


class TestFailing:
    def test_says_what_was_waited_for_and_what_happened_instead(self, service: Forewarn) -> None:
        vm = service.vm("web-0")
        event = service.schedule("Reboot", vm)
        other = service.schedule("Freeze", "web-1")
        vm.document()
        vm.approve(other)
        told = (
            f"web/web-0 has not approved event {event} within 0.01 s. It has made 2 requests, the last one POST "
            f"/metadata/scheduledevents?api-version=2020-07-01, answered 200. It has approved {other}."
        )
        with pytest.raises(WaitTimeout, match=re.escape(told)):
            service.wait_for_approval(event, vm=vm, timeout=0.01)

    def test_says_when_nobody_asked(self, service: Forewarn) -> None:
        event = service.schedule("Reboot", "web-0")
        with pytest.raises(WaitTimeout, match=r"no VM has approved event .* No VM has asked anything\."):
            service.wait_for_approval(event, timeout=0)
        with pytest.raises(
            WaitTimeout, match=r"asked for its events 3 times within 0 s\. It has not asked for anything\."
        ):
            service.wait_until_asked("web-0", times=3, timeout=0)
        with pytest.raises(WaitTimeout, match=r"web/web-0 has not been told of event .* as Started within"):
            service.wait_until_told(event, vm="web-0", status="Started", timeout=0)
        with pytest.raises(WaitTimeout, match="is not Started within"):
            service.wait_for_state(event, "Started", timeout=0)

    def test_is_a_failed_assertion(self) -> None:
        assert issubclass(WaitTimeout, AssertionError)


class TestFaults:
    def test_hit_one_vm_so_many_times(self, service: Forewarn) -> None:
        service.fault("410", vm="web-0", times=2)
        vm, other = service.vm("web-0"), service.vm("web-1")
        for _ in range(2):
            with pytest.raises(Unavailable):
                vm.document()
        assert other.document() == vm.document()
        assert [request.status for request in service.requests(vm)] == [410, 410, 200]

    def test_are_survived_by_a_good_handler(self, service: Forewarn) -> None:
        vm = service.vm("web-0")
        service.fault("500", vm=vm, times=1)
        with run_handler(vm.url):
            event = service.schedule("Reboot", vm)
            service.wait_for_approval(event, timeout=GUARD)

    def test_are_cleared_one_by_one_or_all(self, service: Forewarn) -> None:
        first, second, _ = (service.fault(kind) for kind in ("429", "empty-body", "extra-field"))
        service.clear_fault(first)
        service.clear_fault(second.id)
        assert [fault.kind for fault in service.faults] == ["extra-field"]
        service.clear_faults()
        assert service.faults == []

    def test_end_by_the_clock_of_the_service(self, service: Forewarn) -> None:
        service.fault("truncated", lasting="5m")
        with pytest.raises(NotUnderstood):
            service.vm("web-0").document()
        service.advance("5m")
        assert service.vm("web-0").document().events == ()

    def test_broken_document_tells_nothing(self, service: Forewarn) -> None:
        event = service.schedule("Reboot", "web-0")
        service.fault("truncated", times=1)
        with pytest.raises(NotUnderstood):
            service.vm("web-0").document()
        with pytest.raises(WaitTimeout):
            service.wait_until_told(event, timeout=0)
        service.vm("web-0").document()
        service.wait_until_told(event, timeout=0)

    @pytest.mark.parametrize(("amount", "written"), [("-1h", "-1h"), (-3600, "-1h"), (90.5, "1m30.5s")])
    def test_have_amounts(self, service: Forewarn, amount: str | float, written: str) -> None:
        assert service.fault("wrong-date", amount=amount).amount == written
