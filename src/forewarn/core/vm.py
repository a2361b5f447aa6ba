"""A virtual machine as the rules see it: its name, its place, and what it has of its own or takes from its scope."""

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address

import msgspec

from forewarn.core.duration import duration_text
from forewarn.core.errors import AlreadyThere, Invalid
from forewarn.core.limits import LARGEST_DOMAIN, VMS_PER_SCOPE
from forewarn.core.text import check_name, check_text, is_guid

TAGS = 50
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-]?[0-9A-Fa-f]{2}){5}")
TERMINATE_NOTICE = (timedelta(minutes=5), timedelta(minutes=15))
"""PROTOCOL §6: 5 to 15 minutes, 5 unless said otherwise."""


class Priority(StrEnum):
    """Low-priority VMs can be taken away (Preempt)."""

    REGULAR = "regular"
    LOW = "low"


class Os(StrEnum):
    """The operating system family, as the instance document tells it."""

    LINUX = "linux"
    WINDOWS = "windows"


class Address(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An address by which the endpoint knows its caller; unique within its network."""

    ip: str
    network: str = "default"
    mac: str = ""

    def __post_init__(self) -> None:
        check_name(self.network, "network")
        try:
            canonical = str(ip_address(self.ip))
        except ValueError:
            raise Invalid(f"address {self.ip!r} is neither IPv4 nor IPv6") from None
        if canonical != self.ip:
            raise Invalid(f"address {self.ip!r}: write it as {canonical}")
        if self.mac and not _MAC.fullmatch(self.mac):
            raise Invalid(f"MAC address {self.mac!r}: write it as six pairs of hex digits, 00:0d:3a:12:34:56")


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a VM may have of its own or take from its scope; None means not said here."""

    priority: Priority | None = None
    terminate_notice: timedelta | None = None
    location: str | None = None
    zone: str | None = None
    resource_group: str | None = None
    subscription: str | None = None
    os: Os | None = None
    tags: dict[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("location", "zone", "resource_group", "subscription"):
            check_text(getattr(self, name) or "", name)
        if self.terminate_notice is not None:
            low, high = TERMINATE_NOTICE
            if not low <= self.terminate_notice <= high:
                raise Invalid(f"terminate_notice is 5 to 15 minutes, not {duration_text(self.terminate_notice)}")
        if self.tags:
            check_tags(self.tags)

    def over(self, base: "Traits") -> "Traits":
        """Return these traits with what is not said here taken from `base`; tags are joined."""
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        if self.tags and base.tags:
            said["tags"] = base.tags | self.tags
        return msgspec.structs.replace(base, **said)


def check_tags(tags: dict[str, str]) -> None:
    """Refuse tags that are too many or too long."""
    if len(tags) > TAGS:
        raise Invalid(f"{len(tags)} tags: at most {TAGS} are kept")
    for key, value in tags.items():
        check_text(key, "a tag's name")
        check_text(value, f"tag {key[:40]}")
        if ";" in key or ":" in key:
            raise Invalid(f"tag {key!r}: ':' and ';' separate tags in the instance document and cannot be in a name")


NOTHING_SAID = Traits()


class Vm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One virtual machine of a scope."""

    name: str
    vm_id: str
    role_instance: bool = False
    update_domain: int = 0
    fault_domain: int = 0
    host: str | None = None
    addresses: tuple[Address, ...] = ()
    traits: Traits = NOTHING_SAID

    def __post_init__(self) -> None:
        check_name(self.name, "VM name")
        if not is_guid(self.vm_id):
            raise Invalid(f"VM {self.name}: vm_id {self.vm_id!r} is not a GUID")
        if not (0 <= self.update_domain <= LARGEST_DOMAIN and 0 <= self.fault_domain <= LARGEST_DOMAIN):
            raise Invalid(f"VM {self.name}: domains are counted from 0 to {LARGEST_DOMAIN}")
        if self.host is not None:
            check_name(self.host, "host")
        if len(self.addresses) > 16:
            raise Invalid(f"VM {self.name}: at most 16 addresses")


class Roster(msgspec.Struct, frozen=True):
    """The VMs of a scope, in the order in which they came; names are unique in any case."""

    vms: tuple[Vm, ...] = ()

    def __post_init__(self) -> None:
        if len(self.vms) > VMS_PER_SCOPE:
            raise Invalid(f"{len(self.vms)} VMs: a scope holds at most {VMS_PER_SCOPE}")
        if len({vm.name.casefold() for vm in self.vms}) < len(self.vms):
            raise Invalid("two VMs of one scope have the same name")

    def __iter__(self) -> Iterator[Vm]:
        return iter(self.vms)

    def __len__(self) -> int:
        return len(self.vms)

    def find(self, name: str) -> Vm | None:
        """Return the VM of that name, in any case."""
        folded = name.casefold()
        return next((vm for vm in self.vms if vm.name.casefold() == folded), None)

    def with_vm(self, vm: Vm) -> "Roster":
        """Return the roster with one VM more."""
        if self.find(vm.name) is not None:
            raise AlreadyThere(f"VM {vm.name}")
        return Roster((*self.vms, vm))

    def with_changed(self, changed: Vm) -> "Roster":
        """Return the roster with the VM of that name replaced."""
        return Roster(tuple(changed if vm.name == changed.name else vm for vm in self.vms))

    def without(self, name: str) -> "Roster":
        """Return the roster with the VM of that name gone."""
        return Roster(tuple(vm for vm in self.vms if vm.name != name))
