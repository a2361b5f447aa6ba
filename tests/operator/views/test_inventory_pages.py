"""Filters of the inventory: which scopes and VMs they match."""

import msgspec
import pytest

from forewarn.core.scope import Hold, ScopeKind
from forewarn.core.vm import Priority, Traits
from forewarn.operator.views.inventory_pages import InventoryFilter
from tests.core.sample_scopes import TEN, scope, vm

VMS = (
    vm("web-0", host="hv-0"),
    msgspec.structs.replace(vm("Web-1", host="hv-1"), traits=Traits(priority=Priority.REGULAR, tags={"env": "test"})),
    vm("db"),
)
SCOPE = msgspec.structs.replace(
    scope("web", *VMS), traits=Traits(priority=Priority.LOW, tags={"env": "prod", "team": "a"})
)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (InventoryFilter(), ["web-0", "Web-1", "db"]),
        (InventoryFilter(host="hv-1"), ["Web-1"]),
        (InventoryFilter(name="WEB-*"), ["web-0", "Web-1"]),
        (InventoryFilter(name="web"), []),
        (InventoryFilter(priority=Priority.LOW), ["web-0", "db"]),
        (InventoryFilter(tag="env"), ["web-0", "Web-1", "db"]),
        (InventoryFilter(tag="env=prod"), ["web-0", "db"]),
        (InventoryFilter(tag="env="), []),
        (InventoryFilter(tag="nothing"), []),
        (InventoryFilter(name="*-*", tag="team=a", host="hv-0"), ["web-0"]),
    ],
    ids=str,
)
def test_filter_matches_vms(wanted: InventoryFilter, names: list[str]) -> None:
    matches = wanted.vm_predicate()
    assert [each.name for each in SCOPE.roster if matches(SCOPE, each)] == names


def test_vm_without_a_priority_is_regular() -> None:
    plain = scope("db", vm("db-0"))
    assert InventoryFilter(priority=Priority.REGULAR).vm_predicate()(plain, plain.vm("db-0"))


def test_filter_matches_scopes_by_kind_hold_and_enablement() -> None:
    held = msgspec.structs.replace(SCOPE, hold=Hold(by="ann", at=TEN, reason="audit"), enabled=True)
    for wanted, expected in (
        (InventoryFilter(), (True, True)),
        (InventoryFilter(kind=ScopeKind.STANDALONE), (False, False)),
        (InventoryFilter(held=True), (False, True)),
        (InventoryFilter(held=False), (True, False)),
        (InventoryFilter(enabled=True, held=True), (False, True)),
    ):
        assert (wanted.matches_scope(SCOPE), wanted.matches_scope(held)) == expected
