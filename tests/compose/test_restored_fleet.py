"""Restored fleets: held, with new epochs, and with nothing left that would happen twice."""

from datetime import timedelta

import pytest

from forewarn.clock import SystemClock
from forewarn.compose.restored_fleet import begin_epochs, hold_restored
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR
from forewarn.fleet.errors import SaveFailed
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.fleets import FailingStore
from tests.fleet.host.clusters import quick_platform


async def test_scope_that_cannot_be_saved_is_an_error() -> None:
    store = FailingStore()
    async with Fleet.run(
        store=store, platform=quick_platform(), clock=SystemClock(), policy=EMULATOR, has_duties=False
    ) as fleet:
        await fleet.inventory.add_scope(scope("web", vm("web-0")), by="test")
        store.full = True
        with pytest.raises(SaveFailed):
            await begin_epochs(fleet, "an old backup")
        store.full = False


async def test_fleet_is_held_and_every_scope_has_a_new_epoch_beyond_what_guests_have_seen() -> None:
    progress: list[tuple[int, int]] = []
    async with Fleet.run(
        store=MemoryStore(), platform=quick_platform(), clock=SystemClock(), policy=EMULATOR, has_duties=False
    ) as fleet:
        for name in ("web", "db"):
            await fleet.inventory.add_scope(scope(name, vm(f"{name}-0")), by="test")
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web/web-0", notice=timedelta(hours=1)))
        await fleet.holds.set(by="ann", reason="storm")
        await hold_restored(fleet, "an old backup")
        found = await begin_epochs(
            fleet, "an old backup", shown={"web": 70}, on_progress=lambda done, total: progress.append((done, total))
        )
        assert found == ((), ())
        hold = fleet.holds.current
        assert hold is not None
        assert (hold.by, "an old backup" in hold.reason, "storm" in hold.reason) == ("restore", True, True)
        scopes = [fleet.replica.scope(name) for name in ("web", "db")]
        assert len({"e1", *(each.epoch for each in scopes)}) == 3
        assert scopes[0].incarnation > 10_000 + 70 - 1
        assert progress == [(2, 2)]
