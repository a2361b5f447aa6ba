"""Diff of two scopes or two VMs: the changed fields with old and new value as text."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from forewarn.core.duration import format_duration
from forewarn.core.scope import Scope
from forewarn.core.vm import Address, Traits, Vm

SCOPE_FIELDS = ("approval", "auto_approve", "scale_set", "placement_group")
VM_FIELDS = tuple(name for name in Vm.__struct_fields__ if name not in ("name", "traits"))

FieldDiff = dict[str, tuple[str, str]]
"""The old and the new value of each field that differs."""


def diff_scopes(old: Scope, new: Scope) -> FieldDiff:
    """Return the differences between two scopes, except for their VMs."""
    return _diff(old, new, ("kind", *SCOPE_FIELDS)) | _diff_traits(old.traits, new.traits)


def diff_vms(old: Vm, new: Vm) -> FieldDiff:
    """Return the differences between two VMs, except for their names."""
    return _diff(old, new, VM_FIELDS) | _diff_traits(old.traits, new.traits)


def changed_field_names(old: Vm, new: Vm) -> list[str]:
    """Return the names of the fields in which two VMs differ."""
    own = [name for name in VM_FIELDS if getattr(old, name) != getattr(new, name)]
    if old.traits == new.traits:
        return own
    return own + [name for name in Traits.__struct_fields__ if getattr(old.traits, name) != getattr(new.traits, name)]


def _diff_traits(old: Traits, new: Traits) -> FieldDiff:
    return {} if old == new else _diff(old, new, Traits.__struct_fields__)


def _diff(old: object, new: object, names: Iterable[str]) -> FieldDiff:
    pairs = ((name, getattr(old, name), getattr(new, name)) for name in names)
    return {name: (_format_value(before), _format_value(after)) for name, before, after in pairs if before != after}


def _format_value(value: Any) -> str:
    """Format a field's value for people; an unset value gives an empty text."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Address(ip=ip, network=network, mac=mac, prefix=prefix):
            return (
                ip
                + (f"/{prefix}" if prefix else "")
                + (f"@{network}" if network != "default" else "")
                + (f" ({mac})" if mac else "")
            )
        case tuple():
            return ", ".join(_format_value(item) for item in value)
        case dict():
            return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))
        case timedelta():
            return format_duration(value)
        case _:
            return str(value)
