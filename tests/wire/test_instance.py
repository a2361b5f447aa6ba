"""The instance document: what a VM can read about itself, whole, in parts and as text."""

import json
import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from forewarn.core.instance import COMPUTED_KEYS, SETTABLE_KEYS
from forewarn.core.scope import ScopeKind
from forewarn.core.vm import Address, Os, Priority, Roster, Traits
from forewarn.wire.error_responses import INSTANCE_PATH_NOT_FOUND, JSON, TEXT
from forewarn.wire.instance import encode_instance
from forewarn.wire.request import Format, InstanceRequest
from tests.wire.samples import VM_ID, scope, vm

ME = vm(
    "batch_3",
    update_domain=3,
    fault_domain=1,
    addresses=(
        Address(ip="10.0.0.7", mac="00:0d:3a:f8:06:ec"),
        Address(ip="fd00::7", mac="00:0d:3a:f8:06:ec"),
        Address(ip="10.9.0.7", network="storage", mac="00:0d:3a:f8:06:ed"),
    ),
    traits=Traits(priority=Priority.LOW, zone="2", tags={"team": "render", "env": "prod", "app": "blur"}),
)
SCOPE = scope(
    id="batch",
    kind=ScopeKind.PLACEMENT_GROUP,
    scale_set="batch",
    placement_group="F67C14AB-E92C-408C-AE2D-DA15866EC79A",
    roster=Roster((ME,)),
    traits=Traits(
        location="westeurope", zone="1", resource_group="lab", subscription="s-1", os=Os.LINUX, tags={"env": "test"}
    ),
)


def ask(path: str, format_: Format = "json") -> object:
    return encode_instance(SCOPE, ME, InstanceRequest("2021-02-01", tuple(path.split("/")) if path else (), format_))


def body_of(path: str, format_: Format = "json") -> bytes:
    answer = ask(path, format_)
    assert isinstance(answer, tuple)
    body, content_type = answer
    assert content_type == {"json": JSON, "text": TEXT}[format_]
    assert isinstance(body, bytes)
    return body


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "batch_3"),
        ("vmId", VM_ID),
        ("vmScaleSetName", "batch"),
        ("placementGroupId", "F67C14AB-E92C-408C-AE2D-DA15866EC79A"),
        ("platformUpdateDomain", "3"),
        ("platformFaultDomain", "1"),
        ("priority", "Spot"),
        ("location", "westeurope"),
        ("zone", "2"),
        ("resourceGroupName", "lab"),
        ("subscriptionId", "s-1"),
        ("osType", "Linux"),
        ("tags", "app:blur;env:prod;team:render"),
    ],
)
def test_compute_field(field: str, value: str) -> None:
    assert json.loads(body_of("compute"))[field] == value
    assert body_of(f"compute/{field}", "text") == value.encode()
    assert json.loads(body_of(f"compute/{field}")) == value


def test_tags_list_has_the_tags_one_by_one_in_order_of_their_names() -> None:
    assert json.loads(body_of("compute/tagsList")) == [
        {"name": "app", "value": "blur"},
        {"name": "env", "value": "prod"},
        {"name": "team", "value": "render"},
    ]


def test_interfaces_have_their_addresses_and_subnets() -> None:
    assert json.loads(body_of("network")) == {
        "interface": [
            {
                "ipv4": {
                    "ipAddress": [{"privateIpAddress": "10.0.0.7", "publicIpAddress": ""}],
                    "subnet": [{"address": "10.0.0.0", "prefix": "24"}],
                },
                "ipv6": {
                    "ipAddress": [{"privateIpAddress": "fd00::7"}],
                    "subnet": [{"address": "fd00::", "prefix": "64"}],
                },
                "macAddress": "000D3AF806EC",
            },
            {
                "ipv4": {
                    "ipAddress": [{"privateIpAddress": "10.9.0.7", "publicIpAddress": ""}],
                    "subnet": [{"address": "10.9.0.0", "prefix": "24"}],
                },
                "ipv6": {"ipAddress": []},
                "macAddress": "000D3AF806ED",
            },
        ]
    }


