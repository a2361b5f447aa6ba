"""The fleet state record: its newest value in memory, and its changes."""

import pytest

from forewarn.core.errors import Invalid
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.fleet_state import FLEET_STATE, FleetState, assign_ports, decode, mark_filled
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.main_loop import MainLoop
from forewarn.store.memory import MemoryStore


async def test_state_is_saved_before_it_is_seen_and_loaded_after_a_restart() -> None:
    store = MemoryStore()
    async with store.watch() as changes, tasks_until_exit() as tasks:
        loop = MainLoop(store, tasks, on_followed=lambda: None)
        record = FleetStateRecord(loop)
        await loop.fill(changes)
        assert record.state == FleetState()
        await record.apply(mark_filled)
        await record.apply(lambda state: assign_ports(state, {"web/a": 8001}))
        with pytest.raises(Invalid):
            await record.apply(lambda state: assign_ports(state, {"web/b": 8001}))
        assert record.state == FleetState(filled=True, ports={"web/a": 8001})
    saved = await store.load(FLEET_STATE)
    assert saved is not None
    assert decode(saved.value) == record.state
    async with store.watch() as changes, tasks_until_exit() as tasks:
        loop = MainLoop(store, tasks, on_followed=lambda: None)
        again = FleetStateRecord(loop)
        await loop.fill(changes)
        assert again.state == record.state
