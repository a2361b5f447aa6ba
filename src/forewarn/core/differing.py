"""What differs between two scopes or two VMs, field by field, as people read it."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from forewarn.core.duration import duration_text
from forewarn.core.scope import Scope
from forewarn.core.vm import Address, Traits, Vm

SCOPE_FIELDS = ("approval", "auto_approve", "scale_set", "placement_group")
VM_FIELDS = ("vm_id", "role_instance", "update_domain", "fault_domain", "host", "addresses")

Fields = dict[str, tuple[str, str]]
"""For each field that differs the old value and the new one."""


def scope_fields(old: Scope, new: Scope) -> Fields:
    """Return what differs between two scopes besides their VMs."""
    return _differing(old, new, ("kind", *SCOPE_FIELDS)) | _differing_traits(old.traits, new.traits)


def vm_fields(old: Vm, new: Vm) -> Fields:
    """Return what differs between two VMs besides their names."""
    return _differing(old, new, VM_FIELDS) | _differing_traits(old.traits, new.traits)


def differing_names(old: Vm, new: Vm) -> list[str]:
    """Return the names of the fields in which two VMs differ."""
    own = [name for name in VM_FIELDS if getattr(old, name) != getattr(new, name)]
    if old.traits == new.traits:
        return own
    return own + [name for name in Traits.__struct_fields__ if getattr(old.traits, name) != getattr(new.traits, name)]


def _differing_traits(old: Traits, new: Traits) -> Fields:
    return {} if old == new else _differing(old, new, Traits.__struct_fields__)


def _differing(old: object, new: object, names: Iterable[str]) -> Fields:
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in names)
    return {name: (_shown(before), _shown(after)) for name, before, after in pairs if before != after}


def _shown(value: Any) -> str:
    """Write a value of a field for people; nothing is written where nothing is said."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Address(ip=ip, network=network, mac=mac):
            return ip + (f"@{network}" if network != "default" else "") + (f" ({mac})" if mac else "")
        case tuple():
            return ", ".join(_shown(item) for item in value)
        case dict():
            return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))
        case timedelta():
            return duration_text(value)
        case _:
            return str(value)
