"""The instance document: what a VM can read about itself, whole, in parts and as text."""

import json

import pytest

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


def test_interfaces_have_their_addresses() -> None:
    assert json.loads(body_of("network")) == {
        "interface": [
            {
                "ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.7", "publicIpAddress": ""}], "subnet": []},
                "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::7"}]},
                "macAddress": "000D3AF806EC",
            },
            {
                "ipv4": {"ipAddress": [{"privateIpAddress": "10.9.0.7", "publicIpAddress": ""}], "subnet": []},
                "ipv6": {"ipAddress": []},
                "macAddress": "000D3AF806ED",
            },
        ]
    }


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


def test_regular_priority_is_the_default() -> None:
    answer = encode_instance(scope(), vm(), InstanceRequest("2021-02-01", ("compute", "priority"), "text"))
    assert answer == (b"Regular", TEXT)
