"""The fleet file: a fleet as a person writes it down in TOML, read into the scopes of the rules.

docs/reference/fleet-file.md describes every key.
"""

import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import msgspec

from forewarn.api.written import FleetFileError, Table, Written
from forewarn.core.event import EventType
from forewarn.core.inventory import create_scope
from forewarn.core.limits import MAX_DOMAIN, MAX_VMS_PER_SCOPE
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.text import check_name, is_guid
from forewarn.core.vm import Address, Os, Priority, Roster, Traits, Vm

DEMONSTRATION = "the demonstration fleet"
DOMAINS = 20
ADDRESSES = 16

IDS = UUID("5b1f3c0e-6a52-4c07-9f0b-0d1e9f5a2c44")
"""The namespace of ids that the file does not give: the same names give the same ids, everywhere and always."""


class AutoApproved(StrEnum):
    """The types of events that a scope can approve in advance."""

    REBOOT = EventType.REBOOT.value
    REDEPLOY = EventType.REDEPLOY.value


class Birth(NamedTuple):
    """What a new scope needs besides the file: the time, and chance."""

    at: datetime
    new_epoch: Callable[[], str]


class Claims:
    """Names, ids and addresses that stand for one thing each."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}

    def claim(self, what: str, written: Written) -> None:
        """Refuse what was claimed before. Case makes no difference."""
        claim = what.casefold()
        if claim in self._owners:
            raise written.wrong(f"{what} is there already, at {self._owners[claim]}")
        self._owners[claim] = written.key


class Home(NamedTuple):
    """What the VMs of a scope need to know of it, and over what they are spread by their position in it."""

    scope: str
    kind: ScopeKind
    scale_set: str | None
    update_domains: int
    fault_domains: int
    hosts: tuple[str, ...]
    traits: Traits


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `vms`: it stands for `count` VMs, numbered from 0."""

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


def read_fleet_file(text: str, *, file: str, birth: Birth) -> tuple[Scope, ...]:
    """Read the scopes of a fleet file. What is wrong with it is raised as FleetFileError."""
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise FleetFileError(file, "", f"this is not TOML: {error}") from error
    return read_fleet(content, file=file, birth=birth)


def read_fleet(content: Mapping[str, object], *, file: str, birth: Birth) -> tuple[Scope, ...]:
    """Read the scopes of a fleet that is parsed already."""
    top = Written(file, "", content).table(TOP_KEYS)
    defaults = top.get("defaults", _defaults, Traits())
    written = top.need("scopes", Written.items, "[[scopes]], each with a name and a kind")
    claims = Claims()
    return tuple(_scope(item, defaults, birth, claims) for item in written)


def read_fleet_json(text: str | bytes, *, file: str, birth: Birth) -> tuple[Scope, ...]:
    """Read the scopes of a fleet file that is JSON of the same shape."""
    try:
        content = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FleetFileError(file, "", f"this is not JSON: {error}") from error
    return read_fleet(content, file=file, birth=birth)


def demonstration_fleet(birth: Birth) -> tuple[Scope, ...]:
    """Return the fleet that comes with Forewarn: a scope of each kind."""
    text = files("forewarn.api").joinpath("demonstration.toml").read_text(encoding="utf-8")
    return read_fleet_file(text, file=DEMONSTRATION, birth=birth)


def _scope(written: Written, defaults: Traits, birth: Birth, claims: Claims) -> Scope:
    table = written.table(SCOPE_KEYS)
    home = _home(table, defaults)
    claims.claim(f"scope {home.scope}", table.at("name"))
    placement_group = table.get("placement_group", _placement_group, usual_placement_group(home.kind, home.scope))
    approval = table.get("approval", lambda rule: rule.choice(ApprovalRule), ApprovalRule.ANY)
    auto_approve = table.get("auto_approve", _auto_approve, ())
    vms = _vms(table, home, claims)
    with written.checked():
        scope = Scope(
            id=home.scope,
            kind=home.kind,
            epoch=birth.new_epoch(),
            changed_at=birth.at,
            roster=Roster(vms),
            traits=home.traits,
            scale_set=home.scale_set,
            placement_group=placement_group,
            approval=approval,
            auto_approve=auto_approve,
        )
        create_scope(scope, by=written.file, now=birth.at)  # for what it refuses: only here are file and key known
    return scope


