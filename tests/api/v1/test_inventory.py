"""Requests and responses of the inventory have all fields of the core."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.api import v1
from forewarn.api.v1.inventory import ChangedTraits, NewTraits
from forewarn.core.vm import Address, Traits, Vm

TRAITS = set(Traits.__struct_fields__)
FLEET_FILE = (Path(__file__).parents[3] / "docs/reference/fleet-file.md").read_text()


@pytest.mark.parametrize("type_", [NewTraits, ChangedTraits, v1.AddVm, v1.AddScope, v1.Vm, v1.Scope])
def test_type_has_every_trait(type_: type[msgspec.Struct]) -> None:
    assert set(type_.__struct_fields__) >= TRAITS


def test_new_vm_has_every_field_of_a_vm() -> None:
    assert set(v1.AddVm.__struct_fields__) >= set(Vm.__struct_fields__) - {"traits"}
    assert set(v1.NewAddress.__struct_fields__) == set(v1.Address.__struct_fields__) == set(Address.__struct_fields__)


def test_request_without_traits_has_those_of_the_core() -> None:
    assert msgspec.structs.asdict(NewTraits()) == msgspec.structs.asdict(Traits())
    assert set(msgspec.structs.asdict(ChangedTraits()).values()) == {msgspec.UNSET}


@pytest.mark.parametrize("key", sorted(TRAITS | set(Address.__struct_fields__)))
def test_reference_of_the_fleet_file_names_the_key(key: str) -> None:
    found: list[Any] = re.findall(rf"`[^`]*\b{key}\b[^`]*`", FLEET_FILE)
    assert found