def document(version: str = "2025-04-07", **fields: Any) -> Any:
    """Return the document of a VM with these fields, in a scope without traits."""
    me = vm(**fields)
    answer = encode_instance(scope(roster=Roster((me,))), me, InstanceRequest(version))
    assert isinstance(answer, tuple)
    return json.loads(answer[0])


def test_subnet_has_the_prefix_of_the_address() -> None:
    interface = document(addresses=(Address(ip="10.0.200.7", prefix=17),))["network"]["interface"][0]
    assert interface["ipv4"]["subnet"] == [{"address": "10.0.128.0", "prefix": "17"}]


@pytest.mark.parametrize("addresses", [(), (Address(ip="fd00::7"),)], ids=["no address", "only IPv6"])
def test_vm_without_an_ipv4_address_has_a_stable_one_made_from_its_id(addresses: tuple[Address, ...]) -> None:
    (interface,) = document(addresses=addresses)["network"]["interface"]
    (address,) = interface["ipv4"]["ipAddress"]
    private = ip_address(address["privateIpAddress"])
    assert private in ip_network("10.0.0.0/8")
    (subnet,) = interface["ipv4"]["subnet"]
    assert private in ip_network(f"{subnet['address']}/{subnet['prefix']}")
    assert document(name="other")["network"]["interface"][0]["ipv4"] == interface["ipv4"]


def test_second_interface_without_an_ipv4_address_has_empty_entries() -> None:
    addresses = (Address(ip="10.0.0.7"), Address(ip="fd00::7", network="storage"))
    _, interface = document(addresses=addresses)["network"]["interface"]
    assert interface["ipv4"] == {
        "ipAddress": [{"privateIpAddress": "", "publicIpAddress": ""}],
        "subnet": [{"address": "", "prefix": ""}],
    }


def mac_of(**fields: Any) -> str:
    mac = document(**fields)["network"]["interface"][0]["macAddress"]
    assert isinstance(mac, str)
    return mac


def test_mac_of_a_vm_without_one_follows_from_its_id_alone() -> None:
    mac = mac_of(addresses=(Address(ip="10.0.0.7"),))
    assert re.fullmatch("[0-9A-F]{12}", mac)
    assert int(mac[:2], 16) & 0b11 == 0b10, "locally administered, and of one card"
    assert mac_of(name="other", addresses=(Address(ip="10.0.0.8"),)) == mac == mac_of(vm_id=VM_ID.lower())
    assert mac_of(vm_id="02AAB8A4-74EF-476E-8182-F6D2BA4166A7") != mac
    two = document(addresses=(Address(ip="10.0.0.7"), Address(ip="10.1.0.7", network="storage")))
    assert len({card["macAddress"] for card in two["network"]["interface"]}) == 2


def leaves(tree: Any, path: str = "") -> set[str]:
    match tree:
        case dict():
            return {leaf for name, below in tree.items() for leaf in leaves(below, f"{path}.{name}")}
        case list():
            return {leaf for below in tree for leaf in leaves(below, f"{path}.*")} or {path}
        case _:
            return {path}


@pytest.mark.parametrize(
    "version", ["2017-04-02", "2018-02-01", "2019-06-01", "2020-12-01", "2021-12-13", "2025-04-07"]
)
def test_document_has_exactly_the_keys_of_its_version(version: str) -> None:
    instance = {"publicKeys.0.path": "/home/a/.ssh/authorized_keys", "storageProfile.dataDisks.0.lun": "0"}
    found = leaves(document(version, traits=Traits(tags={"a": "b"}, instance=instance))["compute"])
    expected = {key for key, since in {**COMPUTED_KEYS, **SETTABLE_KEYS}.items() if since <= version}
    lists = {"tagsList.*.name", "tagsList.*.value"} if version >= "2019-06-04" else set()
    assert {leaf.removeprefix(".") for leaf in found} == (expected - {"tagsList"}) | lists


@pytest.mark.parametrize("key", sorted(SETTABLE_KEYS))
def test_every_settable_key_is_shown_where_azure_has_it(key: str) -> None:
    tree: Any = document(traits=Traits(instance={key.replace("*", "0"): "as set"}))["compute"]
    for name in key.split("."):
        tree = tree[0] if name == "*" else tree[name]
    assert tree == "as set"


