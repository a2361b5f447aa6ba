"""Inventory requests as values of the core."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UnsetType

from forewarn.api import v1
from forewarn.api.fleet_export import write_fleet_json, write_fleet_toml
from forewarn.api.fleet_file import CreationContext, derived_id, read_fleet_file, read_fleet_json
from forewarn.core.errors import CoreError
from forewarn.core.event import EventType
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Priority, Roster, Traits, Vm
from forewarn.fleet.errors import FleetError
from forewarn.fleet.importer import Difference, compare_fleet, fill_fleet
from forewarn.fleet.service import Fleet
from forewarn.operator.inventory_requests import new_scope, new_vm, standalone_scope, traits_updater, vm_updater
from tests.fleet.fleets import run_fleet

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


SCOPES = st.sampled_from(["a", "A", "b", "c.d"])
VMS = st.sampled_from(["v0", "V0", "v1", "b"])
IDS = st.sampled_from([ID, ID.upper(), derived_id("vm", "a", "v0"), derived_id("vm", "b", "b").upper()])
ADDRESSES = st.lists(
    st.fixed_dictionaries(
        {"ip": st.sampled_from(["10.0.0.1", "10.0.0.2", "fe80::1", "fe80::1%eth0", "fe80::1%1"])},
        optional={
            "network": st.sampled_from(["n", "N", "default"]),
            "mac": st.just("00:0d:3a:12:34:56"),
            "prefix": st.sampled_from([1, 24, 32, 64, 128]),
        },
    ),
    max_size=3,
)
TEXT = st.text(max_size=5)
TRAITS: dict[str, Any] = {
    "location": TEXT,
    "zone": TEXT,
    "resource_group": TEXT,
    "subscription": TEXT,
    "os": st.sampled_from(["linux", "windows"]),
    "tags": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    "terminate_notice": st.sampled_from(["5m", "7m30s"]),
    "priority": st.sampled_from(["low", "regular"]),
    "instance": st.dictionaries(
        st.sampled_from(["vmSize", "vmsize", "osProfile.adminUsername", "publicKeys.0.keyData", "publicKeys.3.path"]),
        TEXT,
        max_size=3,
    ),
}
NULLABLE = {name: st.none() | values for name, values in TRAITS.items()}
RULES: dict[str, Any] = {
    "approval": st.sampled_from(["any", "all"]),
    "auto_approve": st.lists(st.sampled_from(["Reboot", "Redeploy", "Freeze"]), max_size=2),
}
VM_FIELDS: dict[str, Any] = {
    "host": st.sampled_from(["hv-0", "hv-1"]),
    "update_domain": st.integers(0, 1000),
    "fault_domain": st.integers(0, 30),
    "addresses": ADDRESSES,
}
ADD_SCOPE = st.fixed_dictionaries(
    {"id": SCOPES, "kind": st.sampled_from(list(ScopeKind)).map(str)},
    optional=TRAITS | RULES | {"scale_set": st.just("set"), "placement_group": st.just(ID)},
)
ADD_VM = st.fixed_dictionaries(
    {"name": VMS},
    optional=TRAITS | VM_FIELDS | {"scope": SCOPES, "vm_id": IDS, "role_instance": st.booleans()},
)
CHANGE_VM = st.tuples(SCOPES, VMS, st.fixed_dictionaries({}, optional=NULLABLE | VM_FIELDS))
CHANGE_SCOPE = st.tuples(SCOPES, st.fixed_dictionaries({}, optional=NULLABLE | RULES))


async def send(fleet: Fleet, body: Any) -> None:
    """Do what the routes do with a request; a refusal changes nothing."""
    try:
        match body:
            case {"kind": _}:
                request = msgspec.convert(body, v1.AddScope)
                fleet.inventory.check_new(request.id)
                await fleet.inventory.add_scope(new_scope(request, epoch="e1", now=TEN), by="ann")
            case {"name": _}:
                add = msgspec.convert(body, v1.AddVm)
                if add.scope is None:
                    fleet.inventory.check_new(add.name)
                    await fleet.inventory.add_scope(standalone_scope(new_vm(add), epoch="e1", now=TEN), by="ann")
                else:
                    await fleet.inventory.add_vm(add.scope, new_vm(add), by="ann")
            case (scope, vm, changes):
                await fleet.inventory.change_vm(scope, vm, vm_updater(msgspec.convert(changes, v1.ChangeVm)), by="ann")
            case _:
                scope, changes = body
                change = msgspec.convert(changes, v1.ChangeScope)
                await fleet.inventory.change_scope(
                    scope,
                    traits=traits_updater(change),
                    approval=None if isinstance(change.approval, UnsetType) else change.approval,
                    auto_approve=None if isinstance(change.auto_approve, UnsetType) else tuple(change.auto_approve),
                    by="ann",
                )
    except (CoreError, FleetError, msgspec.ValidationError):
        pass


def scopes_of(fleet: Fleet) -> tuple[Scope, ...]:
    return tuple(view.scope for view in fleet.replica.views() if view.scope is not None)


def inventory_of(scopes: tuple[Scope, ...]) -> list[Any]:
    """Return what a fleet file has of scopes."""
    return [
        (one.id, one.kind, one.roster, one.traits, one.scale_set, one.placement_group, one.approval, one.auto_approve)
        for one in scopes
    ]


async def check_round_trip(bodies: list[Any]) -> None:
    found: list[Difference] = []
    async with run_fleet() as fleet, run_fleet() as other:
        for body in bodies:
            await send(fleet, body)
        scopes = scopes_of(fleet)
        context = CreationContext(TEN, lambda: "e1")
        wanted = read_fleet_file("".join(write_fleet_toml(scopes)), file="export", context=context)
        assert inventory_of(wanted) == inventory_of(scopes)
        assert read_fleet_json("".join(write_fleet_json(scopes)), file="export", context=context) == wanted
        comparison = await compare_fleet(fleet.replica, wanted, prune=True, report=found.extend)
        assert (found, comparison.wanted, comparison.unwanted) == ([], (), ())
        await fill_fleet(other, wanted, by="ann", on_saved=lambda _: None)
        assert inventory_of(scopes_of(other)) == inventory_of(scopes)


TWICE = [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]


def test_requests_have_every_field_of_the_api() -> None:
    required = {"id", "kind", "name"}
    for type_, fields in (
        (v1.AddScope, TRAITS.keys() | RULES.keys() | {"scale_set", "placement_group"}),
        (v1.ChangeScope, NULLABLE.keys() | RULES.keys()),
        (v1.AddVm, TRAITS.keys() | VM_FIELDS.keys() | {"scope", "vm_id", "role_instance"}),
        (v1.ChangeVm, NULLABLE.keys() | VM_FIELDS.keys()),
    ):
        assert set(type_.__struct_fields__) - required == fields, type_


@given(st.lists(ADD_SCOPE | ADD_VM | CHANGE_VM | CHANGE_SCOPE, max_size=12))
@example([{"name": "v0", "vm_id": ID}, {"name": "v1", "vm_id": ID.upper()}])
@example([{"name": "v0"}, {"name": "v1", "vm_id": derived_id("vm", "v0", "v0")}])
@example([{"name": "v0", "addresses": TWICE}])
@example([{"name": "v0"}, ("v0", "v0", {"addresses": TWICE})])
@example([{"name": "v0", "addresses": [{"ip": "fe80::1%eth0"}]}])
@example([{"name": "v0", "addresses": [{"ip": "10.0.0.1", "network": "n"}, {"ip": "10.0.0.1", "network": "N"}]}])
@example([{"id": "a", "kind": "cloud-service"}, {"id": "A", "kind": "cloud-service"}])
def test_whatever_was_accepted_exports_to_a_file_that_imports_unchanged(bodies: list[Any]) -> None:
    asyncio.run(check_round_trip(bodies))
