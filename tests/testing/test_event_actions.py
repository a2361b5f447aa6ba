"""Tests of creating and canceling events from a test."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from forewarn.api.errors import NotFound, RequestRefused
from forewarn.testing import Forewarn, InvalidEventType


@pytest.fixture
def service() -> Iterator[Forewarn]:
    with Forewarn() as forewarn:
        yield forewarn


def kinds(service: Forewarn, vm: str) -> list[tuple[str, str, str | None]]:
    return [(event.type, event.status, event.source) for event in service.vm(vm).document().events]


def test_event_goes_from_scheduled_to_completed(service: Forewarn) -> None:
    event = service.schedule("Reboot", "web-0", notice="15m", description="New kernel", why="CVE")
    begun = service.now
    assert (event.state, event.scope, event.not_before) == ("Scheduled", "web", begun + timedelta(minutes=15))
    assert "not before" in event.explanation[0]
    assert service.vm("web-0").document().events[0].description == "New kernel"
    assert service.advance_to_next() == begun + timedelta(minutes=15)
    assert event.state == "Started"
    assert service.advance_to_next() == begun + timedelta(minutes=16)
    assert (event.state, event.is_open, event.not_before, event.explanation) == ("completed", False, None, ())
    assert service.events == []


def test_approval_starts_the_event(service: Forewarn) -> None:
    event = service.schedule("Reboot", "web-0", notice="15m")
    service.vm("web-0").approve(event)
    assert event.state == "Started"
    service.advance("1m")
    assert event.state == "completed"


def test_schedule_all_creates_one_event_per_update_domain_and_host(service: Forewarn) -> None:
    assert len(service.schedule_all("Freeze", scope="web")) == 3
    assert len(service.schedule_all("Freeze", host="hv-5")) == 1
    assert len(service.schedule_all("Freeze", "shop/FrontEnd_IN_0", service.vm("FrontEnd_IN_1"))) == 2
    assert len(service.events) == 6


def test_owner_operations_create_user_events(service: Forewarn) -> None:
    service.restart("web-0", why="stuck")
    service.redeploy("db-0")
    assert kinds(service, "web-0") == [("Reboot", "Scheduled", "User")]
    assert kinds(service, "db-0") == [("Redeploy", "Scheduled", "User")]


def test_delete_creates_an_event_only_with_a_terminate_profile(service: Forewarn) -> None:
    event = service.delete("batch_0")
    assert event is not None
    assert kinds(service, "batch_0") == [("Terminate", "Scheduled", "User")]
    assert service.delete("db-0") is None
    with pytest.raises(NotFound):
        service.vm("db-0")


def test_evicted_vm_is_removed_after_its_notice(service: Forewarn) -> None:
    event = service.evict("batch_0", notice="8s")
    assert event.not_before == service.now + timedelta(seconds=8)
    service.advance("20s")
    assert event.state == "completed"
    with pytest.raises(NotFound):
        service.vm("batch_0")


def test_hardware_failure_starts_immediately_and_predicted_failure_waits(service: Forewarn) -> None:
    failed = service.fail("web-0")
    assert failed.state == "Started"
    predicted = service.predict_failure("db-0", ahead=timedelta(days=3))
    assert predicted.not_before == service.now + timedelta(days=3)


def test_canceled_event_disappears_from_the_document(service: Forewarn) -> None:
    event = service.schedule("Freeze", "web-0")
    service.cancel(event, why="not needed")
    assert event.state == "canceled"
    assert service.vm("web-0").document().events == ()


def test_refusals_of_the_service_are_raised(service: Forewarn) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        service.schedule("Reboot", "nowhere")
    with pytest.raises(InvalidEventType, match="'reboot': use Freeze, Reboot, Redeploy, Preempt, Terminate or Spot"):
        service.schedule("reboot", "web-0")
    with pytest.raises(RequestRefused, match="low"):
        service.evict("web-0")


def test_events_are_compared_by_id(service: Forewarn) -> None:
    event = service.schedule("Freeze", "web-0")
    assert event == event.id
    assert event == event.id.lower()
    assert service.events == [event]
    assert {event, service.events[0]} == {event}
    assert event != service.schedule("Freeze", "web-1")
    assert event != 1
    assert event.id in repr(event)


def test_vm_has_names_urls_environment_and_socket(service: Forewarn) -> None:
    vm = service.vm("web-0")
    assert (vm.name, vm.scope, str(vm), vm.environment) == ("web-0", "web", "web/web-0", {"FOREWARN_ENDPOINT": vm.url})
    assert vm.events_url == f"{vm.url}/metadata/scheduledevents?api-version=2020-07-01"
    assert service.vm(vm).url == vm.url
    assert vm.socket.is_socket()
    assert vm.socket == vm.socket
