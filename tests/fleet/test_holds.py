"""Holds on the whole fleet: nothing planned starts after one was acknowledged."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core.change import Change
from forewarn.core.event import EventType, State
from forewarn.fleet import hold_record
from forewarn.fleet.errors import EventNotFound
from forewarn.fleet.event_loop import SLICE_ITEMS
from forewarn.fleet.hold_record import FLEET_HOLD
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import GatedStore, run_fleet, until

HOUR = timedelta(hours=1)


async def test_fleet_hold_stops_planned_events_until_its_release() -> None:
    """Everything that became due meanwhile starts on release."""
    async with run_fleet(web_scope(), scope("other", vm("other-0"))) as fleet:
        await fleet.holds.set(by="operator:test", reason="storm")
        pairs = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "other-0"))
        ((_, restart),) = await fleet.events.schedule(
            schedule_request(EventType.REBOOT, "web-1", number=2, failure=True)
        )
        await fleet.time.advance(HOUR)
        assert [fleet.events.find(id_)[1].state for _, id_ in pairs] == [State.SCHEDULED, State.SCHEDULED]
        with pytest.raises(EventNotFound):
            fleet.events.find(restart)
        await fleet.holds.release(by="operator:test")
        await until(lambda: all(fleet.events.find(id_)[1].state is State.STARTED for _, id_ in pairs))


async def test_holds_are_listed_with_that_of_the_fleet_first() -> None:
    async with run_fleet(scope("b", vm("b-0")), scope("a", vm("a-0")), scope("c", vm("c-0"))) as fleet:
        assert list(fleet.holds.all()) == []
        for name in ("b", "a"):
            await fleet.holds.set(by="operator:test", reason=f"of {name}", scope=name)
        await fleet.holds.set(by="operator:test", reason="storm")
        assert [(held, hold.reason) for held, hold in fleet.holds.all()] == [
            (None, "storm"),
            ("a", "of a"),
            ("b", "of b"),
        ]


async def test_nothing_starts_after_a_hold_was_acknowledged() -> None:
    """A start that was being decided when the hold was set is decided again."""
    async with run_fleet(web_scope()) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        approving = [asyncio.ensure_future(fleet.events.approve("web", "web-0", [id_]))]
        approving += [
            asyncio.ensure_future(fleet.scopes.apply("web", lambda value: Change(value, (), None)))
            for _ in range(50 * SLICE_ITEMS)
        ]
        await fleet.holds.set(by="operator:test", reason="storm")
        assert not any(one.done() for one in approving), "the hold came while it was decided"
        await asyncio.gather(*approving)
        event = fleet.events.find(id_)[1]
        assert (event.state, len(event.approvals)) == (State.SCHEDULED, 1)


async def test_start_being_saved_is_refused_after_the_hold_was_acknowledged() -> None:
    """It was decided on the old hold record: the store refuses the save, and it is decided again."""
    store = GatedStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.may_save_scopes.clear()
        approving = asyncio.ensure_future(fleet.events.approve("web", "web-0", [id_]))
        await until(lambda: store.waiting == 1)
        await fleet.holds.set(by="operator:test", reason="storm")
        store.may_save_scopes.set()
        await approving
        event = fleet.events.find(id_)[1]
        assert (event.state, len(event.approvals)) == (State.SCHEDULED, 1)
        assert fleet.metrics.conflicts == 1


async def test_event_approved_under_a_hold_starts_after_a_crash_between_release_and_start() -> None:
    """An approved event without blockers is due now, not at its not_before."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        await fleet.holds.set(by="operator:test", reason="storm")
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", notice=timedelta(days=2)))
        await fleet.events.approve("web", "web-0", [id_])
    record = await store.load(FLEET_HOLD)
    assert record is not None
    released = msgspec.structs.replace(hold_record.decode(record.value), hold=None)
    await store.save(FLEET_HOLD, hold_record.encode(released), (), expected=record.revision)
    async with run_fleet(store=store, clock=clock) as fleet:
        await until(lambda: fleet.events.find(id_)[1].state is State.STARTED)


async def test_hold_survives_a_restart() -> None:
    """The fleet state is a record like any other."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.holds.set(by="operator:test", reason="storm")
    async with run_fleet(store=store) as fleet:
        assert fleet.scopes.rule_context.hold is not None
        assert fleet.scopes.rule_context.hold.reason == "storm"
