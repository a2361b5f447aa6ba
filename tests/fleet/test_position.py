"""Positions: what a caller has seen at one process is there before another one answers."""

import asyncio

import pytest

from forewarn.core.errors import Invalid
from forewarn.fleet import position
from forewarn.fleet.errors import PositionNotReached
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import web_scope
from tests.fleet.fleets import run_fleet, until


class SharedMemoryStore(MemoryStore):
    """A store that two fleets of this process share."""

    cell_id = "cell"


async def test_other_process_waits_until_it_has_reached_the_position() -> None:
    store = SharedMemoryStore()
    async with run_fleet(store=store) as one, run_fleet(store=store) as two:
        await one.inventory.add_scope(web_scope(), by="test")
        await two.cluster.positions.wait(one.cluster.positions.current)
        assert two.replica.newest("web")[0] is not None


async def test_position_of_a_change_is_that_of_its_save() -> None:
    store = SharedMemoryStore()
    async with run_fleet(store=store) as fleet:
        positions: list[str] = []
        fleet.scopes.add_observers(lambda _: positions.append(fleet.cluster.positions.current))
        await fleet.inventory.add_scope(web_scope(), by="test")
        assert positions[0] == f"cell-{fleet.replica.newest('web')[1]}", "before the store's watch has brought it"


async def test_position_that_is_not_reached_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position, "WAIT_SECONDS", 0.01)
    async with run_fleet(store=SharedMemoryStore()) as fleet:
        with pytest.raises(PositionNotReached) as refused:
            await fleet.cluster.positions.wait("other-5000, cell-1000")
        assert refused.value.details == {"position": "cell-1000", "current": fleet.cluster.positions.current}


async def test_wait_ends_with_the_change() -> None:
    async with run_fleet(store=SharedMemoryStore()) as fleet:
        number = int(fleet.cluster.positions.current.rpartition("-")[2])
        waiting = asyncio.create_task(fleet.cluster.positions.wait(f"cell-{number + 1}"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await fleet.inventory.add_scope(web_scope(), by="test")
        await until(waiting.done)
        assert waiting.exception() is None


async def test_position_of_other_data_is_not_waited_for() -> None:
    async with run_fleet() as former, run_fleet() as fleet:
        await fleet.cluster.positions.wait(f"{former.cluster.positions.current}999, {fleet.cluster.positions.current}")


@pytest.mark.parametrize(
    "text", ["12", "cell-", "cell-x", "cell-1.5", "cell-²", "x" * 300 + "-1", "cell-1,", "cell-1 2"]
)
async def test_what_is_not_a_position_is_refused(text: str) -> None:
    async with run_fleet() as fleet:
        with pytest.raises(Invalid):
            await fleet.cluster.positions.wait(text)
