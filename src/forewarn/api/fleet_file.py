"""The fleet file: parse and validate a fleet in TOML or JSON.

docs/reference/fleet-file.md describes every key. `parse_fleet` runs in a worker process, because a hundred thousand VMs
take many seconds; its results and errors can be pickled.
"""

import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from forewarn.api.table_reader import field_type, read_value, struct_fields
from forewarn.core.event import EventType
from forewarn.core.event_type import AutoApproved
from forewarn.core.inventory import create_scope
from forewarn.core.limits import MAX_VMS_PER_SCOPE
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.text import check_name, is_guid
from forewarn.core.vm import (
    VM_ID,
    Address,
    Roster,
    Traits,
    UniqueKey,
    Vm,
    check_addresses,
    describe_key,
    unique_keys,
)
from forewarn.settings.file_reader import MAX_DEPTH, FileError, FileTable, FileValue, read_json, read_toml

DEMONSTRATION = "the demonstration fleet"
DOMAINS = 20
ADDRESSES = 16

IDS = UUID("5b1f3c0e-6a52-4c07-9f0b-0d1e9f5a2c44")
"""The UUID namespace of derived ids: the same names always give the same ids."""


MAX_FLEET_VMS = 200_000
"""The most VMs that a fleet file can define, unless the settings say otherwise."""


class CreationContext(NamedTuple):
    """What a new scope needs besides the file: the time, a source of random epochs, and how many VMs are allowed."""

    at: datetime
    new_epoch: Callable[[], str]
    max_vms: int = MAX_FLEET_VMS


class NameClaims:
    """Names, ids and addresses, each of which must be unique, and the number of VMs."""

    def __init__(self, max_vms: int) -> None:
        self._owners: dict[str | UniqueKey, str] = {}
        self._max_vms = max_vms
        self._vm_count = 0

    def add_vms(self, count: int, raw: FileValue) -> None:
        """Count VMs before they are created; refuse too many."""
        self._vm_count += count
        if self._vm_count > self._max_vms:
            raise raw.error(
                f"the file defines more than {self._max_vms} VMs; split it, or set imports.vms of the service"
            )

    def add(self, what: str, raw: FileValue) -> None:
        """Add the claim of a name; refuse one that exists already, ignoring case."""
        self._add(what.casefold(), what, raw)

    def add_key(self, key: UniqueKey, what: str, raw: FileValue) -> None:
        """Add the claim of an address or id; refuse one that exists already."""
        self._add(key, what, raw)

    def _add(self, claim: str | UniqueKey, what: str, raw: FileValue) -> None:
        if claim in self._owners:
            raise raw.error(f"{what} is already defined at {self._owners[claim]}")
        self._owners[claim] = raw.key


class ScopeTemplate(NamedTuple):
    """The properties of a scope that its VMs need, and the domains and hosts over which they are distributed."""

    scope: str
    kind: ScopeKind
    scale_set: str | None
    update_domains: int
    fault_domains: int
    hosts: tuple[str, ...]
    traits: Traits


class VmTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `vms`, which defines `count` VMs, numbered from 0."""

    name: str
    count: int
    vm_id: str | None
    role_instance: bool
    update_domain: int | None
    fault_domain: int | None
    host: str | None
    addresses: tuple[Address, ...]
    first_address: Address | None
    traits: Traits


def read_fleet_file(text: str, context: CreationContext, *, file: str) -> tuple[Scope, ...]:
    """Read the scopes of a fleet file; raise FileError if it is not valid."""
    return read_fleet(read_toml(text, file=file), context)


def read_fleet(document: FileValue, context: CreationContext) -> tuple[Scope, ...]:
    """Read the scopes of a parsed fleet file."""
    top = document.table(TOP_KEYS)
    defaults = top.get("defaults", _defaults, Traits())
    scopes = top.require("scopes", FileValue.items, "[[scopes]], each with a name and a kind")
    unique_names = NameClaims(context.max_vms)
    return tuple(_scope(item, defaults, context, unique_names) for item in scopes)


def read_fleet_json(text: str | bytes, context: CreationContext, *, file: str) -> tuple[Scope, ...]:
    """Read the scopes of a fleet file in JSON."""
    return read_fleet(read_json(text, file=file), context)


def demonstration_fleet(context: CreationContext) -> tuple[Scope, ...]:
    """Return the fleet that comes with Forewarn: a scope of each kind."""
    text = Path(__file__).with_name("demonstration.toml").read_text(encoding="utf-8")
    return read_fleet_file(text, file=DEMONSTRATION, context=context)


def _scope(raw: FileValue, defaults: Traits, context: CreationContext, unique_names: NameClaims) -> Scope:
    table = raw.table(SCOPE_KEYS)
    scope_template = _scope_template(table, defaults)
    unique_names.add(f"scope {scope_template.scope}", table.at("name"))
    placement_group = table.get(
        "placement_group", _placement_group, default_placement_group(scope_template.kind, scope_template.scope)
    )
    approval = table.get("approval", lambda rule: rule.choice(ApprovalRule), ApprovalRule.ANY)
    auto_approve = table.get("auto_approve", _auto_approve, ())
    vms = _vms(table, scope_template, unique_names)
    with raw.wrap_errors():
        scope = Scope(
            id=scope_template.scope,
            kind=scope_template.kind,
            epoch=context.new_epoch(),
            changed_at=context.at,
            roster=Roster(vms),
            traits=scope_template.traits,
            scale_set=scope_template.scale_set,
            placement_group=placement_group,
            approval=approval,
            auto_approve=auto_approve,
        )
        create_scope(scope, by=raw.file, now=context.at)  # only for its checks: here the file and the key are known
    return scope


def _scope_template(table: FileTable, defaults: Traits) -> ScopeTemplate:
    return ScopeTemplate(
        scope=table.require("name", FileValue.name, "a name that no other scope has"),
        kind=table.require("kind", lambda kind: kind.choice(ScopeKind), _kinds()),
        scale_set=table.get("scale_set", FileValue.name, None),
        update_domains=table.get("update_domains", lambda number: number.number(1, DOMAINS), 1),
        fault_domains=table.get("fault_domains", lambda number: number.number(1, DOMAINS), 1),
        hosts=table.get("hosts", lambda hosts: tuple(host.name() for host in hosts.items()), ()),
        traits=_merge_traits(table, _traits(table), defaults),
    )


def _kinds() -> str:
    return ", ".join(f'"{kind.value}"' for kind in ScopeKind)


def default_placement_group(kind: ScopeKind, scope: str) -> str | None:
    """Return the default placement group of a scope."""
    return derived_id("placement-group", scope) if kind is ScopeKind.PLACEMENT_GROUP else None


def default_vm_id(scope: str, vm: str) -> str:
    """Return the default id of a VM."""
    return derived_id("vm", scope, vm)


def is_role_instance(kind: ScopeKind) -> bool:
    """Return whether VMs of this kind of scope are role instances by default."""
    return kind is ScopeKind.CLOUD_SERVICE


def _placement_group(raw: FileValue) -> str | None:
    """Read a placement group; an empty string means none."""
    return _guid(raw) if raw.value != "" else None


def _auto_approve(raw: FileValue) -> tuple[EventType, ...]:
    return tuple(EventType(item.choice(AutoApproved).value) for item in raw.items())


TRAITS = {name: field_type(field.type) for name, field in struct_fields(Traits).items()}
"""The traits, which a VM inherits from its scope and a scope from the defaults of the file, with their types."""

TOP_KEYS = frozenset({"defaults", "scopes"})
SCOPE_KEYS = frozenset(
    {*ScopeTemplate._fields, "name", "approval", "auto_approve", "placement_group", "vms", *TRAITS}
) - {
    "scope",
    "traits",
}
VM_KEYS = (frozenset(VmTemplate.__struct_fields__) | frozenset(TRAITS)) - {"traits"}
VM = {name: field_type(field.type) for name, field in struct_fields(Vm).items()}
ADDRESS = {name: field_type(field.type) for name, field in struct_fields(Address).items()}


def _defaults(raw: FileValue) -> Traits:
    return _traits(raw.table(TRAITS))


def _traits(table: FileTable) -> Traits:
    values = {trait: table.get(trait, partial(_trait, trait), None) for trait in TRAITS}
    with table.wrap_errors():
        return Traits(**values)


def _merge_traits(table: FileTable, traits: Traits, base: Traits) -> Traits:
    """Merge traits with their defaults. The merge can fail only because of too many tags or instance keys."""
    with table.wrap_errors():
        return traits.with_defaults(base)


def _trait(trait: str, raw: FileValue) -> Any:
    return _instance(raw) if trait == "instance" else read_value(raw, TRAITS[trait])


def _instance(raw: FileValue, levels: int = 1) -> dict[str, str]:
    """Read values of the instance document: tables and lists as there, or keys with dots."""
    if levels > MAX_DEPTH:
        raise raw.error(f"more than {MAX_DEPTH} levels of tables")
    values: dict[str, str] = {}
    for name, entry in raw.entries().items():
        match entry.value:
            case Mapping():
                below = _instance(entry, levels + 1)
            case list():
                items = enumerate(entry.items())
                below = {f"{n}.{key}": text for n, item in items for key, text in _instance(item, levels + 1).items()}
            case _:
                values[name] = entry.text()
                continue
        values |= {f"{name}.{key}": text for key, text in below.items()}
    return values


def _vms(table: FileTable, scope_template: ScopeTemplate, unique_names: NameClaims) -> tuple[Vm, ...]:
    raw = table.at("vms")
    if scope_template.kind is ScopeKind.STANDALONE and not table.has("vms"):
        raw = raw.with_value([{}])
    elif not table.has("vms"):
        raise raw.error("required key is missing: list the VMs, each with a name, or some with { count = … }")
    vms: list[Vm] = []
    for item in raw.items():
        vms += _expand_vms(item, scope_template, unique_names, first=len(vms))
    return tuple(vms)


def _expand_vms(raw: FileValue, scope_template: ScopeTemplate, unique_names: NameClaims, *, first: int) -> list[Vm]:
    table = raw.table(VM_KEYS)
    vm_template = _vm_template(table, scope_template)
    _merge_traits(table, vm_template.traits, scope_template.traits)
    unique_names.add_vms(vm_template.count, table.at("count") if table.has("count") else raw)
    with table.wrap_errors():
        vms = [_vm(vm_template, scope_template, n, position=first + n) for n in range(vm_template.count)]
    name, vm_id = table.at("name"), table.at("vm_id")
    addresses = table.at("first_address" if vm_template.first_address else "addresses")
    for vm in vms:
        unique_names.add(f"VM {scope_template.scope}/{vm.name}", name)
        for key in unique_keys(vm):
            if key[0] == VM_ID:
                unique_names.add_key(key, f"vm_id {vm.vm_id}", vm_id)
            else:
                unique_names.add_key(key, describe_key(key), addresses)
    return vms


def _vm_template(table: FileTable, scope_template: ScopeTemplate) -> VmTemplate:
    is_template = table.has("count")
    if is_template:
        for key in ("vm_id", "addresses"):
            table.forbid(
                key, "not allowed with count, which defines several VMs; use first_address, or list the VMs one by one"
            )
    else:
        table.forbid("first_address", "allowed only with count; use addresses")
    count = table.get("count", lambda count: count.number(1, MAX_VMS_PER_SCOPE), 1)
    return VmTemplate(
        count=count,
        name=_name_template(table, scope_template) if is_template else _single_name(table, scope_template),
        vm_id=table.get("vm_id", _guid, None),
        role_instance=_vm_field(table, "role_instance", is_role_instance(scope_template.kind)),
        update_domain=_vm_field(table, "update_domain"),
        fault_domain=_vm_field(table, "fault_domain"),
        host=_vm_field(table, "host"),
        addresses=table.get("addresses", _addresses, ()),
        first_address=table.get("first_address", partial(_first_address, count), None),
        traits=_traits(table),
    )


def _vm_field(table: FileTable, name: str, default: Any = None) -> Any:
    """Read a field of a VM with the type and bounds that it has in the core."""
    return table.get(name, lambda raw: read_value(raw, VM[name]), default)


def _single_name(table: FileTable, scope_template: ScopeTemplate) -> str:
    if scope_template.kind is ScopeKind.STANDALONE:
        return table.get("name", FileValue.name, scope_template.scope)
    return table.require("name", FileValue.name, "a name that no other VM of the scope has")


def _name_template(table: FileTable, scope_template: ScopeTemplate) -> str:
    """Read a name template with placeholders for the VM's number, scale set and scope."""
    default = "{set}_{n}" if scope_template.scale_set is not None else None
    if default is not None and not table.has("name"):
        return table.get("name", FileValue.text, default)
    return table.require(
        "name",
        partial(_check_name_template, scope_template),
        'a name with a placeholder for the number, such as "web-{n}"',
    )


