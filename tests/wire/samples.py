"""Sample scopes, VMs, events and requests for the tests of `wire`."""

from datetime import UTC, datetime, timedelta
from typing import Any

from forewarn.core.event import Cause, Event, EventType, Source, State
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Roster, Vm
from forewarn.wire.request import RequestHead

NOT_BEFORE = datetime(2016, 9, 19, 18, 29, 47, tzinfo=UTC)
EVENT_ID = "602D9444-D2CD-49C7-8624-8643E7171297"
VM_ID = "02AAB8A4-74EF-476E-8182-F6D2BA4166A6"
METADATA = ("Metadata", "true")
EVENTS = "/metadata/scheduledevents"


def numbered_id(number: int) -> str:
    return f"{number:08X}-0000-4000-8000-000000000000"


def vm(name: str = "web_0", **fields: Any) -> Vm:
    return Vm(**({"name": name, "vm_id": VM_ID} | fields))


def event(**fields: Any) -> Event:
    """Return an event; by default a restart that a user requested."""
    usual: dict[str, Any] = {
        "id": EVENT_ID,
        "request": numbered_id(0),
        "type": EventType.REBOOT,
        "state": State.SCHEDULED,
        "source": Source.USER,
        "cause": Cause.USER,
        "vms": ("web_0",),
        "update_domain": 0,
        "created_at": NOT_BEFORE - timedelta(minutes=15),
        "not_before": NOT_BEFORE,
        "description": "A user asked for a restart of the VM.",
        "by": "owner",
    }
    return Event(**(usual | fields))


def scope(*events: Event, **fields: Any) -> Scope:
    usual: dict[str, Any] = {
        "id": "web",
        "kind": ScopeKind.AVAILABILITY_SET,
        "epoch": "k3Jx9",
        "changed_at": NOT_BEFORE,
        "roster": Roster((vm("web_0"), vm("web_1"))),
        "incarnation": 2,
        "events": events,
    }
    return Scope(**(usual | fields))


def get(target: str, *headers: tuple[str, str]) -> RequestHead:
    """Return a GET with the header that every request needs, and others."""
    return RequestHead("GET", target, [METADATA, *headers])


def post(target: str, *headers: tuple[str, str]) -> RequestHead:
    return RequestHead("POST", target, [METADATA, *headers])
