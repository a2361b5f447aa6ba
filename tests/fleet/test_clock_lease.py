"""The clock lease: one of two processes has the duties, and a former holder saves nothing by time."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.backoff import backoff
from forewarn.core.event import EventType, State
from forewarn.core.policy import EMULATOR
from forewarn.fleet import clock_lease
from forewarn.fleet.errors import LeaseLost
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import Store
from tests.core.sample_scopes import TEN, schedule_request, web_scope
from tests.fleet.fleets import FailingStore, GatedStore, SharedLease, until

HOUR = timedelta(hours=1)


@asynccontextmanager
async def run_two(store: Store, clock: ManualClock) -> AsyncIterator[tuple[list[Fleet], list[SharedLease]]]:
    """Run two fleets with a lease each; nobody holds one yet."""
    leases = [SharedLease("one"), SharedLease("two")]
    platform = SimulatedPlatform(clock)
    async with AsyncExitStack() as stack:
        yield (
            [
                await stack.enter_async_context(
                    Fleet.run(store=store, platform=platform, clock=clock, policy=EMULATOR, lease=lease)
                )
                for lease in leases
            ],
            leases,
        )


async def test_duties_follow_the_lease() -> None:
    async with run_two(MemoryStore(), ManualClock(TEN)) as (fleets, leases):
        assert [fleet.duties.scheduler.is_running for fleet in fleets] == [False, False]
        leases[0].is_free.set()
        await until(lambda: fleets[0].duties.scheduler.is_running)
        assert [fleet.cluster.clock_lease.is_held for fleet in fleets] == [True, False]
        leases[0].take()
        await until(lambda: not fleets[0].duties.scheduler.is_running)
        leases[1].is_free.set()
        await until(lambda: fleets[1].duties.scheduler.is_running)
        term = fleets[0].cluster.leases.find("clock")
        assert term is not None
        assert (term.term, term.holder) == (2, "two")


async def test_suspended_holder_starts_nothing_after_another_has_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    """It has decided to start an event, and another process takes over before that is saved."""
    store, clock = GatedStore(), ManualClock(TEN)
    async with run_two(store, clock) as (fleets, leases):
        leases[0].is_free.set()
        await until(lambda: fleets[0].duties.scheduler.is_running)
        await fleets[0].inventory.add_scope(web_scope(), by="test")
        await fleets[0].events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        store.may_save_scopes.clear()
        clock.set(TEN + HOUR)
        await until(lambda: store.waiting == 1)
        await fleets[1].cluster.leases.take_over("clock", holder="two", process="two", now=TEN)
        store.may_save_scopes.set()
        await until(lambda: "term 1 is now held by two" in caplog.text)
        for fleet in fleets:
            scope, _ = fleet.replica.newest("web")
            assert scope is not None
            assert [event.state for event in scope.events] == [State.SCHEDULED]
        leases[0].take()
        leases[1].is_free.set()
        await until(lambda: fleets[1].replica.scope("web").events[0].state is State.STARTED)


async def test_command_of_a_process_with_a_fast_clock_starts_no_due_event() -> None:
    """Only the holder of the lease starts what is due, by its own clock; an approval starts an event anywhere."""
    store, clock, fast = MemoryStore(), ManualClock(TEN), ManualClock(TEN + HOUR)
    lease = SharedLease("one")
    async with (
        Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, lease=lease) as holder,
        Fleet.run(
            store=store, platform=SimulatedPlatform(fast), clock=fast, policy=EMULATOR, lease=SharedLease("two")
        ) as other,
    ):
        lease.is_free.set()
        await until(lambda: holder.duties.scheduler.is_running)
        await holder.inventory.add_scope(web_scope(), by="test")
        await holder.events.schedule(schedule_request(EventType.REBOOT, "web/web-0"))
        await until(lambda: other.replica.newest("web")[0] == holder.replica.newest("web")[0])
        await other.holds.set(by="ann", reason="check", scope="web")
        await other.holds.release(by="ann", scope="web")
        assert [event.state for event in other.replica.scope("web").events] == [State.SCHEDULED]
        await until(lambda: holder.replica.newest("web")[0] == other.replica.newest("web")[0])
        clock.set(TEN + timedelta(minutes=14))
        await holder.duties.scheduler.wait_idle()
        (event,) = holder.replica.scope("web").events
        assert event.state is State.SCHEDULED
        await other.events.approve("web", "web-0", [event.id])
        assert other.replica.scope("web").events[0].state is State.STARTED


async def test_guards_need_a_valid_lease() -> None:
    async with run_two(MemoryStore(), ManualClock(TEN)) as (fleets, leases):
        with pytest.raises(LeaseLost):
            fleets[0].cluster.clock_lease.guards()
        leases[0].is_free.set()
        await until(lambda: fleets[0].cluster.clock_lease.is_held)
        assert len(fleets[0].cluster.clock_lease.guards()) == 1
        leases[0].is_valid = False  # not renewed in time
        with pytest.raises(LeaseLost, match="does not hold the lease clock"):
            fleets[0].cluster.clock_lease.guards()


class FreeLease(SharedLease):
    """A lease that no other process wants."""

    async def claim(self) -> None:
        """Claim it at once."""
        self.is_free.set()
        await super().claim()


async def test_term_that_cannot_begin_is_tried_again_after_longer_and_longer_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = FailingStore(), ManualClock(TEN)
    pauses: list[float] = []

    def record_pauses(first: float, maximum: float) -> Iterator[float]:
        for pause in backoff(first, maximum):
            pauses.append(pause)
            store.full = len(pauses) < 3
            yield 0.0

    monkeypatch.setattr(clock_lease, "backoff", record_pauses)
    store.full = True
    async with Fleet.run(
        store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, lease=FreeLease("one")
    ) as fleet:
        await until(lambda: fleet.cluster.clock_lease.is_held)
    assert pauses == [0.25, 0.5, 1.0]


async def test_only_process_on_a_store_needs_no_lease() -> None:
    clock = ManualClock(TEN)
    async with Fleet.run(store=MemoryStore(), platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR) as fleet:
        assert fleet.cluster.clock_lease.is_held
        assert fleet.cluster.clock_lease.guards() == {}