def test_lists_are_empty_and_all_other_unknown_values_are_empty_texts() -> None:
    compute = document()["compute"]
    assert (compute["publicKeys"], compute["storageProfile"]["dataDisks"], compute["tagsList"]) == ([], [], [])
    assert [compute[key] for key in ("vmSize", "sku", "publisher", "offer", "version", "resourceId")] == [""] * 6


def test_values_that_follow_from_the_vm() -> None:
    compute = document(name="web-7", traits=Traits(subscription="s", resource_group="g"))["compute"]
    assert (
        compute["resourceId"] == "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/web-7"
    )
    assert compute["osProfile"]["computerName"] == "web-7"
    assert (compute["azEnvironment"], compute["provider"]) == ("AzurePublicCloud", "Microsoft.Compute")
    assert json.loads(body_of("compute/resourceId")).endswith("/virtualMachineScaleSets/batch/virtualMachines/3")


def test_image_reference_has_the_image_of_the_vm() -> None:
    image = {"publisher": "Canonical", "offer": "ubuntu", "sku": "server", "version": "1.2.3"}
    own = {"storageProfile.imageReference.version": "latest"}
    reference = document(traits=Traits(instance=image | own))["compute"]["storageProfile"]["imageReference"]
    assert {key: reference[key] for key in image} == image | {"version": "latest"}


def test_instance_values_of_the_vm_override_those_of_its_scope() -> None:
    me = vm(traits=Traits(instance={"vmSize": "large"}))
    shared = scope(roster=Roster((me,)), traits=Traits(instance={"vmSize": "small", "sku": "s"}))
    answers = [
        encode_instance(shared, me, InstanceRequest("2021-02-01", ("compute", key))) for key in ("vmSize", "sku")
    ]
    assert answers == [(b'"large"', JSON), (b'"s"', JSON)]


@pytest.mark.parametrize(("priority", "shown"), [(None, ("", "")), (Priority.LOW, ("Spot", "Delete"))])
def test_priority_and_eviction_policy(priority: Priority | None, shown: tuple[str, str]) -> None:
    compute = document(traits=Traits(priority=priority))["compute"]
    assert (compute["priority"], compute["evictionPolicy"]) == shown


def test_whole_document_is_compute_and_network() -> None:
    assert json.loads(body_of("")) == {
        "compute": json.loads(body_of("compute")),
        "network": json.loads(body_of("network")),
    }


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("", "compute/\nnetwork/", id="root"),
        pytest.param("network", "interface/", id="object"),
        pytest.param("network/interface", "0/\n1/", id="list"),
        pytest.param("network/interface/0", "ipv4/\nipv6/\nmacAddress", id="object with a leaf"),
        pytest.param("network/interface/1/ipv6/ipAddress", "", id="empty list"),
        pytest.param("network/interface/0/ipv4/ipAddress/0/privateIpAddress", "10.0.0.7", id="leaf"),
        pytest.param("network/interface/0/ipv4/ipAddress/0/publicIpAddress", "", id="empty leaf"),
        pytest.param("compute/tagsList/2/value", "render", id="leaf in a list"),
    ],
)
def test_text_is_the_leaf_or_the_names_below(path: str, text: str) -> None:
    assert body_of(path, "text") == text.encode()


@pytest.mark.parametrize("path", ["COMPUTE/NAME", "Compute/name"])
def test_path_matches_in_any_case(path: str) -> None:
    assert body_of(path, "text") == b"batch_3"


@pytest.mark.parametrize(
    "path",
    [
        "colour",
        "compute/colour",
        "compute/name/x",
        "compute//name",
        "network/interface/2",
        "network/interface/-1",
        "network/interface/00",
        "network/interface/٠",
        "network/interface/x",
        "network/interface/0/ipv4/ipAddress/9" + "9" * 5000,
    ],
)
@pytest.mark.parametrize("format_", ["json", "text"])
def test_unknown_path_is_404(path: str, format_: Format) -> None:
    assert ask(path, format_) == INSTANCE_PATH_NOT_FOUND
