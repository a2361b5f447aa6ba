"""C# programs and PowerShell scripts of 2017: they approve all events, and wait for `100 Continue`."""

import json
from typing import Any

import pytest

from forewarn.core.event import EventType
from tests.support.emulator import EmulatorProcess, Vm, events_path
from tests.third_party_clients.dotnet import Answer, WebRequests

METADATA = "Metadata: true"
C_SHARP = ("Content-Type: application/json; charset=utf-8",)
POWERSHELL = (
    "User-Agent: Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.14393.1066",
    "Content-Type: application/x-www-form-urlencoded",
)
APPROVED = Answer(200, b"", continued=True)


def approval(*events: str, **more: Any) -> bytes:
    return json.dumps(more | {"StartRequests": [{"EventId": event} for event in events]}).encode()


@pytest.fixture
def events(service: EmulatorProcess, vm: Vm) -> tuple[str, ...]:
    """Three events in the document of one VM; none delays another."""
    types = (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY)
    return tuple(event for type_ in types for event in service.schedule(type_, vm))


@pytest.mark.parametrize("sender", [C_SHARP, POWERSHELL], ids=["C#", "PowerShell"])
@pytest.mark.parametrize("version", ["2017-03-01", "2017-08-01"])
def test_all_events_are_approved_in_one_request(
    service: EmulatorProcess, vm: Vm, events: tuple[str, ...], version: str, sender: tuple[str, ...]
) -> None:
    path = events_path(version)
    with WebRequests(vm.url) as web:
        document = json.loads(web.get(path, METADATA).body)
        ids = [event["EventId"] for event in document["Events"]]
        body = approval(*ids, DocumentIncarnation=document["DocumentIncarnation"])
        assert web.post(path, body, METADATA, *sender) == APPROVED
    assert service.statuses(vm) == dict.fromkeys(events, "Started")


def test_events_are_approved_one_by_one_on_the_same_connection(
    service: EmulatorProcess, vm: Vm, events: tuple[str, ...]
) -> None:
    path = events_path("2017-08-01")
    expected = dict.fromkeys(events, "Scheduled")
    with WebRequests(vm.url) as web:
        for event in json.loads(web.get(path, METADATA).body)["Events"]:
            assert web.post(path, approval(event["EventId"]), METADATA, *POWERSHELL) == APPROVED
            expected[event["EventId"]] = "Started"
            assert service.statuses(vm) == expected


@pytest.mark.parametrize("incarnation", [4, "4", -1, None], ids=["number", "text", "wrong", "null"])
def test_incarnation_sent_by_old_clients_is_ignored(
    service: EmulatorProcess, vm: Vm, events: tuple[str, ...], incarnation: object
) -> None:
    with WebRequests(vm.url) as web:
        body = approval(*events, DocumentIncarnation=incarnation)
        assert web.post(events_path("2017-03-01"), body, METADATA, *C_SHARP) == APPROVED
    assert service.statuses(vm) == dict.fromkeys(events, "Started")


@pytest.mark.parametrize("sender", [C_SHARP, POWERSHELL, ()], ids=["C#", "PowerShell", "no content type"])
def test_preview_accepts_approvals_without_the_metadata_header(
    service: EmulatorProcess, vm: Vm, events: tuple[str, ...], sender: tuple[str, ...]
) -> None:
    with WebRequests(vm.url) as web:
        assert web.post(events_path("2017-03-01"), approval(*events), *sender) == APPROVED
    assert service.statuses(vm) == dict.fromkeys(events, "Started")


def test_later_versions_refuse_a_missing_header_before_the_body_is_sent(
    service: EmulatorProcess, vm: Vm, events: tuple[str, ...]
) -> None:
    with WebRequests(vm.url) as web:
        refused = web.post(events_path("2017-08-01"), approval(*events), *C_SHARP)
    body = b'{ "error": "Bad request: . Required metadata header not specified" }'
    assert refused == Answer(400, body, continued=False)
    assert service.statuses(vm) == dict.fromkeys(events, "Scheduled")


def test_dotnet_guids_and_byte_order_mark_are_accepted(
    service: EmulatorProcess, vm: Vm, events: tuple[str, ...]
) -> None:
    """.NET prints a Guid in lower case, and its UTF-8 writers start with a byte order mark."""
    body = b"\xef\xbb\xbf" + approval(*(event.lower() for event in events))
    with WebRequests(vm.url) as web:
        assert web.post(events_path("2017-08-01"), body, METADATA, *C_SHARP) == APPROVED
    assert service.statuses(vm) == dict.fromkeys(events, "Started")


def test_approval_of_an_event_delayed_by_another_update_domain_is_kept(
    service: EmulatorProcess, availability_set: tuple[Vm, ...]
) -> None:
    first, second = (service.schedule(EventType.REBOOT, vm)[0] for vm in availability_set[:2])
    with WebRequests(availability_set[2].url) as web:
        assert web.post(events_path("2017-08-01"), approval(first, second), METADATA, *C_SHARP) == APPROVED
    assert service.statuses(availability_set[0]) == {first: "Started", second: "Scheduled"}
    service.advance("60s")
    assert service.statuses(availability_set[0]) == {second: "Started"}


def test_approval_of_an_ended_event_is_accepted(service: EmulatorProcess, vm: Vm) -> None:
    (event,) = service.schedule(EventType.FREEZE, vm)
    with WebRequests(vm.url) as web:
        assert web.post(events_path("2017-08-01"), approval(event), METADATA, *POWERSHELL) == APPROVED
        service.advance("10s")
        assert service.statuses(vm) == {}
        assert web.post(events_path("2017-08-01"), approval(event), METADATA, *POWERSHELL) == APPROVED
