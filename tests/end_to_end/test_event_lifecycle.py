"""The lifecycle of each event type in the real service: at the guest endpoint, in the API and in the journal."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.api.errors import NotFound
from forewarn.api.local_service import read_token
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.core.scope import EventOutcome
from tests.end_to_end.service_process import ServiceProcess, run_service_process
from tests.support.program import GUARD


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One service for all tests: each uses a different scope or VM."""
    with run_service_process(tmp_path_factory.mktemp("lives")) as found:
        yield found


class LifecycleCase(NamedTuple):
    """How to schedule an event, and what guests and operators must see."""

    make: Callable[[ApiClient], v1.ScheduleResponse]
    vm: str
    neighbour: str
    type: EventType
    source: str
    approved: bool
    first: str = "Scheduled"
    moves: bool = False
    leaves: bool = False


def schedule(type_: EventType, vm: str, **more: str) -> Callable[[ApiClient], v1.ScheduleResponse]:
    return lambda api: api.schedule(v1.ScheduleEvents(type=type_, vms=(vm,), **more))  # type: ignore[arg-type]  # texts


LIFECYCLE_CASES = {
    "Freeze when due": LifecycleCase(
        schedule(EventType.FREEZE, "web-0", duration="5s"),
        "web/web-0",
        "web/web-5",
        EventType.FREEZE,
        "Platform",
        False,
    ),
    "Reboot approved by a neighbour": LifecycleCase(
        schedule(EventType.REBOOT, "web-0"), "web/web-0", "web/web-5", EventType.REBOOT, "Platform", True
    ),
    "Reboot by the owner": LifecycleCase(
        lambda api: api.restart(v1.Operate(vm="web-1")), "web/web-1", "web/web-5", EventType.REBOOT, "User", False
    ),
    "Reboot after a failure": LifecycleCase(
        lambda api: api.fail(v1.Fail(vms=("web-2",), type=EventType.REBOOT)),
        "web/web-2",
        "web/web-5",
        EventType.REBOOT,
        "Platform",
        False,
        first="Started",
    ),
    "Redeploy by the owner": LifecycleCase(
        lambda api: api.redeploy(v1.Operate(vm="web-4")),
        "web/web-4",
        "web/web-5",
        EventType.REDEPLOY,
        "User",
        True,
        moves=True,
    ),
    "Redeploy after a failure": LifecycleCase(
        lambda api: api.fail(v1.Fail(vms=("web-3",))),
        "web/web-3",
        "web/web-5",
        EventType.REDEPLOY,
        "Platform",
        False,
        first="Started",
        moves=True,
    ),
    "Preempt": LifecycleCase(
        lambda api: api.evict(v1.Evict(vm="batch_1")),
        "batch/batch_1",
        "batch/batch_0",
        EventType.PREEMPT,
        "Platform",
        False,
        leaves=True,
    ),
    "Terminate": LifecycleCase(
        lambda api: api.delete(v1.Operate(vm="batch_2")),
        "batch/batch_2",
        "batch/batch_0",
        EventType.TERMINATE,
        "User",
        True,
        leaves=True,
    ),
}


@pytest.mark.parametrize("life", LIFECYCLE_CASES.values(), ids=LIFECYCLE_CASES)
def test_event_lifecycle(service: ServiceProcess, life: LifecycleCase) -> None:
    name = life.vm.partition("/")[2]
    host = service.api.vm(life.vm).host
    incarnation = service.document(life.neighbour)["DocumentIncarnation"]
    (made,) = life.make(service.api).created
    assert (
        service.visible_events(life.vm)
        == service.visible_events(life.neighbour)
        == [(life.type.value, life.first, life.source, [name])]
    )
    started_by = ["scheduled", "started"] if life.first == "Scheduled" else ["started"]
    if life.approved:
        service.approve(life.neighbour, made.id)
        started_by = ["scheduled", "approved", "started"]
    elif life.first == "Scheduled":
        service.api.advance()
    assert service.visible_events(life.vm) == [(life.type.value, "Started", life.source, [name])]
    detail = service.api.event(made.id)
    assert detail.event is not None
    assert (detail.event.status, detail.event.explanation) == ("Started", [])
    service.api.advance()

    assert service.visible_events(life.neighbour) == []
    assert service.document(life.neighbour)["DocumentIncarnation"] == incarnation + (
        3 if life.first == "Scheduled" else 2
    )
    detail = service.api.event(made.id)
    assert (detail.event, detail.outcome, detail.type, detail.vms) == (None, EventOutcome.COMPLETED, life.type, [name])
    done = ["impact-begun", "impact-done", "completed"]
    assert [entry.action.value for entry in detail.journal] == [*started_by, *done]
    assert service.journal_kinds(made.id) == [*started_by, *done]
    if life.leaves:
        with pytest.raises(NotFound):
            service.api.vm(life.vm)
        assert not service.is_served(life.vm)
        assert [entry.vms for entry in service.api.journal(vm=life.vm, actions=(EntryKind.VM_REMOVED,))] == [[name]]
    else:
        assert (service.api.vm(life.vm).host != host) is life.moves
        assert service.visible_events(life.vm) == []


def test_vm_without_a_terminate_profile_is_deleted_immediately(service: ServiceProcess) -> None:
    assert service.api.delete(v1.Operate(vm="BackEnd_IN_1", reason="too many")).created == []
    with pytest.raises(NotFound):
        service.api.vm("shop/BackEnd_IN_1")
    assert not service.is_served("shop/BackEnd_IN_1")


def test_held_event_starts_after_release(service: ServiceProcess) -> None:
    service.api.hold(v1.CreateHold(reason="audit"))
    service.api.hold(v1.CreateHold(reason="closing", scope="db-0"))
    (made,) = service.api.schedule(v1.ScheduleEvents(type=EventType.FREEZE, vms=("db-0",))).created
    service.approve("db-0/db-0", made.id)
    service.api.advance("1h")
    (waiting,) = service.api.events(scope="db-0")
    assert waiting.explanation == ["all maintenance is held by admin: audit", "the scope is held by admin: closing"]
    assert service.visible_events("db-0/db-0") == [("Freeze", "Scheduled", "Platform", ["db-0"])]
    service.api.release(v1.ReleaseHold())
    assert service.visible_events("db-0/db-0") == [("Freeze", "Scheduled", "Platform", ["db-0"])]
    service.api.release(v1.ReleaseHold(scope="db-0"))
    assert service.visible_events("db-0/db-0") == [("Freeze", "Started", "Platform", ["db-0"])]
    service.api.advance()
    assert service.api.event(made.id).outcome is EventOutcome.COMPLETED


def test_shutdown_does_not_wait_for_journal_followers(tmp_path: Path) -> None:
    with run_service_process(tmp_path) as here:
        parts = urlsplit(here.up.ready["operator_url"])
        token = read_token(tmp_path / "data/token")
        request = f"GET /v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        followers = []
        for _ in range(20):
            follower = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=GUARD)
            follower.sendall(request)
            assert follower.recv(15) == b"HTTP/1.1 200 OK"
            followers.append(follower)
    for follower in followers:
        with follower:
            rest = b""
            while received := follower.recv(65_536):
                rest += received
            assert rest.endswith(b"\r\n0\r\n\r\n")
    assert "graceful" not in here.up.stderr