def _check_name_template(scope_template: ScopeTemplate, raw: FileValue) -> str:
    template = raw.text()
    if "{n}" not in template:
        raise raw.error(f'"{template}" has no placeholder for the number; use a name such as "web-{{n}}"')
    if "{set}" in template and scope_template.scale_set is None:
        raise raw.error("{set} stands for scale_set, which this scope does not have")
    with raw.wrap_errors():
        check_name(_expand_name(template, scope_template, 0), "VM name")
    return template


def _expand_name(template: str, scope_template: ScopeTemplate, n: int) -> str:
    placeholders = {"{n}": str(n), "{set}": scope_template.scale_set or "", "{scope}": scope_template.scope}
    for placeholder, value in placeholders.items():
        template = template.replace(placeholder, value)
    return template


def _vm(vm_template: VmTemplate, scope_template: ScopeTemplate, n: int, *, position: int) -> Vm:
    name = _expand_name(vm_template.name, scope_template, n)
    host = vm_template.host or (
        scope_template.hosts[position % len(scope_template.hosts)] if scope_template.hosts else None
    )
    addresses = (_nth_address(vm_template.first_address, n),) if vm_template.first_address else vm_template.addresses
    return Vm(
        name=name,
        vm_id=vm_template.vm_id or default_vm_id(scope_template.scope, name),
        role_instance=vm_template.role_instance,
        update_domain=position % scope_template.update_domains
        if vm_template.update_domain is None
        else vm_template.update_domain,
        fault_domain=position % scope_template.fault_domains
        if vm_template.fault_domain is None
        else vm_template.fault_domain,
        host=host,
        addresses=addresses,
        traits=vm_template.traits,
    )


