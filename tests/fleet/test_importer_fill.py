"""A fleet file fills an empty fleet once, whatever happens on the way."""

import msgspec
import pytest

from forewarn.core.errors import ScopeTooLarge
from forewarn.core.scope import ApprovalRule, Scope
from forewarn.core.vm import Traits
from forewarn.fleet.errors import AddressInUse
from forewarn.fleet.importer import FILL_CONCURRENCY, FleetFileConflict, fill_fleet
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import scope, vm, web_scope
from tests.fleet.fleets import run_fleet

MANY = [scope(f"s{n}", vm("x")) for n in range(2 * FILL_CONCURRENCY + 7)]


class Crash(Exception):
    """The process ends here."""


def crash(_: int) -> None:
    raise Crash


async def test_all_scopes_exist_and_progress_was_reported() -> None:
    told: list[int] = []
    async with run_fleet() as fleet:
        assert not fleet.inventory.is_filled
        await fill_fleet(fleet, MANY, by="test", on_saved=told.append)
        assert {view.id for view in fleet.replica.views()} == {each.id for each in MANY}
        assert (told, fleet.inventory.is_filled) == ([FILL_CONCURRENCY, 2 * FILL_CONCURRENCY, len(MANY)], True)


async def test_crash_while_filling_leaves_the_fleet_unfilled() -> None:
    store = MemoryStore()
    with pytest.raises(Crash):
        async with run_fleet(store=store) as fleet:
            await fill_fleet(fleet, MANY, by="test", on_saved=crash)
    async with run_fleet(store=store) as fleet:
        assert (fleet.inventory.is_filled, len(list(fleet.replica.views()))) == (False, FILL_CONCURRENCY)
        told: list[int] = []
        await fill_fleet(fleet, MANY, by="test", on_saved=told.append)
        assert (fleet.inventory.is_filled, len(list(fleet.replica.views())), told) == (
            True,
            len(MANY),
            [2 * FILL_CONCURRENCY, len(MANY)],
        )
    async with run_fleet(store=store) as fleet:
        assert fleet.inventory.is_filled


@pytest.mark.parametrize(
    "other",
    [
        [scope("elsewhere", vm("x"))],
        [scope(MANY[0].id, vm("y")), *MANY[1:]],
        [msgspec.structs.replace(MANY[0], approval=ApprovalRule.ALL), *MANY[1:]],
    ],
    ids=["other scopes", "other VMs", "other settings"],
)
async def test_interrupted_filling_is_not_mixed_with_another_file(other: list[Scope]) -> None:
    store = MemoryStore()
    with pytest.raises(Crash):
        async with run_fleet(store=store) as fleet:
            await fill_fleet(fleet, MANY, by="test", on_saved=crash)
    async with run_fleet(store=store) as fleet:
        with pytest.raises(FleetFileConflict, match="start with that file again, or with an empty data directory"):
            await fill_fleet(fleet, other, by="test", on_saved=crash)
        assert (fleet.inventory.is_filled, len(list(fleet.replica.views()))) == (False, FILL_CONCURRENCY)


async def test_refused_scope_leaves_the_fleet_unfilled() -> None:
    tags = {f"{n}": "x" * 500 for n in range(20)}
    large = scope("large", *(msgspec.structs.replace(vm(f"vm-{n}"), traits=Traits(tags=tags)) for n in range(100)))
    async with run_fleet() as fleet:
        with pytest.raises(ScopeTooLarge):
            await fill_fleet(fleet, [web_scope(), large], by="test", on_saved=lambda _: None)
        assert not fleet.inventory.is_filled


async def test_address_that_two_scopes_claim_is_refused() -> None:
    async with run_fleet(web_scope()) as fleet:
        taken = scope("other", vm("x", ip="10.0.0.1"))
        with pytest.raises(AddressInUse):
            await fill_fleet(fleet, [web_scope(), taken], by="test", on_saved=lambda _: None)