def _home(table: Table, defaults: Traits) -> Home:
    return Home(
        scope=table.need("name", Written.name, "a name that no other scope has"),
        kind=table.need("kind", lambda kind: kind.choice(ScopeKind), _kinds()),
        scale_set=table.get("scale_set", Written.name, None),
        update_domains=table.get("update_domains", lambda number: number.number(1, DOMAINS), 1),
        fault_domains=table.get("fault_domains", lambda number: number.number(1, DOMAINS), 1),
        hosts=table.get("hosts", lambda hosts: tuple(host.name() for host in hosts.items()), ()),
        traits=_joined(table, _traits(table), defaults),
    )


def _kinds() -> str:
    return ", ".join(f'"{kind.value}"' for kind in ScopeKind)


def usual_placement_group(kind: ScopeKind, scope: str) -> str | None:
    """Return the placement group of a scope whose file does not say it."""
    return derived_id("placement-group", scope) if kind is ScopeKind.PLACEMENT_GROUP else None


def usual_vm_id(scope: str, vm: str) -> str:
    """Return the id of a VM whose file does not say it."""
    return derived_id("vm", scope, vm)


def is_role_instance(kind: ScopeKind) -> bool:
    """Tell whether VMs of such a scope are role instances where their file does not say it."""
    return kind is ScopeKind.CLOUD_SERVICE


def _placement_group(written: Written) -> str | None:
    """Read a placement group; an empty text says that there is none."""
    return _guid(written) if written.value != "" else None


def _auto_approve(written: Written) -> tuple[EventType, ...]:
    return tuple(EventType(item.choice(AutoApproved).value) for item in written.items())


TRAITS: dict[str, Callable[[Written], Any]] = {
    "priority": lambda written: written.choice(Priority),
    "terminate_notice": Written.duration,
    "location": Written.text,
    "zone": Written.text,
    "resource_group": Written.text,
    "subscription": Written.text,
    "os": lambda written: written.choice(Os),
    "tags": lambda written: {key: tag.text() for key, tag in written.entries().items()},
}
"""What a VM can say itself, or take from its scope, or its scope from the fleet."""


TOP_KEYS = frozenset({"defaults", "scopes"})
SCOPE_KEYS = frozenset({*Home._fields, "name", "approval", "auto_approve", "placement_group", "vms", *TRAITS}) - {
    "scope",
    "traits",
}
VM_KEYS = (frozenset(Entry.__struct_fields__) | frozenset(TRAITS)) - {"traits"}
ADDRESS_KEYS = frozenset({"ip", "mac", "network"})


def _defaults(written: Written) -> Traits:
    return _traits(written.table(TRAITS))


def _traits(table: Table) -> Traits:
    return Traits(**{trait: table.get(trait, partial(_trait, trait), None) for trait in TRAITS})


def _joined(table: Table, traits: Traits, base: Traits) -> Traits:
    """Lay traits over those that they complete. Of all of them only tags can be too many together."""
    with table.at("tags").checked():
        return traits.with_defaults(base)


def _trait(trait: str, written: Written) -> Any:
    value = TRAITS[trait](written)
    with written.checked():
        Traits(**{trait: value})
    return value


def _vms(table: Table, home: Home, claims: Claims) -> tuple[Vm, ...]:
    written = table.at("vms")
    if home.kind is ScopeKind.STANDALONE and not table.has("vms"):
        written = Written(written.file, written.key, [{}])
    elif not table.has("vms"):
        raise written.wrong("this is missing: list the VMs, each with a name, or some with { count = … }")
    vms: list[Vm] = []
    for item in written.items():
        vms += _numbered(item, home, claims, first=len(vms))
    return tuple(vms)


def _numbered(written: Written, home: Home, claims: Claims, *, first: int) -> list[Vm]:
    table = written.table(VM_KEYS)
    entry = _entry(table, home)
    _joined(table, entry.traits, home.traits)
    with written.checked():
        vms = [_vm(entry, home, n, position=first + n) for n in range(entry.count)]
    name, vm_id = table.at("name"), table.at("vm_id")
    addresses = table.at("first_address" if entry.first_address else "addresses")
    for vm in vms:
        claims.claim(f"VM {home.scope}/{vm.name}", name)
        claims.claim(f"vm_id {vm.vm_id}", vm_id)
        for address in vm.addresses:
            claims.claim(f"address {address.ip} in network {address.network}", addresses)
    return vms


