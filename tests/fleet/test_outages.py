"""Outage tracking: time in which the service was down or asleep does not count as silence."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core.event import EventType, State
from forewarn.core.policy import EMULATOR, PRODUCTION
from forewarn.fleet import outages, scheduler
from forewarn.fleet.fleet_state import FLEET_STATE, decode
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import (
    FailingStore,
    SteppedClock,
    request_from_guest,
    run_fleet,
    until,
)

MINUTE = timedelta(minutes=1)


HOUR = timedelta(hours=1)


async def test_downtime_does_not_count_towards_the_idle_timeout() -> None:
    """Twenty hours of service, three days of outage, and four hours of service are an idle time of one day.

    A request may have come in the hour after the one that was saved: that hour is not counted, either.
    """
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, policy=PRODUCTION) as fleet:
        await request_from_guest(fleet)
        await fleet.time.advance(20 * HOUR)
    clock.set(clock.now() + timedelta(days=3))
    async with run_fleet(store=store, clock=clock, policy=PRODUCTION) as fleet:
        await fleet.time.advance(5 * HOUR - MINUTE)
        assert fleet.replica.scope("web").enabled
        await fleet.time.advance(MINUTE)
        assert not fleet.replica.scope("web").enabled


async def test_suspend_of_the_machine_does_not_count_towards_the_idle_timeout() -> None:
    """No scope could poll during the outage: due events start, and no scope gets a new epoch."""
    clock, others = SteppedClock(), [scope(f"db-{n}", vm(f"db-{n}")) for n in range(3)]
    async with run_fleet(web_scope(), *others, clock=clock, policy=PRODUCTION) as fleet:
        for view in fleet.replica.views():
            await request_from_guest(fleet, view.id)
        made = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", *(other.id for other in others)))
        clock.step = timedelta(hours=30)
        await until(lambda: all(fleet.events.find(event)[1].state is State.STARTED for _, event in made))
        assert all(view.scope is not None and view.scope.enabled for view in fleet.replica.views())
        (outage,) = fleet.scopes.rule_context.outages
        assert abs(outage.ended_at - outage.began_at - 30 * HOUR) < MINUTE


async def test_outage_is_measured_from_the_clock_after_a_step_back() -> None:
    """Two hours back and three forward are an outage of three hours."""
    clock = SteppedClock()
    async with run_fleet(web_scope(), clock=clock, policy=PRODUCTION) as fleet:
        for step in (-2 * HOUR, HOUR):
            clock.step = step
            await fleet._outages.record_outage()
        (outage,) = fleet.scopes.rule_context.outages
        assert abs(outage.ended_at - outage.began_at - 3 * HOUR) < MINUTE


async def test_outage_is_saved_before_idle_timeouts_are_evaluated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "FIRST_PAUSE", 0.001)
    clock, store = SteppedClock(), FailingStore()
    async with run_fleet(web_scope(), clock=clock, store=store, policy=PRODUCTION) as fleet:
        await request_from_guest(fleet)
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.full, clock.step = True, timedelta(hours=30)
        await until(lambda: store.refused > 2)
        assert fleet.replica.scope("web").enabled
        store.full = False
        await until(lambda: fleet.events.find(event)[1].state is State.STARTED)
        assert fleet.replica.scope("web").enabled


async def test_heartbeat_is_saved_after_an_idle_timeout_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "HEARTBEAT_INTERVAL", 0.001)
    clock, store = ManualClock(TEN), MemoryStore()
    async with run_fleet(clock=clock, store=store, policy=EMULATOR) as fleet:
        await fleet.time.advance(timedelta(minutes=10))
        fleet.use_policy(msgspec.structs.replace(EMULATOR, idle_after=timedelta(hours=1)))
        async with asyncio.timeout(30):
            while fleet._outages._state_record.state.alive_at != clock.now():  # noqa: ASYNC110 - a heartbeat has no event
                await asyncio.sleep(0.001)


async def test_short_correction_of_the_clock_is_no_outage() -> None:
    clock = SteppedClock()
    async with run_fleet(web_scope(), clock=clock, policy=PRODUCTION) as fleet:
        clock.step = timedelta(seconds=30)
        await fleet._outages.record_outage()
        assert len(fleet.scopes.rule_context.outages) == 0


async def test_service_without_idle_timeout_keeps_no_outages() -> None:
    clock = SteppedClock()
    async with run_fleet(web_scope(), clock=clock, policy=EMULATOR) as fleet:
        clock.step = 30 * HOUR
        await fleet._outages.record_outage()
        assert len(fleet.scopes.rule_context.outages) == 0


async def test_end_of_the_service_is_saved_and_a_full_store_does_not_keep_it_from_ending() -> None:
    store, clock = FailingStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, policy=PRODUCTION) as fleet:
        clock.set(TEN + HOUR)
    assert fleet._outages._state_record.state.alive_at == TEN + HOUR
    async with run_fleet(store=store, clock=clock, policy=PRODUCTION):
        store.full = True
        clock.set(TEN + 2 * HOUR)
    record = await store.load(FLEET_STATE)
    assert record is not None
    assert decode(record.value).alive_at == TEN + HOUR


async def test_start_that_cannot_be_saved_does_not_prevent_it_and_is_saved_later() -> None:
    """A full disk: guests are served, and the time without service counts as an outage when there is room again."""
    store, clock = FailingStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock):
        pass
    store.full = True
    clock = ManualClock(TEN + timedelta(hours=2))
    async with run_fleet(store=store, clock=clock) as fleet:
        before = list(fleet.scopes.rule_context.outages)
        store.full = False
        await fleet._outages.record_outage()
        after = [(outage.began_at, outage.ended_at) for outage in fleet.scopes.rule_context.outages]
        assert (before, after) == ([], [(TEN, TEN + timedelta(hours=2))])
