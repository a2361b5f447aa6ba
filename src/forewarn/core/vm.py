"""A virtual machine: name, host, domains, addresses, and traits of its own or inherited from its scope.

`Traits` and `Address` are the only declaration of their fields. The requests of the operator API
(`api/v1/traits.py`), the fleet file (`api/fleet_file.py`) and the options of `forewarn vm` are derived from them.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated

import msgspec
from msgspec import Meta

from forewarn.core.duration import duration_range, format_duration
from forewarn.core.errors import Invalid, ResourceExists
from forewarn.core.event import EventType
from forewarn.core.event_type import EVENT_TYPES
from forewarn.core.field_rule import check_fields
from forewarn.core.instance import INSTANCE_KEY_PATTERN, MAX_INSTANCE_KEYS, MAX_INSTANCE_TEXT_LENGTH, check_instance
from forewarn.core.limits import MAX_DOMAIN, MAX_TEXT_LENGTH, MAX_VMS_PER_SCOPE
from forewarn.core.text import Guid, Name, Text, check_text, describe_range, schema_pattern

MAX_TAGS = 50
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
IPV4_PATTERN = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_IPV4 = re.compile(IPV4_PATTERN)
"""The canonical form of an IPv4 address. `ip_address` takes eight times as long, and a start reads 100,000 of them."""
IPV6_CHARACTERS = r"[0-9a-f:.]{2,45}"
"""All characters of an IPv6 address in its canonical form."""
MAC_PATTERN = r"[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){5}"
TAG_NAME_PATTERN = r"[^:;]*"
_MAC = re.compile(MAC_PATTERN)
_TAG_NAME = re.compile(TAG_NAME_PATTERN)
MAX_ADDRESSES = 16
TERMINATE_NOTICE_RANGE = (EVENT_TYPES[EventType.TERMINATE].minimum_notice, timedelta(minutes=15))
"""PROTOCOL §6: at least the minimum notice, which is the default, and at most 15 minutes."""
_ALLOWED_TERMINATE_NOTICE = describe_range(*map(format_duration, TERMINATE_NOTICE_RANGE))

Domain = Annotated[int, Meta(ge=0, le=MAX_DOMAIN)]
"""The number of an update domain or fault domain."""

Tags = Annotated[
    dict[str, Text],
    Meta(
        extra_json_schema={
            "maxProperties": MAX_TAGS,
            "propertyNames": {"maxLength": MAX_TEXT_LENGTH, **schema_pattern(TAG_NAME_PATTERN)},
        }
    ),
]
"""Tags. `check_tags` checks them."""

Instance = Annotated[
    dict[str, Annotated[str, Meta(max_length=MAX_INSTANCE_TEXT_LENGTH)]],
    Meta(
        extra_json_schema={
            "maxProperties": MAX_INSTANCE_KEYS,
            "propertyNames": {"maxLength": 128, **schema_pattern(INSTANCE_KEY_PATTERN)},
        }
    ),
]
"""Values of the instance document. `check_instance` checks them."""

UniqueKey = tuple[str, str]
"""What only one VM of the fleet can have: an address, by its network and IP, or an id, as `VM_ID` and the id."""

VM_ID = ""
"""The first part of the key of an id. No network has this name."""


class Priority(StrEnum):
    """Low-priority VMs can be evicted (Preempt)."""

    REGULAR = "regular"
    LOW = "low"


class Os(StrEnum):
    """The operating system family, as in the instance document."""

    LINUX = "linux"
    WINDOWS = "windows"


class Address(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An address that identifies a VM; unique within its network."""

    ip: str
    network: Name = "default"
    mac: Annotated[str, Meta(max_length=17, extra_json_schema=schema_pattern(f"({MAC_PATTERN})?"))] = ""
    prefix: Annotated[int, Meta(ge=1, le=128)] | None = None
    """The length of the subnet's prefix, for the instance document."""

    def __post_init__(self) -> None:
        if not _IPV4.fullmatch(self.ip):
            try:
                canonical = str(ip_address(self.ip))
            except ValueError:
                raise Invalid(f"address {self.ip!r} is neither IPv4 nor IPv6") from None
            if canonical != self.ip:
                raise Invalid(f"address {self.ip!r}: write it as {canonical}")
        if self.mac and not _MAC.fullmatch(self.mac):
            raise Invalid(f"{self.mac!r}: write it as six pairs of hex digits, 00:0d:3a:12:34:56", "mac")
        longest = 128 if ":" in self.ip else 32
        if self.prefix is not None and not 1 <= self.prefix <= longest:
            raise Invalid(f"{self.prefix} of {self.ip}: use 1 to {longest}, such as 24 for 10.0.0.0/24", "prefix")
        check_fields(self)


