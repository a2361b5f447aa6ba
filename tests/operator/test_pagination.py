"""Pagination of a large fleet: sorted, and without blocking the event loop."""

import pytest

from forewarn.core.scope import Scope, ScopeKind
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.operator.pagination import SortedScopeIds, first_page
from tests.operator.running_api import TEN, run_api


def scope(id_: str) -> Scope:
    return Scope(id=id_, kind=ScopeKind.CLOUD_SERVICE, epoch="e1", changed_at=TEN)


async def test_scope_ids_stay_sorted() -> None:
    async with run_api() as service:
        inventory = service.fleet.inventory
        roll = SortedScopeIds(service.fleet)
        at_first = roll.ids()
        for id_ in ("zoo", "cafe", "again"):
            await inventory.add_scope(scope(id_), by="test")
        await inventory.remove_scope("again", by="test")
        await inventory.remove_scope("shop", by="test")
        await inventory.change_scope("web", by="test", traits=lambda traits: traits)
        later = roll.ids()
        await inventory.remove_scope("zoo", by="test")
        await inventory.add_scope(scope("again"), by="test")
        last = roll.ids()
    assert at_first == ["batch", "db-0", "shop", "web"]
    assert later == ["batch", "cafe", "db-0", "web", "zoo"]
    assert last == ["again", "batch", "cafe", "db-0", "web"]
    assert (list(roll.starting_at("cafe")), list(roll.after("cafe"))) == (last[2:], last[3:])
    assert list(roll.starting_at("cage")) == list(roll.after("cage")) == last[3:]


@pytest.mark.parametrize(("limit", "expected"), [(1, ([0], True)), (3, ([0, 1, 2], False)), (9, ([0, 1, 2], False))])
async def test_page_knows_whether_there_is_more(limit: int, expected: tuple[list[int], bool]) -> None:
    assert await first_page(iterate_gradually(range(3)), limit) == expected
