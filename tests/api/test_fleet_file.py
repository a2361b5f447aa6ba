"""The fleet file: parsing and errors."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from forewarn.api.fleet_export import write_fleet_toml
from forewarn.api.fleet_file import CreationContext, demonstration_fleet, read_fleet_file
from forewarn.core.event import EventType
from forewarn.core.event_type import USER_TYPES, AutoApproved
from forewarn.core.schedule import group_vms
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Os, Priority, Roster, Traits, Vm
from forewarn.settings.file_reader import FileError

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
BIRTH = CreationContext(TEN, lambda: "e1")
GUID = "0a1b2c3d-0000-4000-8000-000000000001"


def read(text: str) -> tuple[Scope, ...]:
    return read_fleet_file(text, file="fleet.toml", context=BIRTH)


def complaint(text: str) -> str:
    with pytest.raises(FileError) as refused:
        read(text)
    return str(refused.value)


def tags(letter: str, count: int) -> str:
    return "tags = { " + ", ".join(f'{letter}{n} = "{n}"' for n in range(count)) + " }"


WEB = '[[scopes]]\nname = "web"\nkind = "availability-set"\n'
TOO_MANY_TOGETHER = {
    "fleet and scope": (
        f"[defaults]\n{tags('a', 30)}\n{WEB}{tags('b', 30)}\nvms = []",
        "fleet.toml:6: scopes[0].tags: 60 tags: at most 50 are allowed",
    ),
    "scope and VM": (
        f"{WEB}{tags('a', 30)}\n[[scopes.vms]]\nname = 'x'\n[[scopes.vms]]\nname = 'y'\n{tags('b', 30)}",
        "fleet.toml:9: scopes[0].vms[1].tags: 60 tags: at most 50 are allowed",
    ),
    "fleet and VM": (
        f"[defaults]\n{tags('a', 30)}\n{WEB}[[scopes.vms]]\nname = 'x-{{n}}'\ncount = 2\n{tags('b', 30)}",
        "fleet.toml:9: scopes[0].vms[0].tags: 60 tags: at most 50 are allowed",
    ),
}


@pytest.mark.parametrize(("text", "expected"), TOO_MANY_TOGETHER.values(), ids=TOO_MANY_TOGETHER)
def test_too_many_inherited_tags_are_refused(text: str, expected: str) -> None:
    assert complaint(text) == expected


def test_too_large_scope_is_refused() -> None:
    text = f"{WEB}[[scopes.vms]]\nname = 'x-{{n}}'\ncount = 1000\n{tags('t' * 40, 50)}"
    assert re.match(r"fleet\.toml:1: scopes\[0\]: .*web.* \d+ KiB", complaint(text))


def test_every_key_is_parsed() -> None:
    (scope,) = read(f"""
        [[scopes]]
        name = "web"
        kind = "availability-set"
        approval = "all"
        auto_approve = ["Reboot", "Redeploy"]
        scale_set = "set"
        placement_group = "{GUID}"
        priority = "low"
        terminate_notice = "10m"
        location = "north"
        zone = "2"
        resource_group = "group"
        subscription = "subscription"
        os = "windows"
        tags = {{ a = "1" }}

        [[scopes.vms]]
        name = "web-0"
        vm_id = "{GUID}"
        role_instance = true
        update_domain = 3
        fault_domain = 2
        host = "hv-0"
        addresses = ["10.0.0.1", {{ ip = "fd00::1", network = "blue", mac = "00:0d:3a:00:00:01" }}]
        priority = "regular"
        terminate_notice = "15m"
        location = "south"
        zone = "3"
        resource_group = "other"
        subscription = "other"
        os = "linux"
        tags = {{ b = "2" }}
    """)
    assert scope == Scope(
        id="web",
        kind=ScopeKind.AVAILABILITY_SET,
        epoch="e1",
        changed_at=TEN,
        approval=ApprovalRule.ALL,
        auto_approve=(EventType.REBOOT, EventType.REDEPLOY),
        scale_set="set",
        placement_group=GUID,
        traits=Traits(
            priority=Priority.LOW,
            terminate_notice=timedelta(minutes=10),
            location="north",
            zone="2",
            resource_group="group",
            subscription="subscription",
            os=Os.WINDOWS,
            tags={"a": "1"},
        ),
        roster=Roster(
            (
                Vm(
                    name="web-0",
                    vm_id=GUID,
                    role_instance=True,
                    update_domain=3,
                    fault_domain=2,
                    host="hv-0",
                    addresses=(
                        Address(ip="10.0.0.1"),
                        Address(ip="fd00::1", network="blue", mac="00:0d:3a:00:00:01"),
                    ),
                    traits=Traits(
                        priority=Priority.REGULAR,
                        terminate_notice=timedelta(minutes=15),
                        location="south",
                        zone="3",
                        resource_group="other",
                        subscription="other",
                        os=Os.LINUX,
                        tags={"b": "2"},
                    ),
                ),
            )
        ),
    )


def test_instance_has_the_shape_of_the_document_or_keys_with_dots() -> None:
    (scope,) = read("""
        [[scopes]]
        name = "web"
        kind = "availability-set"
        instance.vmSize = "Standard_D2s_v5"
        instance.osProfile.adminUsername = "ops"
        instance.publicKeys = [{ keyData = "ssh-ed25519 A", path = "/a" }, { keyData = "ssh-ed25519 B" }]
        vms = [{ name = "web-{n}", count = 2, first_address = { ip = "10.0.0.4", prefix = 20 }, instance = { "osProfile.adminUsername" = "root" } }]
    """)  # noqa: E501 - an inline table has no line ends
    assert scope.traits.instance == {
        "vmSize": "Standard_D2s_v5",
        "osProfile.adminUsername": "ops",
        "publicKeys.0.keyData": "ssh-ed25519 A",
        "publicKeys.0.path": "/a",
        "publicKeys.1.keyData": "ssh-ed25519 B",
    }
    assert scope.vm("web-1").traits.instance == {"osProfile.adminUsername": "root"}
    assert scope.vm("web-1").addresses == (Address(ip="10.0.0.5", prefix=20),)
    assert read("".join(write_fleet_toml([scope]))) == (scope,)


def test_defaults_apply_to_every_scope() -> None:
    (scope,) = read("""
        defaults = { location = "north", zone = "1", tags = { a = "1", b = "1" } }
        [[scopes]]
        name = "web"
        kind = "availability-set"
        zone = "2"
        tags = { b = "2", c = "2" }
        vms = [{ name = "web-0", tags = { c = "3" } }]
    """)
    assert scope.traits == Traits(location="north", zone="2", tags={"a": "1", "b": "2", "c": "2"})
    assert scope.traits_of(scope.vm("web-0")).tags == {"a": "1", "b": "2", "c": "3"}


def test_standalone_scope_needs_only_a_name() -> None:
    (scope,) = read('scopes = [{ name = "db", kind = "standalone" }]')
    assert [vm.name for vm in scope.roster] == ["db"]


def test_count_defines_many_vms() -> None:
    (scope,) = read("""
        [[scopes]]
        name = "group-1"
        kind = "placement-group"
        scale_set = "batch"
        update_domains = 5
        fault_domains = 3
        hosts = ["hv-0", "hv-1"]
        vms = [{ count = 100, first_address = "10.0.0.250" }]
    """)
    places = [(vm.name, vm.update_domain, vm.fault_domain, vm.host, vm.addresses[0].ip) for vm in scope.roster]
    assert places[:3] == [
        ("batch_0", 0, 0, "hv-0", "10.0.0.250"),
        ("batch_1", 1, 1, "hv-1", "10.0.0.251"),
        ("batch_2", 2, 2, "hv-0", "10.0.0.252"),
    ]
    assert places[99] == ("batch_99", 4, 0, "hv-1", "10.0.1.93")
    assert scope.placement_group is not None


def test_vms_are_numbered_per_entry_and_distributed_per_scope() -> None:
    (scope,) = read("""
        [[scopes]]
        name = "shop"
        kind = "cloud-service"
        update_domains = 2
        vms = [
            { name = "Front_{n}", count = 3 },
            { name = "{scope}-back-{n}", count = 2 },
            { name = "one", update_domain = 7 },
        ]
    """)
    assert [(vm.name, vm.update_domain, vm.role_instance) for vm in scope.roster] == [
        ("Front_0", 0, True),
        ("Front_1", 1, True),
        ("Front_2", 0, True),
        ("shop-back-0", 1, True),
        ("shop-back-1", 0, True),
        ("one", 7, True),
    ]


def test_default_ids_are_derived_from_the_names() -> None:
    text = 'scopes = [{ name = "a", kind = "availability-set", vms = [{ name = "x" }, { name = "y" }] }]'
    first, again = read(text), read(text)
    ids = [vm.vm_id for vm in first[0].roster]
    assert ids == [vm.vm_id for vm in again[0].roster] == [str(UUID(id_)) for id_ in ids]
    assert len({*ids, *(vm.vm_id for vm in read(text.replace('"a"', '"b"'))[0].roster)}) == 4


CASE = re.compile(r"^== (?P<name>.+)\n(?P<text>(?:.*\n)*?)-> (?P<complaint>.+)$", re.MULTILINE)
WRONG = {
    case["name"]: (case["text"], case["complaint"])
    for case in CASE.finditer((Path(__file__).parent / "wrong_fleet_files.txt").read_text())
}


def test_sample_of_wrong_files_is_complete() -> None:
    assert len(WRONG) >= 45


@pytest.mark.parametrize("wrong", WRONG)
def test_error_names_file_key_and_allowed_values(wrong: str) -> None:
    text, expected = WRONG[wrong]
    said = complaint(text)
    ours, *_ = expected.split("***")
    assert (said if ours == expected else said[: len(ours)]) == ours


def test_same_address_in_two_networks_is_allowed() -> None:
    scopes = read("""
        [[scopes]]
        name = "a"
        kind = "standalone"
        vms = [{ addresses = [{ ip = "10.0.0.1", network = "blue" }] }]
        [[scopes]]
        name = "b"
        kind = "standalone"
        vms = [{ addresses = [{ ip = "10.0.0.1", network = "red" }] }]
    """)
    assert [scope.id for scope in scopes] == ["a", "b"]


def test_demonstration_fleet_has_a_scope_of_each_kind() -> None:
    scopes = {scope.id: scope for scope in demonstration_fleet(BIRTH)}
    assert {id_: (scope.kind, [vm.name for vm in scope.roster]) for id_, scope in scopes.items()} == {
        "db-0": (ScopeKind.STANDALONE, ["db-0"]),
        "web": (ScopeKind.AVAILABILITY_SET, ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"]),
        "batch": (ScopeKind.PLACEMENT_GROUP, ["batch_0", "batch_1", "batch_2", "batch_3"]),
        "shop": (ScopeKind.CLOUD_SERVICE, ["FrontEnd_IN_0", "FrontEnd_IN_1", "BackEnd_IN_0", "BackEnd_IN_1"]),
    }
    assert {vm.update_domain for vm in scopes["web"].roster} == {0, 1, 2}
    assert scopes["batch"].scale_set == "batch"
    assert all(scopes["batch"].is_low_priority(vm) for vm in scopes["batch"].roster)
    assert all(vm.role_instance for vm in scopes["shop"].roster)


def test_vms_of_the_demonstration_share_host_and_update_domain() -> None:
    scopes = {scope.id: scope for scope in demonstration_fleet(BIRTH)}
    shared = {id_: [[vm.name for vm in group] for group in group_vms(scope.roster)] for id_, scope in scopes.items()}
    assert shared["shop"] == [["FrontEnd_IN_0", "BackEnd_IN_0"], ["FrontEnd_IN_1", "BackEnd_IN_1"]]
    assert shared["web"] == [["web-0", "web-3"], ["web-1", "web-4"], ["web-2", "web-5"]]


def test_every_vm_of_the_demonstration_has_metadata() -> None:
    for scope in demonstration_fleet(BIRTH):
        for vm in scope.roster:
            traits = scope.traits_of(vm)
            assert all((vm.host, vm.addresses, traits.location, traits.subscription, traits.os, traits.tags)), vm.name


def test_reference_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/fleet-file.md").read_text()
    lists = (WRONG[case][1].partition("alid keys: ")[2] for case in WRONG if case.startswith("unknown key"))
    keys = {key for listed in lists for key in listed.split(", ")}
    assert len(keys) > 20
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_auto_approve_allows_the_operations_of_users() -> None:
    assert [choice.value for choice in AutoApproved] == [type_.value for type_ in USER_TYPES]
