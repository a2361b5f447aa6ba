"""Event types of the API: limits and defaults of requests."""

from datetime import UTC, datetime

import msgspec
import pytest

from forewarn.api.v1.common import Hold
from forewarn.api.v1.events import VMS_PER_REQUEST, Evict, Holds, Operate, ScheduleEvents
from forewarn.core.event import EventType, Source


def ask(**fields: object) -> ScheduleEvents:
    return msgspec.json.decode(msgspec.json.encode({"type": "Reboot", **fields}), type=ScheduleEvents)


def test_events_are_the_platforms_and_planned_by_default() -> None:
    assert ask(vms=["web-0"]) == ScheduleEvents(
        type=EventType.REBOOT, vms=["web-0"], source=Source.PLATFORM, failure=False, description="", reason=""
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "Hibernate"},
        {"vms": [""]},
        {"vms": ["v"] * (VMS_PER_REQUEST + 1)},
        {"host": ""},
        {"scope": "s" * 129},
        {"update_domain": -1},
        {"notice": "soon"},
        {"not_before": "2030-01-01T00:00:00"},
        {"description": "x" * 513},
        {"source": "Nobody"},
        {"why": "x"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_request_out_of_its_limits_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        ask(**fields)


def test_largest_request_is_accepted() -> None:
    assert len(ask(vms=["v"] * VMS_PER_REQUEST).vms) == VMS_PER_REQUEST


def test_operation_is_on_one_vm() -> None:
    assert msgspec.json.decode(b'{"vm":"web/web-0"}', type=Operate) == Operate(vm="web/web-0", reason="")
    assert Evict(vm="v").notice is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"vms":["web-0"]}', type=Operate)


def test_hold_of_a_scope_and_of_the_fleet_are_found() -> None:
    fleet = Hold(scope=None, created_by="ann", created_at=datetime(2026, 3, 2, tzinfo=UTC), reason="storm")
    web = msgspec.structs.replace(fleet, scope="web")
    assert (Holds(holds=[fleet, web]).fleet, Holds(holds=[fleet, web]).of("web")) == (fleet, web)
    assert (Holds(holds=[web]).fleet, Holds(holds=[web]).of("db")) == (None, None)