def check_addresses(addresses: Iterable[Address]) -> None:
    """Refuse zone indexes, and one address twice. For new addresses only: older records may have such ones."""
    seen: set[UniqueKey] = set()
    for address in addresses:
        if "%" in address.ip:
            raise Invalid(
                f"address {address.ip!r} has a zone index, which only its own machine understands: "
                f"write {address.ip.partition('%')[0]}, and give the address a network"
            )
        key = (address.network, address.ip)
        if key in seen:
            raise Invalid(f"{describe_key(key)} is given twice: remove one of them")
        seen.add(key)


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Properties that a VM has itself or inherits from its scope; None means not set here."""

    priority: Annotated[Priority | None, Meta(description="regular, or low: it can be evicted.")] = None
    terminate_notice: Annotated[
        timedelta | None,
        duration_range(*TERMINATE_NOTICE_RANGE),
        Meta(description=f"The notice before a delete, {_ALLOWED_TERMINATE_NOTICE}."),
    ] = None
    location: Annotated[Text | None, Meta(description="The region.")] = None
    zone: Annotated[Text | None, Meta(description="The availability zone.")] = None
    resource_group: Annotated[Text | None, Meta(description="The resource group.")] = None
    subscription: Annotated[Text | None, Meta(description="The subscription.")] = None
    os: Annotated[Os | None, Meta(description="linux or windows.")] = None
    tags: Annotated[Tags | None, Meta(description="A tag; repeatable, give all of them.")] = None
    instance: Annotated[
        Instance | None,
        Meta(description="A value of the instance document, such as vmSize=Standard_D2s_v5; give all of them."),
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.tags:
            check_tags(self.tags)
        if self.instance:
            check_instance(self.instance)

    def with_defaults(self, defaults: "Traits") -> "Traits":
        """Return these traits with unset ones taken from `defaults`; tags and instance are merged."""
        values = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if self.tags and defaults.tags:
            values["tags"] = defaults.tags | self.tags
        if self.instance and defaults.instance:
            values["instance"] = defaults.instance | self.instance
        return msgspec.structs.replace(defaults, **values)


def check_tags(tags: dict[str, str]) -> None:
    """Refuse tags that are too many or too long."""
    if len(tags) > MAX_TAGS:
        raise Invalid(f"{len(tags)} tags: at most {MAX_TAGS} are allowed", "tags")
    for key, value in tags.items():
        check_text(key, "a tag's name", field="tags")
        check_text(value, f"tag {key[:40]!r}", field=f"tags.{key}")
        if not _TAG_NAME.fullmatch(key):
            raise Invalid(
                f"tag {key!r}: ':' and ';' separate tags in the instance document and cannot be in a name",
                f"tags.{key}",
            )


NO_TRAITS = Traits()


class Vm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One virtual machine of a scope."""

    name: Name
    vm_id: Guid
    role_instance: bool = False
    update_domain: Domain = 0
    fault_domain: Domain = 0
    host: Name | None = None
    addresses: Annotated[tuple[Address, ...], Meta(max_length=MAX_ADDRESSES)] = ()
    traits: Traits = NO_TRAITS

    def __post_init__(self) -> None:
        try:
            check_fields(self)
        except Invalid as error:
            if error.field == "name":
                raise  # its message has the name, escaped
            raise Invalid(f"{error.problem} (VM {self.name})", error.field) from error


def unique_keys(vm: Vm) -> set[UniqueKey]:
    """Return what no other VM of the fleet can have. Ids are not case-sensitive."""
    keys = {(address.network, address.ip) for address in vm.addresses}
    keys.add((VM_ID, folded_id(vm)))
    return keys


def folded_id(vm: Vm) -> str:
    """Return the id in lower case: the same object if it is so already, which takes no memory in an index."""
    lower = vm.vm_id.lower()
    return vm.vm_id if lower == vm.vm_id else lower


def describe_key(key: UniqueKey) -> str:
    """Format a unique key for messages."""
    kind, value = key
    return f"vm_id {value}" if kind == VM_ID else f"address {value} in network {kind}"


class Roster(msgspec.Struct, frozen=True, gc=False):
    """The VMs of a scope, in the order of their creation; names are unique regardless of case."""

    vms: tuple[Vm, ...] = ()

    def __post_init__(self) -> None:
        if len(self.vms) > MAX_VMS_PER_SCOPE:
            raise Invalid(f"{len(self.vms)} VMs: a scope can have at most {MAX_VMS_PER_SCOPE}")
        if len({vm.name.casefold() for vm in self.vms}) < len(self.vms):
            raise Invalid("two VMs of one scope have the same name")

    def __iter__(self) -> Iterator[Vm]:
        return iter(self.vms)

    def __len__(self) -> int:
        return len(self.vms)

    def find(self, name: str) -> Vm | None:
        """Return the VM with that name, in any case."""
        folded = name.casefold()
        return next((vm for vm in self.vms if vm.name.casefold() == folded), None)

    def with_vm(self, vm: Vm) -> "Roster":
        """Return the roster with this VM added."""
        if self.find(vm.name) is not None:
            raise ResourceExists(f"VM {vm.name}")
        return Roster((*self.vms, vm))

    def with_replaced(self, replacement: Vm) -> "Roster":
        """Return the roster with the VM of the same name replaced."""
        return Roster(tuple(replacement if vm.name == replacement.name else vm for vm in self.vms))

    def without(self, name: str) -> "Roster":
        """Return the roster without the VM of that name."""
        return Roster(tuple(vm for vm in self.vms if vm.name != name))
