"""Encode the instance metadata of a VM: the whole document, a subtree or a leaf.

It has what Forewarn knows, in Azure's structure: every leaf is a string, and an unknown value is the empty string.
"""

from typing import TypeAlias

import msgspec

from forewarn.core.scope import Scope
from forewarn.core.vm import Address, Os, Priority, Vm
from forewarn.wire.error_responses import INSTANCE_PATH_NOT_FOUND, JSON, TEXT, ErrorResponse
from forewarn.wire.protocol import VERSIONS
from forewarn.wire.request import InstanceRequest

Tree: TypeAlias = str | list["Tree"] | dict[str, "Tree"]

PRIORITIES = {Priority.REGULAR: "Regular", Priority.LOW: "Spot"}
"""Azure's current name for VMs that can be evicted is Spot, and handlers look for it."""

OPERATING_SYSTEMS = {Os.LINUX: "Linux", Os.WINDOWS: "Windows"}


def encode_instance(scope: Scope, vm: Vm, request: InstanceRequest) -> tuple[bytes, str] | ErrorResponse:
    """Return the part of the VM's document at the path, with its content type."""
    found = _lookup(_instance_tree(scope, vm), request.path)
    if found is None:
        return INSTANCE_PATH_NOT_FOUND
    if request.format == "json":
        return msgspec.json.encode(found), JSON
    return _text(found).encode(), TEXT


def encode_versions() -> bytes:
    """Return the body of `/metadata/versions`."""
    return msgspec.json.encode({"apiVersions": VERSIONS})


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


def _instance_tree(scope: Scope, vm: Vm) -> Tree:
    return {"compute": _compute(scope, vm), "network": {"interface": _interfaces(vm)}}


def _compute(scope: Scope, vm: Vm) -> Tree:
    traits = scope.traits_of(vm)
    tags = sorted((traits.tags or {}).items())
    return {
        "location": traits.location or "",
        "name": vm.name,
        "osType": OPERATING_SYSTEMS[traits.os or Os.LINUX],
        "placementGroupId": scope.placement_group or "",
        "platformFaultDomain": str(vm.fault_domain),
        "platformUpdateDomain": str(vm.update_domain),
        "priority": PRIORITIES[traits.priority or Priority.REGULAR],
        "resourceGroupName": traits.resource_group or "",
        "subscriptionId": traits.subscription or "",
        "tags": ";".join(f"{name}:{value}" for name, value in tags),
        "tagsList": [{"name": name, "value": value} for name, value in tags],
        "vmId": vm.vm_id,
        "vmScaleSetName": scope.scale_set or "",
        "zone": traits.zone or "",
    }


def _interfaces(vm: Vm) -> list[Tree]:
    """Return the network interfaces with their addresses. Addresses of one network without a MAC share an interface."""
    cards: dict[tuple[str, str], list[Address]] = {}
    for address in vm.addresses:
        cards.setdefault((address.network, _mac(address)), []).append(address)
    return [_interface(mac, addresses) for (_, mac), addresses in cards.items()]


def _interface(mac: str, addresses: list[Address]) -> Tree:
    v4 = [address.ip for address in addresses if ":" not in address.ip]
    v6 = [address.ip for address in addresses if ":" in address.ip]
    return {
        "ipv4": {"ipAddress": [{"privateIpAddress": ip, "publicIpAddress": ""} for ip in v4], "subnet": []},
        "ipv6": {"ipAddress": [{"privateIpAddress": ip} for ip in v6]},
        "macAddress": mac,
    }


def _mac(address: Address) -> str:
    return "".join(char for char in address.mac.upper() if char.isalnum())
