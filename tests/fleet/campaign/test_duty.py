"""The duty to run campaigns: taken, given back, and nothing left under way."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import timedelta

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState
from forewarn.core.errors import Invalid
from forewarn.core.event import EventType, State
from forewarn.core.policy import EMULATOR
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GatePassed, GateRequest
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    MINUTE,
    campaign_spec,
    read_campaign_journal,
    start_campaign,
)
from tests.fleet.fleets import CampaignGatedStore, GatedStore, SharedLease, run_fleet, until
from tests.fleet.test_duty import run_cluster

HOUR = timedelta(hours=1)


async def test_command_while_the_duty_stops_is_journaled_in_order() -> None:
    store, clock = CampaignGatedStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        await start_campaign(fleet, campaign_spec(start_at=TEN + HOUR))
        store.may_save_campaigns.clear()
        clock.set(TEN + HOUR)
        await until(lambda: store.waiting == 1)
        stopping = asyncio.create_task(fleet.campaigns.duty.stop())
        await asyncio.sleep(0)
        pausing = asyncio.create_task(fleet.campaigns.pause(CAMPAIGN_ID, by="bob"))
        await asyncio.sleep(0)
        store.may_save_campaigns.set()
        await asyncio.gather(stopping, pausing)
        await fleet.campaigns.abort(CAMPAIGN_ID, by="bob")
        entries = [row.entry for row in await read_campaign_journal(store)]
        assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
        assert len(entries) == fleet.campaigns.find(CAMPAIGN_ID).entries
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTING
        assert (fleet.campaigns.duty.busy, fleet.campaigns.duty.waiting) == (0, 0)


async def test_halted_duty_clears_no_wave() -> None:
    """Not even one that a VM approves while the service stops."""
    clock = ManualClock(TEN)
    async with run_fleet(web_scope(), clock=clock) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(14 * MINUTE)
        (event,) = fleet.replica.scope("web").events
        fleet.duties.halt()
        await fleet.events.approve("web", event.vms[0], [event.id])
        await until(lambda: fleet.campaigns.duty.busy == 0)
        (event,) = fleet.replica.scope("web").events
        assert (event.state, len(event.approvals), event.cleared) == (State.SCHEDULED, 1, False)


async def test_campaign_continues_by_a_changed_speed() -> None:
    """The gap after its wave ends sixty times sooner."""
    clock = ManualClock(TEN)
    async with run_fleet(web_scope(), clock=clock, policy=EMULATOR) as fleet:
        await start_campaign(fleet, campaign_spec(gap=10 * HOUR))
        await fleet.time.advance(20 * MINUTE)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.RUNNING
        await fleet.emulator.speed.change(60, by="bob")
        await fleet.time.advance(30 * MINUTE)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED


async def test_lowest_speed_ends_neither_campaign_nor_service() -> None:
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        await start_campaign(fleet, campaign_spec(gap=HOUR))
        await fleet.emulator.speed.change(5e-324, by="bob")
        await until(lambda: fleet.campaigns.duty.busy == 0)
        assert (await fleet.campaigns.status(CAMPAIGN_ID)).expected_end is not None
        with pytest.raises(Invalid, match="at most 366 days ahead"):
            await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-5", duration=MINUTE))


async def test_nothing_is_canceled_after_the_duty_was_stopped() -> None:
    store = GatedStore()
    async with run_cluster(web_scope(), store=store) as cluster:
        first, second = cluster.fleets
        await start_campaign(first, campaign_spec())
        await cluster.settle()
        await cluster.give_back()
        record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
        assert record is not None
        await store.save(record.key, None, (), expected=record.revision)
        await until(lambda: not second.campaigns.all())
        await second.campaigns.duty.start()
        assert second.campaigns.duty.busy == 1
        await second.campaigns.duty.stop()
        assert second.campaigns.duty.busy == 0
        assert len(second.replica.scope("web").events) == 1


class HeldGate:
    """A gate that answers when the test says so."""

    gates = ("health",)

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def check(self, request: GateRequest) -> GatePassed:
        """Wait, and let the wave pass."""
        del request
        self.asked += 1
        await self.may_answer.wait()
        return GatePassed()


async def test_answer_of_a_gate_counts_only_in_the_term_that_asked() -> None:
    """The first process asks and loses the lease. The gate answers then, and the second process asks again."""
    store, clock, gates = MemoryStore(), ManualClock(TEN), [HeldGate(), HeldGate()]
    leases = [SharedLease("one"), SharedLease("two")]
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(
                Fleet.run(
                    store=store,
                    platform=SimulatedPlatform(clock),
                    clock=clock,
                    policy=EMULATOR,
                    checker=gate,
                    lease=lease,
                )
            )
            for gate, lease in zip(gates, leases, strict=True)
        ]
        leases[0].is_free.set()
        await until(lambda: first.duties.scheduler.is_running)
        await first.inventory.add_scope(web_scope(), by="test")
        await start_campaign(first, campaign_spec(gate="health"))

        async def pass_time(until_true: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not until_true():
                    clock.set(clock.now() + MINUTE)
                    await asyncio.sleep(0.01)

        await pass_time(lambda: gates[0].asked == 1)
        leases[0].take()
        await until(lambda: not first.duties.scheduler.is_running)
        gates[0].may_answer.set()
        leases[1].is_free.set()
        await pass_time(lambda: gates[1].asked == 1)
        assert not [event for event in second.replica.scope("web").events if event.state is State.STARTED]
        gates[1].may_answer.set()
        await pass_time(lambda: second.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED)


async def test_campaign_of_a_process_with_a_fast_clock_waits_for_the_clock_of_the_holder() -> None:
    store, clock, fast, lease = MemoryStore(), ManualClock(TEN), ManualClock(TEN + HOUR), SharedLease("one")
    async with (
        Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, lease=lease) as holder,
        Fleet.run(
            store=store, platform=SimulatedPlatform(fast), clock=fast, policy=EMULATOR, lease=SharedLease("two")
        ) as other,
    ):
        lease.is_free.set()
        await until(lambda: holder.duties.scheduler.is_running)
        await holder.inventory.add_scope(web_scope(), by="test")
        await until(lambda: other.replica.newest("web")[0] is not None)
        await start_campaign(other, campaign_spec())
        await until(lambda: bool(holder.campaigns.all()))
        await until(lambda: holder.campaigns.duty.waiting == 1)
        assert holder.replica.scope("web").events == ()
        clock.set(TEN + HOUR)
        await until(lambda: bool(holder.replica.scope("web").events))


async def test_campaign_continues_when_its_hosts_are_heard_after_a_restart() -> None:
    """A control node that has just started has heard of no host yet when it takes the duty."""
    store, clock = MemoryStore(), ManualClock(TEN)

    def run() -> AbstractAsyncContextManager[Fleet]:
        platform = SimulatedPlatform(clock)
        return Fleet.run(store=store, platform=platform, clock=clock, policy=EMULATOR, has_hosts=True)

    def states(fleet: Fleet) -> list[State]:
        return [event.state for event in fleet.replica.scope("web").events]

    async with run() as before:
        await before.inventory.add_scope(scope("web", vm("web-0", host="hv-0")), by="test")
        await before.cluster.hosts.claim("hv-0", "process", "a process", {})
        before.cluster.hosts.expect_hosts()
        await start_campaign(before, campaign_spec())
        await until(lambda: states(before) == [State.SCHEDULED])
    clock.set(TEN + HOUR)
    async with run() as after:
        await until(lambda: after.campaigns.duty.busy == 0)
        assert states(after) == [State.SCHEDULED]
        after.cluster.hosts.hear("hv-0", "process")
        after.cluster.hosts.expect_hosts()
        await until(lambda: states(after) == [State.STARTED])


async def test_encoded_scopes_are_kept_only_of_campaigns_that_the_process_runs() -> None:
    async with run_cluster(web_scope()) as cluster:
        first, second = cluster.fleets

        def kept() -> list[list[str]]:
            return [list(fleet.campaigns.duty._encoder._known) for fleet in cluster.fleets]

        await start_campaign(second, campaign_spec())
        await until(lambda: bool(first.replica.scope("web").events))
        await second.campaigns.pause(CAMPAIGN_ID, by="bob")
        await until(lambda: first.campaigns.find(CAMPAIGN_ID).state is CampaignState.PAUSED)
        assert kept() == [[CAMPAIGN_ID], []]
        await cluster.give_back()
        await first.campaigns.resume(CAMPAIGN_ID, by="bob")
        assert kept() == [[], []]
        await first.campaigns.duty.start()
        record = await cluster.store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
        assert record is not None
        await cluster.store.save(record.key, None, (), expected=record.revision)
        await until(lambda: not first.campaigns.all() and first.campaigns.duty.busy == 0)
        assert kept() == [[], []]
