"""Speed: notices and work of new events are shorter, existing events keep their times, and a restart keeps it."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from forewarn.clock import SystemClock
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR
from forewarn.fleet.errors import OutcomeUnknown, SaveFailed
from forewarn.fleet.fleet_state import speed_at_start
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, schedule_request, web_scope
from tests.fleet.fleets import FailingStore, UnsureStore, read_journal, run_fleet, until

MINUTE = timedelta(minutes=1)


async def test_speed_applies_to_new_events_only() -> None:
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", number=1))
        await fleet.emulator.speed.change(15, by="ann")
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-1", number=2))
        view = fleet.replica.view("web")
        assert view is not None
        assert view.scope is not None
        assert [event.not_before - TEN for event in view.scope.events] == [15 * MINUTE, MINUTE]


async def test_change_is_journaled_once_and_reported_to_observers() -> None:
    store = MemoryStore()
    seen: list[float] = []
    async with run_fleet(web_scope(), store=store, policy=EMULATOR) as fleet:
        fleet.emulator.speed.observers.append(seen.append)
        for speed in (60, 60, 0.5):
            await fleet.emulator.speed.change(speed, by="ann")
        assert fleet.emulator.speed.current == 0.5
    rows = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.SPEED_CHANGED]
    assert [(entry.by, entry.facts) for entry in rows] == [("ann", {"speed": "60"}), ("ann", {"speed": "0.5"})]
    assert seen == [60, 0.5]


async def test_speed_outlives_a_restart_unless_the_setting_has_changed() -> None:
    store = MemoryStore()
    assert await speed_at_start(store, setting=10) == 10
    async with run_fleet(web_scope(), store=store, policy=msgspec.structs.replace(EMULATOR, speed=10)) as fleet:
        await fleet.emulator.speed.change(60, by="ann")
    assert (await speed_at_start(store, setting=10), await speed_at_start(store, setting=5)) == (60, 5)


async def test_another_policy_keeps_the_speed() -> None:
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        await fleet.emulator.speed.change(60, by="ann")
        fleet.use_policy(msgspec.structs.replace(EMULATOR, user_operations=3))
        assert (fleet.scopes.policy.speed, fleet.scopes.policy.user_operations) == (60, 3)


async def test_speed_that_cannot_be_saved_does_not_apply() -> None:
    store = FailingStore()
    async with run_fleet(web_scope(), store=store, policy=EMULATOR) as fleet:
        store.full = True
        with pytest.raises(SaveFailed):
            await fleet.emulator.speed.change(60, by="ann")
        assert fleet.emulator.speed.current == 1
        store.full = False


async def test_saved_speed_applies_although_the_caller_does_not_hear_of_it() -> None:
    store, seen = UnsureStore(), list[float]()
    store.saves = True
    async with run_fleet(web_scope(), store=store, policy=EMULATOR) as fleet:
        fleet.emulator.speed.observers.append(seen.append)
        store.is_unsure = True
        with pytest.raises(OutcomeUnknown):
            await fleet.emulator.speed.change(60, by="ann")
        store.is_unsure = False
        await until(lambda: fleet.emulator.speed.current == 60)
        cancelled = asyncio.ensure_future(fleet.emulator.speed.change(30, by="ann"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await until(lambda: fleet.emulator.speed.current == 30)
        assert seen == [60, 30]


async def test_speed_applies_in_every_process_whose_settings_have_the_same_speed() -> None:
    store = MemoryStore()
    other_setting = msgspec.structs.replace(EMULATOR, speed=2)
    async with (
        run_fleet(web_scope(), store=store, policy=EMULATOR) as here,
        run_fleet(store=store, policy=EMULATOR) as there,
        run_fleet(store=store, policy=other_setting) as elsewhere,
    ):
        await here.emulator.speed.change(60, by="ann")
        await here.holds.set(by="ann", reason="reaches the others after the speed")
        await until(lambda: all(fleet.holds.current is not None for fleet in (there, elsewhere)))
        assert (there.emulator.speed.current, elsewhere.emulator.speed.current) == (60, 2)
    async with run_fleet(store=store, policy=EMULATOR) as later:
        assert later.emulator.speed.current == 60


async def test_change_in_a_process_with_another_setting_keeps_the_speed() -> None:
    store, seen = MemoryStore(), list[float]()
    other_setting = msgspec.structs.replace(EMULATOR, speed=2)
    async with (
        run_fleet(web_scope(), store=store, policy=EMULATOR, clock=SystemClock()) as here,
        run_fleet(store=store, policy=other_setting) as elsewhere,
    ):
        here.emulator.speed.observers.append(seen.append)
        for speed, other in ((60, 30), (1, 20)):
            await here.emulator.speed.change(speed, by="ann")
            await elsewhere.emulator.speed.change(other, by="bob")
            await elsewhere.holds.set(by="bob", reason="reaches the others after the speed")
            await until(lambda: here.holds.current is not None)
            await elsewhere.holds.release(by="bob")
            await until(lambda: here.holds.current is None)
            assert (here.emulator.speed.current, elsewhere.emulator.speed.current) == (speed, other)
            assert here.emulator.speed.is_time_virtual
        assert seen == [60, 1]


async def test_saved_speed_does_not_apply_where_it_cannot_change() -> None:
    store, clock = MemoryStore(), SystemClock()
    async with (
        run_fleet(web_scope(), store=store, policy=EMULATOR) as emulator,
        Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR) as production,
    ):
        await emulator.emulator.speed.change(60, by="ann")
        await emulator.holds.set(by="ann", reason="reaches the other after the speed")
        await until(lambda: production.holds.current is not None)
        assert (production.emulator.speed.current, production.emulator.speed.is_time_virtual) == (1, False)
        with pytest.raises(Invalid, match="only in the emulator"):
            await production.emulator.speed.change(60, by="ann")


@pytest.mark.parametrize("speed", [0, -1, 1_000_001, float("nan"), float("inf")])
async def test_impossible_speed_is_refused(speed: float) -> None:
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        with pytest.raises(Invalid, match="speed must be"):
            await fleet.emulator.speed.change(speed, by="ann")


async def test_time_is_virtual_with_a_manual_clock_or_a_chosen_speed() -> None:
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        assert fleet.emulator.speed.is_time_virtual
    async with run_fleet(web_scope(), policy=EMULATOR, clock=SystemClock()) as fleet:
        seen = [fleet.emulator.speed.is_time_virtual]
        for speed in (60, 1):  # at speed 1 again, it stays possible to change it
            await fleet.emulator.speed.change(speed, by="ann")
            seen.append(fleet.emulator.speed.is_time_virtual)
    assert seen == [False, True, True]
