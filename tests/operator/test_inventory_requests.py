"""Inventory requests as values of the core."""

from datetime import UTC, datetime, timedelta

import msgspec

from forewarn.api import v1
from forewarn.api.fleet_file import derived_id
from forewarn.core.event import EventType
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Priority, Roster, Traits, Vm
from forewarn.operator.inventory_requests import new_scope, new_vm, standalone_scope, traits_updater, vm_updater

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)
ID = "0a1b2c3d-0000-4000-8000-000000000001"


def test_new_vm_has_all_that_was_asked_for() -> None:
    body = {
        "name": "web-0",
        "scope": "web",
        "vm_id": ID,
        "update_domain": 2,
        "host": "hv-0",
        "addresses": [{"ip": "10.0.0.4", "network": "blue"}],
        "priority": "low",
        "terminate_notice": "7m30s",
        "tags": {"a": "1"},
    }
    assert new_vm(msgspec.convert(body, v1.AddVm)) == Vm(
        name="web-0",
        vm_id=ID,
        update_domain=2,
        host="hv-0",
        addresses=(Address(ip="10.0.0.4", network="blue"),),
        traits=Traits(priority=Priority.LOW, terminate_notice=timedelta(minutes=7, seconds=30), tags={"a": "1"}),
    )


def test_id_of_a_vm_follows_from_its_names() -> None:
    assert new_vm(v1.AddVm(name="web-0", scope="web")).vm_id == derived_id("vm", "web", "web-0")
    assert new_vm(v1.AddVm(name="db-0")).vm_id == derived_id("vm", "db-0", "db-0")


def test_new_scope_has_no_vms() -> None:
    request = v1.AddScope(
        id="web",
        kind=ScopeKind.AVAILABILITY_SET,
        approval=ApprovalRule.ALL,
        auto_approve=[EventType.REBOOT],
        zone="1",
    )
    assert new_scope(request, epoch="e1", now=TEN) == Scope(
        id="web",
        kind=ScopeKind.AVAILABILITY_SET,
        epoch="e1",
        changed_at=TEN,
        traits=Traits(zone="1"),
        approval=ApprovalRule.ALL,
        auto_approve=(EventType.REBOOT,),
    )


def test_placement_group_has_an_id_that_follows_from_the_scope() -> None:
    group = new_scope(v1.AddScope(id="g", kind=ScopeKind.PLACEMENT_GROUP), epoch="e1", now=TEN)
    assert group.placement_group == derived_id("placement-group", "g")


def test_standalone_scope_bears_the_name_of_its_vm() -> None:
    vm = Vm(name="db-0", vm_id=ID)
    scope = standalone_scope(vm, epoch="e1", now=TEN)
    assert (scope.id, scope.kind, scope.roster) == ("db-0", ScopeKind.STANDALONE, Roster((vm,)))


def test_change_leaves_what_is_not_named_and_clears_what_is_null() -> None:
    vm = Vm(name="web-0", vm_id=ID, host="hv-0", fault_domain=1, traits=Traits(zone="1", location="x"))
    request = msgspec.convert({"host": None, "update_domain": 3, "zone": None, "tags": {"a": "1"}}, v1.ChangeVm)
    assert vm_updater(request)(vm) == Vm(
        name="web-0", vm_id=ID, update_domain=3, fault_domain=1, traits=Traits(location="x", tags={"a": "1"})
    )
    assert vm_updater(v1.ChangeVm())(vm) == vm
    assert traits_updater(v1.ChangeVm())(vm.traits) == vm.traits