def _entry(table: Table, home: Home) -> Entry:
    is_template = table.has("count")
    if is_template:
        for key in ("vm_id", "addresses"):
            table.refuse(key, "an entry with count stands for several VMs: use first_address, or list them one by one")
    else:
        table.refuse("first_address", "this goes with count: use addresses")
    count = table.get("count", lambda count: count.number(1, MAX_VMS_PER_SCOPE), 1)
    return Entry(
        count=count,
        name=_template(table, home) if is_template else _single_name(table, home),
        vm_id=table.get("vm_id", _guid, None),
        role_instance=table.get("role_instance", Written.flag, is_role_instance(home.kind)),
        update_domain=table.get("update_domain", lambda number: number.number(0, MAX_DOMAIN), None),
        fault_domain=table.get("fault_domain", lambda number: number.number(0, MAX_DOMAIN), None),
        host=table.get("host", Written.name, None),
        addresses=table.get("addresses", _addresses, ()),
        first_address=table.get("first_address", partial(_first_address, count), None),
        traits=_traits(table),
    )


def _single_name(table: Table, home: Home) -> str:
    if home.kind is ScopeKind.STANDALONE:
        return table.get("name", Written.name, home.scope)
    return table.need("name", Written.name, "a name that no other VM of the scope has")


def _template(table: Table, home: Home) -> str:
    """Read a name with places for the VM's number, its scale set and its scope."""
    usual = "{set}_{n}" if home.scale_set is not None else None
    if usual is not None and not table.has("name"):
        return table.get("name", Written.text, usual)
    return table.need("name", partial(_checked_template, home), 'a name with a place for the number, such as "web-{n}"')


def _checked_template(home: Home, written: Written) -> str:
    template = written.text()
    if "{n}" not in template:
        raise written.wrong(f'"{template}" has no place for the number: use a name such as "web-{{n}}"')
    if "{set}" in template and home.scale_set is None:
        raise written.wrong("{set} stands for scale_set, which this scope does not have")
    with written.checked():
        check_name(_filled(template, home, 0), "VM name")
    return template


def _filled(template: str, home: Home, n: int) -> str:
    places = {"{n}": str(n), "{set}": home.scale_set or "", "{scope}": home.scope}
    for place, value in places.items():
        template = template.replace(place, value)
    return template


def _vm(entry: Entry, home: Home, n: int, *, position: int) -> Vm:
    name = _filled(entry.name, home, n)
    host = entry.host or (home.hosts[position % len(home.hosts)] if home.hosts else None)
    addresses = (_later(entry.first_address, n),) if entry.first_address else entry.addresses
    return Vm(
        name=name,
        vm_id=entry.vm_id or usual_vm_id(home.scope, name),
        role_instance=entry.role_instance,
        update_domain=position % home.update_domains if entry.update_domain is None else entry.update_domain,
        fault_domain=position % home.fault_domains if entry.fault_domain is None else entry.fault_domain,
        host=host,
        addresses=addresses,
        traits=entry.traits,
    )


def _addresses(written: Written) -> tuple[Address, ...]:
    return tuple(_address(item) for item in written.items())


def _address(written: Written) -> Address:
    """Read an address: the IP alone, or a table that also says its network and MAC."""
    if isinstance(written.value, str):
        return _checked_address(written, ip=written.value)
    table = written.table(
        ADDRESS_KEYS, 'an address in quotes, or a table such as { ip = "10.0.0.4", network = "blue" }'
    )
    ip = table.need("ip", lambda ip: _checked_address(ip, ip=ip.text()).ip, "an IPv4 or IPv6 address")
    network = table.get("network", Written.name, "default")
    mac = table.get("mac", Written.text, "")
    return _checked_address(written, ip=ip, network=network, mac=mac)


def _checked_address(written: Written, **fields: str) -> Address:
    with written.checked():
        return Address(**fields)


def _first_address(count: int, written: Written) -> Address:
    first = _address(written)
    if first.mac:
        raise written.wrong("several VMs cannot have one MAC address: leave it out, or list the VMs one by one")
    try:
        _later(first, count - 1)
    except ValueError:
        raise written.wrong(f"there are no {count} addresses from {first.ip} on") from None
    return first


def _later(first: Address, n: int) -> Address:
    return Address(ip=str(ip_address(first.ip) + n), network=first.network)


def _guid(written: Written) -> str:
    text = written.text()
    if not is_guid(text):
        raise written.wrong(f'"{text}" is not allowed: use a GUID such as "{derived_id("example")}"')
    return text


def derived_id(*names: str) -> str:
    """Return the id of what bears these names, for where none was given."""
    return str(uuid5(IDS, "/".join(names)))
