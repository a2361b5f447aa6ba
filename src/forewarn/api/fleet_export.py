"""Export a fleet as a fleet file, in TOML or JSON; importing it gives the same scopes.

The text is generated in small chunks, so the event loop is not blocked."""

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from forewarn.api.fleet_file import default_placement_group, default_vm_id, is_role_instance
from forewarn.api.table_writer import Value, toml_value, write_struct, write_value
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.vm import Address, Traits, Vm

VMS_PER_CHUNK = 50
"""How many VMs a chunk has at most."""

HEADING = "# A fleet of Forewarn. `forewarn fleet import` takes it; docs/reference/fleet-file.md describes every key.\n"

Content = dict[str, Value]


def write_fleet_toml(scopes: Iterable[Scope]) -> Iterator[str]:
    """Yield scopes as TOML, in chunks."""
    yield HEADING
    is_empty = True
    for scope in scopes:
        is_empty = False
        yield "\n[[scopes]]\n" + "".join(f"{key} = {toml_value(value)}\n" for key, value in _scope(scope).items())
        yield "vms = [\n"
        for vms in _vm_chunks(scope):
            yield "".join(f"    {toml_value(vm)},\n" for vm in vms)
        yield "]\n"
    if is_empty:
        yield "scopes = []\n"


def write_fleet_json(scopes: Iterable[Scope]) -> Iterator[str]:
    """Yield scopes as JSON of the same structure, in chunks."""
    yield '{"scopes":['
    before = ""
    for scope in scopes:
        yield f'{before}{_json(_scope(scope))[:-1]},"vms":['
        between = ""
        for vms in _vm_chunks(scope):
            yield between + ",".join(_json(vm) for vm in vms)
            between = ","
        yield "]}"
        before = ","
    yield "]}\n"


def _vm_chunks(scope: Scope) -> Iterator[list[Content]]:
    vms = (_vm(vm, scope) for vm in scope.roster)
    while chunk := list(islice(vms, VMS_PER_CHUNK)):
        yield chunk


def _scope(scope: Scope) -> Content:
    content: Content = {"name": scope.id, "kind": scope.kind.value}
    if scope.scale_set is not None:
        content["scale_set"] = scope.scale_set
    if scope.placement_group != default_placement_group(scope.kind, scope.id):
        content["placement_group"] = scope.placement_group or ""
    if scope.approval is not ApprovalRule.ANY:
        content["approval"] = scope.approval.value
    if scope.auto_approve:
        content["auto_approve"] = [type_.value for type_ in scope.auto_approve]
    return content | _traits(scope.traits)


def _vm(vm: Vm, scope: Scope) -> Content:
    content: Content = {"name": vm.name}
    if vm.vm_id != default_vm_id(scope.id, vm.name):
        content["vm_id"] = vm.vm_id
    if vm.role_instance is not is_role_instance(scope.kind):
        content["role_instance"] = vm.role_instance
    if vm.update_domain:
        content["update_domain"] = vm.update_domain
    if vm.fault_domain:
        content["fault_domain"] = vm.fault_domain
    if vm.host is not None:
        content["host"] = vm.host
    if vm.addresses:
        content["addresses"] = [_address(address) for address in vm.addresses]
    return content | _traits(vm.traits)


def _address(address: Address) -> Value:
    content = write_struct(address)
    return content if len(content) > 1 else address.ip


def _traits(traits: Traits) -> Content:
    values = ((name, getattr(traits, name)) for name in Traits.__struct_fields__)
    return {name: write_value(value) for name, value in values if value is not None}


def _json(content: Content) -> str:
    return msgspec.json.encode(content).decode()