def _addresses(raw: FileValue) -> tuple[Address, ...]:
    addresses = tuple(_address(item) for item in raw.items())
    with raw.wrap_errors():
        check_addresses(addresses)
    return addresses


def _address(raw: FileValue) -> Address:
    """Read an address: an IP, or a table with an IP and other fields."""
    if isinstance(raw.value, str):
        return _checked_address(raw, ip=raw.value)
    table = raw.table(ADDRESS, 'an address in quotes, or a table such as { ip = "10.0.0.4", network = "blue" }')
    ip = table.require("ip", lambda ip: _checked_address(ip, ip=ip.text()).ip, "an IPv4 or IPv6 address")
    others = (name for name in ADDRESS if name != "ip" and table.has(name))
    values = {name: read_value(table.at(name), ADDRESS[name]) for name in others}
    with table.wrap_errors():
        return Address(ip=ip, **values)


def _checked_address(raw: FileValue, *, ip: str) -> Address:
    with raw.wrap_errors():
        address = Address(ip=ip)
        check_addresses([address])
    return address


def _first_address(count: int, raw: FileValue) -> Address:
    first = _address(raw)
    if first.mac:
        raise raw.error("several VMs cannot share a MAC address; omit it, or list the VMs one by one")
    try:
        _nth_address(first, count - 1)
    except ValueError:
        raise raw.error(f"the address range from {first.ip} is too small for {count} VMs") from None
    return first


def _nth_address(first: Address, n: int) -> Address:
    return Address(ip=str(ip_address(first.ip) + n), network=first.network, prefix=first.prefix)


def _guid(raw: FileValue) -> str:
    text = raw.text()
    if not is_guid(text):
        raise raw.error(f'"{text}" is not a GUID; use one such as "{derived_id("example")}"')
    return text


def derived_id(*names: str) -> str:
    """Return the default id of an object with these names."""
    return str(uuid5(IDS, "/".join(names)))


_encode = msgspec.json.Encoder().encode


class FleetFormat(StrEnum):
    """Formats of a fleet file."""

    TOML = "toml"
    JSON = "json"


def parse_fleet(
    content: bytes, *, file: str, format_: FleetFormat, at: datetime, max_vms: int = MAX_FLEET_VMS
) -> list[bytes]:
    """Read a fleet file; return its scopes, each encoded as JSON. Raise FileError if it is invalid."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(file, "", f"not valid UTF-8: {error}") from error
    context = CreationContext(at=at, new_epoch=lambda: secrets.token_hex(6), max_vms=max_vms)
    read = read_fleet_json if format_ is FleetFormat.JSON else read_fleet_file
    return [_encode(scope) for scope in read(text, file=file, context=context)]
