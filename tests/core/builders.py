"""Builders of scopes, VMs and schedule requests for tests of the rules, with defaults for all other fields."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

from forewarn.core import inventory
from forewarn.core.change import Change
from forewarn.core.event import EventType
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import Scope, ScopeKind
from forewarn.core.vm import Roster, Vm

NOW = datetime(2030, 1, 7, 10, tzinfo=UTC)


def guid(name: object) -> str:
    """Return a GUID derived from a name."""
    return str(uuid5(NAMESPACE_DNS, str(name))).upper()


def a_vm(name: str, **fields: Any) -> Vm:
    return Vm(name=name, vm_id=guid(name), **fields)


def a_scope(vms: Sequence[Vm] = (), **fields: Any) -> Scope:
    """Return a newly created scope."""
    values: dict[str, Any] = {"id": "web", "kind": ScopeKind.AVAILABILITY_SET, "epoch": "e1", "changed_at": NOW}
    return saved_scope(inventory.create_scope(Scope(**values | fields, roster=Roster(tuple(vms))), by="test", now=NOW))


def a_request(*vms: str, **fields: Any) -> ScheduleRequest:
    values: dict[str, Any] = {"id": guid("request"), "type": EventType.REBOOT, "vms": vms, "by": "test"}
    return ScheduleRequest(**values | fields)


def saved_scope(change: Change[Any]) -> Scope:
    """Return the new scope of a change; fail if the change removes it."""
    assert change.scope is not None
    return change.scope


def count_calls(work: Callable[[], object]) -> int:
    """Count the functions that are called: unlike time, the same on every machine."""
    counted = 0

    def count(_frame: object, what: str, _argument: object) -> None:
        nonlocal counted
        counted += what == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted
