"""Encode the instance metadata of a VM: the whole document, a subtree or a leaf.

It has the keys of Azure's document in that version. Every leaf is a string, and an unknown value is the empty string.
"""

from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_network
from typing import TypeAlias

import msgspec

from forewarn.core.instance import COMPUTED_KEYS, SETTABLE_KEYS, general_key, list_numbers
from forewarn.core.scope import Scope
from forewarn.core.vm import Address, Os, Priority, Traits, Vm
from forewarn.wire.error_responses import INSTANCE_PATH_NOT_FOUND, JSON, TEXT, ErrorResponse
from forewarn.wire.protocol import VERSIONS
from forewarn.wire.request import InstanceRequest

Tree: TypeAlias = str | list["Tree"] | dict[str, "Tree"]

SPOT = "Spot"
"""Azure's current name for VMs that can be evicted; handlers look for it. The priority of a regular VM is empty."""

OPERATING_SYSTEMS = {Os.LINUX: "Linux", Os.WINDOWS: "Windows"}
DEFAULT_PREFIXES = {4: 24, 6: 64}
FIRST_VERSION = min(COMPUTED_KEYS.values())
"""Earlier dates get the document of this version: the preview had no documented one."""

_KEYS = {**COMPUTED_KEYS, **SETTABLE_KEYS}
_FALSE_BY_DEFAULT = (
    "additionalCapabilities.hibernationEnabled",
    "isHostCompatibilityLayerVm",
    "securityProfile.encryptionAtHost",
    "securityProfile.secureBootEnabled",
    "securityProfile.virtualTpmEnabled",
    "storageProfile.osDisk.encryptionSettings.enabled",
    "storageProfile.osDisk.writeAcceleratorEnabled",
)


def encode_instance(scope: Scope, vm: Vm, request: InstanceRequest) -> tuple[bytes, str] | ErrorResponse:
    """Return the part of the VM's document at the path, with its content type."""
    found = _lookup(_instance_tree(scope, vm, request.version), request.path)
    if found is None:
        return INSTANCE_PATH_NOT_FOUND
    if request.format == "json":
        return msgspec.json.encode(found), JSON
    return _text(found).encode(), TEXT


def encode_versions(versions: tuple[str, ...] = VERSIONS) -> bytes:
    """Return the body of `/metadata/versions`."""
    return msgspec.json.encode({"apiVersions": versions})


def _lookup(tree: Tree, path: tuple[str, ...]) -> Tree | None:
    for segment in path:
        found = _children(tree).get(segment.lower())
        if found is None:
            return None
        tree = found[1]
    return tree


def _children(tree: Tree) -> dict[str, tuple[str, Tree]]:
    """Return the children of a node by lower-case name, each with its name. Items of a list are named by number."""
    if isinstance(tree, dict):
        return {name.lower(): (name, child) for name, child in tree.items()}
    if isinstance(tree, list):
        return {str(number): (str(number), child) for number, child in enumerate(tree)}
    return {}


def _text(tree: Tree) -> str:
    """Return a leaf as text; of any other node the names of its children, those with children with a slash."""
    if isinstance(tree, str):
        return tree
    return "\n".join(name if isinstance(child, str) else f"{name}/" for name, child in _children(tree).values())


def _instance_tree(scope: Scope, vm: Vm, version: str) -> Tree:
    return {
        "compute": _compute(scope, vm, max(version, FIRST_VERSION)),
        "network": {"interface": _interfaces(vm)},
    }


def _compute(scope: Scope, vm: Vm, version: str) -> Tree:
    traits = scope.traits_of(vm)
    own = traits.instance or {}
    values = dict.fromkeys((key for key in SETTABLE_KEYS if "*" not in key), "")
    values |= _computed_values(scope, vm, traits) | own
    for key in ("offer", "publisher", "sku", "version"):
        values[f"storageProfile.imageReference.{key}"] = own.get(f"storageProfile.imageReference.{key}", values[key])
    for name, numbers in list_numbers(own).items():
        items = (f"{name}.{number}" for number in numbers)
        empty = [key.removeprefix(f"{name}.*") for key in SETTABLE_KEYS if key.startswith(f"{name}.*.")]
        values = {f"{item}{key}": "" for item in items for key in empty} | values
    tree: dict[str, Tree] = {}
    for key in sorted(values):
        if _KEYS[general_key(key)] <= version:
            _insert(tree, key.split("."), values[key])
    if version >= SETTABLE_KEYS["publicKeys.*.path"]:
        tree["publicKeys"] = _as_list(tree.get("publicKeys", {}))
    if isinstance(storage := tree.get("storageProfile"), dict):
        tree["storageProfile"] = _in_order(storage | {"dataDisks": _as_list(storage.get("dataDisks", {}))})
    if version >= COMPUTED_KEYS["tagsList"]:
        tree["tagsList"] = [{"name": name, "value": value} for name, value in _sorted_tags(traits)]
    return _in_order(tree)


def _computed_values(scope: Scope, vm: Vm, traits: Traits) -> dict[str, str]:
    """Return the values that follow from the VM, and the defaults of others."""
    os = OPERATING_SYSTEMS[traits.os or Os.LINUX]
    is_low_priority = traits.priority is Priority.LOW
    return dict.fromkeys(_FALSE_BY_DEFAULT, "false") | {
        "azEnvironment": "AzurePublicCloud",
        "customData": "",
        # The event Preempt removes the VM, as the policy Delete does.
        "evictionPolicy": "Delete" if is_low_priority else "",
        "location": traits.location or "",
        "name": vm.name,
        "osProfile.computerName": vm.name,
        "osType": os,
        "placementGroupId": scope.placement_group or "",
        "platformFaultDomain": str(vm.fault_domain),
        "platformUpdateDomain": str(vm.update_domain),
        "priority": SPOT if is_low_priority else "",
        "provider": "Microsoft.Compute",
        "resourceGroupName": traits.resource_group or "",
        "resourceId": _resource_id(scope, vm, traits),
        "storageProfile.osDisk.osType": os,
        "storageProfile.resourceDisk.size": "0",
        "subscriptionId": traits.subscription or "",
        "tags": ";".join(f"{name}:{value}" for name, value in _sorted_tags(traits)),
        "vmId": vm.vm_id,
        "vmScaleSetName": scope.scale_set or "",
        "zone": traits.zone or "",
    }


def _resource_id(scope: Scope, vm: Vm, traits: Traits) -> str:
    """Return the id of the VM in Azure's form; empty if subscription or resource group are not known."""
    if not (traits.subscription and traits.resource_group):
        return ""
    provider = (
        f"/subscriptions/{traits.subscription}/resourceGroups/{traits.resource_group}/providers/Microsoft.Compute"
    )
    number = vm.name.removeprefix(f"{scope.scale_set}_")
    if scope.scale_set is not None and number != vm.name:
        return f"{provider}/virtualMachineScaleSets/{scope.scale_set}/virtualMachines/{number}"
    return f"{provider}/virtualMachines/{vm.name}"


def _sorted_tags(traits: Traits) -> list[tuple[str, str]]:
    return sorted((traits.tags or {}).items())


def _insert(tree: dict[str, Tree], path: list[str], value: str) -> None:
    *parents, leaf = path
    for name in parents:
        below = tree.setdefault(name, {})
        assert isinstance(below, dict)  # noqa: S101 - no key is the beginning of another one
        tree = below
    tree[leaf] = value


def _as_list(items: Tree) -> Tree:
    """Return the items of a list, which are inserted by number."""
    return [items[number] for number in sorted(items, key=int)] if isinstance(items, dict) else items


def _in_order(tree: Mapping[str, Tree]) -> dict[str, Tree]:
    return {name: tree[name] for name in sorted(tree)}


def _interfaces(vm: Vm) -> list[Tree]:
    """Return the network interfaces with their addresses. Addresses of one network without a MAC share an interface."""
    cards: dict[tuple[str, str], list[Address]] = {}
    for address in vm.addresses:
        mac = "".join(char for char in address.mac.upper() if char.isalnum())
        cards.setdefault((address.network, mac), []).append(address)
    if all(":" in address.ip for address in vm.addresses):
        # Clients look at the first card, and take a VM without an IPv4 address for broken.
        cards.setdefault(next(iter(cards), ("default", "")), []).append(_derived_address(vm))
    return [_interface(mac or _derived_mac(vm, network), addresses) for (network, mac), addresses in cards.items()]


def _derived_mac(vm: Vm, network: str) -> str:
    """Return a stable MAC for a VM without one: locally administered, so no real network card has it."""
    digest = _digest(vm, network)
    return bytes((digest[0] & 0xFC | 0x02, *digest[1:6])).hex().upper()


def _derived_address(vm: Vm) -> Address:
    """Return a stable private address for a VM without an IPv4 address. No caller is identified by it."""
    second, third, fourth, *_ = _digest(vm, "ip")
    return Address(ip=f"10.{second}.{third}.{4 + fourth % 250}")


def _digest(vm: Vm, purpose: str) -> bytes:
    return sha256(f"{vm.vm_id.lower()}/{purpose}".encode()).digest()


def _interface(mac: str, addresses: list[Address]) -> Tree:
    v4 = [address for address in addresses if ":" not in address.ip]
    v6 = [address for address in addresses if ":" in address.ip]
    ipv6: dict[str, Tree] = {"ipAddress": [{"privateIpAddress": address.ip} for address in v6]}
    if v6:
        ipv6["subnet"] = [_subnet(v6[0], 6)]
    # Clients read the first address and subnet without looking whether there are any.
    return {
        "ipv4": {
            "ipAddress": [{"privateIpAddress": address.ip, "publicIpAddress": ""} for address in v4]
            or [{"privateIpAddress": "", "publicIpAddress": ""}],
            "subnet": [_subnet(v4[0], 4) if v4 else {"address": "", "prefix": ""}],
        },
        "ipv6": ipv6,
        "macAddress": mac,
    }


def _subnet(address: Address, family: int) -> Tree:
    prefix = address.prefix or DEFAULT_PREFIXES[family]
    return {"address": str(ip_network((address.ip, prefix), strict=False).network_address), "prefix": str(prefix)}
