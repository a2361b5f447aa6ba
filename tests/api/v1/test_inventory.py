"""Requests, responses and the fleet file have all fields of a VM and a scope of the core.

Their shapes differ, so each declares its fields (docs/decisions/0036): these tests fail if one of them misses a field.
Properties of VMs are derived, see `test_traits.py`.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.fleet_file import SCOPE_KEYS, VM_KEYS
from forewarn.api.v1.traits import ChangedTraits, NewTraits
from forewarn.core.diff import SCOPE_FIELDS, VM_FIELDS
from forewarn.core.scope import Scope
from forewarn.core.vm import Address, Traits, Vm

FLEET_FILE = (Path(__file__).parents[3] / "docs/reference/fleet-file.md").read_text()

VM = set(Vm.__struct_fields__) - {"traits"}
FIXED_OF_VM = {"name", "vm_id", "role_instance"}
"""Fields of a VM that never change."""

COMPUTED = {"epoch", "changed_at", "entries", "incarnation", "events", "enabled", "was_enabled", "seen_at"}
COMPUTED |= {"hold", "ended", "seen_keys"}
"""Fields of a scope that follow from what happens in it."""

SCOPE = set(Scope.__struct_fields__) - COMPUTED - {"roster", "traits"}
FIXED_OF_SCOPE = {"id", "kind", "scale_set", "placement_group"}


def own_fields(type_: type[msgspec.Struct]) -> set[str]:
    return set(type_.__struct_fields__) - set(Traits.__struct_fields__)


def test_every_field_of_a_vm_can_be_given_changed_and_seen() -> None:
    assert own_fields(v1.AddVm) == VM | {"scope"}
    assert own_fields(v1.ChangeVm) == VM - FIXED_OF_VM
    assert own_fields(v1.Vm) >= VM
    assert VM_KEYS >= VM
    assert set(VM_FIELDS) == VM - {"name"}


def test_every_field_of_a_scope_can_be_given_changed_and_seen() -> None:
    assert own_fields(v1.AddScope) == SCOPE
    assert own_fields(v1.ChangeScope) == SCOPE - FIXED_OF_SCOPE
    assert own_fields(v1.Scope) >= SCOPE
    assert {"id", *SCOPE_KEYS} >= SCOPE
    assert set(SCOPE_FIELDS) == SCOPE - {"id", "kind"}


def test_request_without_traits_has_those_of_the_core() -> None:
    assert msgspec.structs.asdict(NewTraits()) == msgspec.structs.asdict(Traits())
    assert set(msgspec.structs.asdict(ChangedTraits()).values()) == {msgspec.UNSET}


@pytest.mark.parametrize("key", sorted({*Traits.__struct_fields__, *Address.__struct_fields__}))
def test_reference_of_the_fleet_file_names_the_key(key: str) -> None:
    found: list[Any] = re.findall(rf"`[^`]*\b{key}\b[^`]*`", FLEET_FILE)
    assert found
