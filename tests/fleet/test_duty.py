"""Two processes over one store: both serve requests, one has the duties, and the duties move.

Here they are two fleets in one process; they know of each other only through the store.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.errors import CoreError
from forewarn.core.event import EventType, State
from forewarn.core.impact import ImpactState
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, PRODUCTION
from forewarn.core.scope import Scope, ScopeKind
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalRow, RecordKind, Store
from forewarn.store.sqlite.store import SqliteStore
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, DurablePlatform, campaign_spec, start_campaign
from tests.fleet.campaign.policy_checks import PolicyCheckingStore
from tests.fleet.fleets import CampaignGatedStore, FailingStore, GatedStore, read_journal, until
from tests.support.examples import examples

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Cluster:
    """Two fleets over one store, by one clock and with one platform. The first has the duties."""

    def __init__(
        self, store: Store, clock: ManualClock, platform: DurablePlatform, fleets: tuple[Fleet, Fleet]
    ) -> None:
        self.store = store
        self.clock = clock
        self.platform = platform
        self.fleets = fleets
        self.on_duty: Fleet | None = fleets[0]

    async def settle(self) -> None:
        """Return when all running tasks wait for the clock, and both fleets have everything that is saved."""
        async with asyncio.timeout(60):
            while not self._is_settled():  # noqa: ASYNC110 - it raises no event
                await asyncio.sleep(0)

    def _is_settled(self) -> bool:
        users = [user for fleet in self.fleets for user in fleet.time._users]
        first, second = ({view.id: view.revision for view in fleet.replica.views()} for fleet in self.fleets)
        holds = {fleet.holds.current for fleet in self.fleets}
        return (
            not any(user.busy for user in users)
            and sum(user.waiting for user in users) == self.clock.timer_count
            and first == second
            and len(holds) == 1
        )

    async def advance(self, by: timedelta) -> None:
        """Advance the clock; everything that becomes due happens."""
        await self.settle()
        target = self.clock.now() + by
        while (moment := self.clock.next_timer_at) is not None and moment <= target:
            self.clock.set(max(moment, self.clock.now()))
            await self.settle()
        self.clock.set(target)
        await self.settle()

    async def give_back(self) -> None:
        """Stop the duties in the fleet that has them."""
        if self.on_duty is not None:
            await self.on_duty.duties.stop()
            self.on_duty = None

    async def move(self) -> None:
        """Move the duties to the other fleet."""
        taker = self.fleets[1] if self.on_duty is self.fleets[0] else self.fleets[0]
        await self.give_back()
        await taker.duties.start()
        self.on_duty = taker


@asynccontextmanager
async def run_cluster(*scopes: Scope, store: Store | None = None) -> AsyncIterator[Cluster]:
    """Run two fleets over one store."""
    store, clock = store or MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Fleet.run(store=store, platform=platform, clock=clock, policy=EMULATOR))
        for new in scopes:
            await first.inventory.add_scope(new, by="test")
        second = await stack.enter_async_context(
            Fleet.run(store=store, platform=platform, clock=clock, policy=EMULATOR, has_duties=False)
        )
        yield Cluster(store, clock, platform, (first, second))


@asynccontextmanager
async def open_store(kind: str) -> AsyncIterator[Store]:
    """Open a new store of this kind."""
    if kind == "memory":
        yield MemoryStore()
        return
    with TemporaryDirectory() as directory:
        store = await SqliteStore.open(Path(directory) / "data")
        try:
            yield store
        finally:
            await store.aclose()


def positions(rows: list[JournalRow], *kinds: EntryKind) -> list[int]:
    """Return the journal positions of entries of these kinds."""
    return [row.position for row in rows if row.entry.kind in kinds]


async def test_event_scheduled_by_one_process_is_started_by_the_process_with_the_duty() -> None:
    async with run_cluster(web_scope()) as cluster:
        _, other = cluster.fleets
        await other.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await cluster.advance(15 * MINUTE)
        assert [event.state for event in other.replica.scope("web").events] == [State.STARTED]
        await cluster.advance(MINUTE)
        assert other.replica.scope("web").events == ()
        assert cluster.platform.done == {"web/web-0": [EventType.REBOOT]}


async def test_without_the_duty_nothing_is_started_or_carried_out() -> None:
    """An approval starts an event in any process; carrying it out is the duty of one."""
    async with run_cluster(web_scope()) as cluster:
        await cluster.give_back()
        ((_, due),) = await cluster.fleets[0].events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        ((_, approved),) = await cluster.fleets[0].events.schedule(
            schedule_request(EventType.FREEZE, "web-3", number=2)
        )
        await cluster.fleets[1].events.approve("web", "web-3", [approved])
        await cluster.advance(HOUR)
        found = {event.id: event for event in cluster.fleets[1].replica.scope("web").events}
        assert found[due].state is State.SCHEDULED
        assert [impact.state for impact in found[approved].impacts] == [ImpactState.PENDING]
        await cluster.move()
        await cluster.advance(2 * MINUTE)
        assert cluster.fleets[1].replica.scope("web").events == ()
        assert sorted(cluster.platform.done) == ["web/web-0", "web/web-3"]


async def test_hold_that_one_process_acknowledges_is_obeyed_by_all() -> None:
    """Approvals in one process race with the hold in the other: none starts after it, by the order of the journal."""
    scopes = [scope(f"db-{n}", vm(f"db-{n}"), kind=ScopeKind.STANDALONE) for n in range(40)]
    async with run_cluster(*scopes) as cluster:
        first, other = cluster.fleets
        pairs = await first.events.schedule(schedule_request(EventType.REBOOT, *(each.id for each in scopes)))
        await cluster.settle()
        approving = [asyncio.create_task(first.events.approve(id_, id_, [event])) for id_, event in pairs[:20]]
        await other.holds.set(by="ann", reason="storm")
        held = [view.id for view in first.replica.views() if view.scope and view.scope.events[0].state is State.STARTED]
        await asyncio.gather(*approving, *(first.events.approve(id_, id_, [event]) for id_, event in pairs[20:]))
        await cluster.advance(HOUR)
        rows = await read_journal(cluster.store)
        (hold,) = positions(rows, EntryKind.HELD)
        assert all(position < hold for position in positions(rows, EntryKind.STARTED))
        assert len(positions(rows, EntryKind.STARTED)) <= 20
        assert len(held) <= 20
        assert len(positions(rows, EntryKind.APPROVED)) == 40
        await other.holds.release(by="ann")
        await cluster.advance(2 * MINUTE)
        assert {vm: len(done) for vm, done in cluster.platform.done.items()} == {f"{e.id}/{e.id}": 1 for e in scopes}


async def test_duties_of_one_host_are_those_of_its_vms() -> None:
    async with run_cluster(web_scope()) as cluster:
        first, other = cluster.fleets
        await first.duties.impacts.stop()
        await first.duties.impacts.start(hosts={"hv-0"})
        await first.events.schedule(schedule_request(EventType.REBOOT, "web-0", "web-3"))
        await first.events.schedule(schedule_request(EventType.REBOOT, "web-1", number=2))
        await cluster.advance(20 * MINUTE)
        assert sorted(cluster.platform.done) == ["web/web-0", "web/web-3"]
        assert [event.vms for event in other.replica.scope("web").events] == [("web-1",)]
        await other.duties.impacts.start(hosts={"hv-1"})
        await cluster.advance(2 * MINUTE)
        assert sorted(cluster.platform.done) == ["web/web-0", "web/web-1", "web/web-3"]
        await other.duties.impacts.stop()


async def test_process_without_duties_saves_nothing_by_itself() -> None:
    """Neither at its start nor at its end: its being alive does not mean that due events were started."""
    store, clock = FailingStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    async with Fleet.run(store=store, platform=platform, clock=clock, policy=PRODUCTION, has_duties=False):
        clock.set(TEN + HOUR)
    assert store.saves == 0


async def test_stopping_a_duty_twice_or_before_its_start_has_no_effect() -> None:
    async with run_cluster(web_scope()) as cluster:
        for fleet in cluster.fleets:
            await fleet.duties.stop()
            await fleet.duties.stop()
        assert cluster.clock.timer_count == 0


async def test_starting_a_duty_twice_has_no_further_effect() -> None:
    async with run_cluster(web_scope()) as cluster:
        first, _ = cluster.fleets
        await start_campaign(first, campaign_spec())
        await cluster.settle()
        load, tasks = first.campaigns.duty._fleet_load, asyncio.all_tasks()
        await first.duties.start()
        assert first.campaigns.duty._fleet_load is load, "the runners count in it"
        assert asyncio.all_tasks() == tasks


Fleets = Literal[0, 1]


class Schedule(msgspec.Struct, frozen=True):
    """An event is scheduled through one of them."""

    fleet: Fleets
    vm: int


class Approve(msgspec.Struct, frozen=True):
    """All Scheduled events are approved through one of them, without waiting for it."""

    fleet: Fleets


class SetHold(msgspec.Struct, frozen=True):
    """The fleet is held or released through one of them."""

    fleet: Fleets
    held: bool


class Advance(msgspec.Struct, frozen=True):
    """Time passes and due changes happen; or only the clock moves, without waiting for due changes."""

    minutes: int
    settles: bool


class Move(msgspec.Struct, frozen=True):
    """The duties move to the other one, or no process has them for a while."""

    to_other: bool


class Yield(msgspec.Struct, frozen=True):
    """The event loop runs for a few iterations."""

    rounds: int


Step = Schedule | Approve | SetHold | Advance | Move | Yield
whose = st.sampled_from((0, 1))
steps = st.lists(
    st.one_of(
        st.builds(Schedule, whose, st.integers(0, 5)),
        st.builds(Approve, whose),
        st.builds(SetHold, whose, st.booleans()),
        st.builds(Advance, st.sampled_from((1, 5, 15)), st.booleans()),
        st.builds(Move, st.booleans()),
        st.builds(Yield, st.integers(1, 40)),
    ),
    min_size=3,
    max_size=30,
)


class History:
    """Executes the steps on a cluster. Results that are not awaited at once are awaited at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def do(self, step: Step) -> None:
        cluster = self._cluster
        match step:
            case Schedule(fleet, number):
                self._number += 1
                request = schedule_request(EventType.REBOOT, f"web-{number}", number=self._number)
                await cluster.fleets[fleet].events.schedule(request)
            case Approve(fleet):
                self._tasks.append(asyncio.create_task(self._approve(cluster.fleets[fleet])))
            case SetHold(fleet, held):
                holds = cluster.fleets[fleet].holds
                await (holds.set(by="ann", reason="storm") if held else holds.release(by="ann"))
            case Advance(minutes, settles):
                if settles:
                    await cluster.advance(minutes * MINUTE)
                else:
                    cluster.clock.set(cluster.clock.now() + minutes * MINUTE)
            case Move(to_other):
                await (cluster.move() if to_other else cluster.give_back())
            case Yield(rounds):
                for _ in range(rounds):
                    await asyncio.sleep(0)

    async def _approve(self, fleet: Fleet) -> None:
        for event in fleet.replica.scope("web").events:
            try:
                await fleet.events.approve("web", event.vms[0], [event.id])
            except CoreError:
                continue  # it has ended meanwhile

    async def finish(self) -> int:
        """Let all scheduled events end, and return their number."""
        await asyncio.gather(*self._tasks)
        if self._cluster.on_duty is None:
            await self._cluster.move()
        await self._cluster.fleets[1].holds.release(by="ann")
        await self._cluster.advance(3 * HOUR)
        return self._number


async def play(done: list[Step], kind: str) -> None:
    """Execute the steps, and check the journal and the platform."""
    async with open_store(kind) as store, run_cluster(web_scope(), store=store) as cluster:
        history = History(cluster)
        for step in done:
            await history.do(step)
        scheduled = await history.finish()
        rows = await read_journal(store)
        for fleet in cluster.fleets:
            assert fleet.replica.scope("web").events == ()
    for kind_of_entry in (EntryKind.SCHEDULED, EntryKind.STARTED, EntryKind.IMPACT_BEGUN, EntryKind.COMPLETED):
        counted = Counter(row.entry.event for row in rows if row.entry.kind is kind_of_entry)
        assert (len(counted), set(counted.values())) in ((scheduled, {1}), (0, set())), kind_of_entry
    assert sum(len(work) for work in cluster.platform.done.values()) == scheduled
    is_held = False
    for row in rows:
        if row.key.kind is RecordKind.FLEET and row.entry.kind in (EntryKind.HELD, EntryKind.RELEASED):
            is_held = row.entry.kind is EntryKind.HELD
        assert not (is_held and row.entry.kind is EntryKind.STARTED), f"{row} started under a hold"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_every_event_starts_once_and_none_under_a_hold(kind: str) -> None:
    count = examples(150 if kind == "memory" else 30)

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps)
    def check(done: list[Step]) -> None:
        asyncio.run(play(done, kind))

    check()


async def test_campaign_continues_in_the_process_that_takes_the_duty() -> None:
    """The duty moves every few minutes, also during impacts: each VM is maintained once, within the policy."""
    store = PolicyCheckingStore()
    singles = [scope(f"db-{n}", vm(f"db-{n}"), kind=ScopeKind.STANDALONE) for n in range(4)]
    async with run_cluster(web_scope(), *singles, store=store) as cluster:
        await start_campaign(cluster.fleets[0], campaign_spec())
        for _ in range(40):
            await cluster.advance(timedelta(minutes=2, seconds=30))
            await cluster.move()
        await until(
            lambda: {fleet.campaigns.find(CAMPAIGN_ID).state for fleet in cluster.fleets} == {CampaignState.COMPLETED}
        )
    assert {vm: len(done) for vm, done in cluster.platform.done.items()} == {
        **{f"web/web-{n}": 1 for n in range(6)},
        **{f"db-{n}/db-{n}": 1 for n in range(4)},
    }


async def test_campaign_runs_in_the_process_with_the_duty_and_accepts_commands_in_any() -> None:
    async with run_cluster(web_scope()) as cluster:
        first, other = cluster.fleets
        await start_campaign(other, campaign_spec())
        await until(lambda: bool(first.campaigns.all()))
        await cluster.advance(5 * MINUTE)
        assert len(other.replica.scope("web").events) == 1
        await other.campaigns.pause(CAMPAIGN_ID, by="bob", why="lunch")
        await until(lambda: first.campaigns.find(CAMPAIGN_ID).state is CampaignState.PAUSED)
        await cluster.advance(HOUR)
        assert [event.state for event in first.replica.scope("web").events] == [State.SCHEDULED]
        await other.campaigns.resume(CAMPAIGN_ID, by="bob")
        await until(lambda: first.campaigns.find(CAMPAIGN_ID).state is CampaignState.RUNNING)
        await cluster.advance(3 * HOUR)
        await until(lambda: other.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED)
        assert {wave.state for wave in other.campaigns.find(CAMPAIGN_ID).scopes[0].waves} == {WaveState.DONE}
        rows = await read_journal(cluster.store)
        (paused,) = positions(rows, EntryKind.CAMPAIGN_PAUSED)
        (resumed,) = positions(rows, EntryKind.CAMPAIGN_RESUMED)
        assert not [at for at in positions(rows, EntryKind.STARTED, EntryKind.SCHEDULED) if paused < at < resumed]


async def test_wave_being_saved_does_not_start_after_another_process_paused_its_campaign() -> None:
    """It was cleared on the old record: the store refuses the save, and it is decided again."""
    store = GatedStore()
    async with run_cluster(web_scope(), store=store) as cluster:
        await start_campaign(cluster.fleets[0], campaign_spec())
        await cluster.advance(14 * MINUTE)
        store.may_save_scopes.clear()
        cluster.clock.set(TEN + 15 * MINUTE)
        await until(lambda: store.waiting == 1)
        await cluster.fleets[1].campaigns.pause(CAMPAIGN_ID, by="bob")
        store.may_save_scopes.set()
        await cluster.advance(MINUTE)
        (event,) = cluster.fleets[0].replica.scope("web").events
        assert (event.state, event.cleared) == (State.SCHEDULED, False)


async def test_wave_being_saved_is_not_announced_after_another_process_paused_its_campaign() -> None:
    store = GatedStore()
    async with run_cluster(web_scope(), store=store) as cluster:
        store.may_save_scopes.clear()
        await start_campaign(cluster.fleets[0], campaign_spec())
        await until(lambda: store.waiting == 1)
        await until(lambda: bool(cluster.fleets[1].campaigns.all()))
        await cluster.fleets[1].campaigns.pause(CAMPAIGN_ID, by="bob")
        store.may_save_scopes.set()
        await cluster.advance(MINUTE)
        assert cluster.fleets[0].replica.scope("web").events == ()


async def test_abort_saved_while_the_duty_starts_is_obeyed() -> None:
    """The process that starts the duty reads the old record, and then gets its own save."""
    store = CampaignGatedStore()
    async with run_cluster(web_scope(), store=store) as cluster:
        first, second = cluster.fleets
        await start_campaign(first, campaign_spec())
        await cluster.settle()
        assert len(second.replica.scope("web").events) == 1
        await cluster.give_back()
        store.may_save_campaigns.clear()
        aborting = asyncio.create_task(second.campaigns.abort(CAMPAIGN_ID, by="bob"))
        await until(lambda: store.waiting == 1)
        await second.duties.start()
        cluster.on_duty = second
        await until(lambda: not second.campaigns.duty.busy)
        store.may_save_campaigns.set()
        assert (await aborting).state is CampaignState.ABORTING
        await until(lambda: second.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED)
        assert second.replica.scope("web").events == ()


def is_paused_and_skipped(fleet: Fleet) -> bool:
    """Tell whether a fleet knows of both commands."""
    campaign = fleet.campaigns.find(CAMPAIGN_ID)
    return campaign.state is CampaignState.PAUSED and campaign.scopes[0].wave(1).state is WaveState.SKIPPED


async def test_command_that_was_decided_on_an_old_record_is_decided_again() -> None:
    """Both processes save at the same time. The second one is not refused but decided again."""
    async with run_cluster(web_scope()) as cluster:
        first, second = cluster.fleets
        await start_campaign(first, campaign_spec())
        await cluster.settle()
        await until(lambda: bool(second.campaigns.all()))
        await asyncio.gather(
            second.campaigns.pause(CAMPAIGN_ID, by="bob"),
            first.campaigns.skip(CAMPAIGN_ID, "web", by="alice", why="not this one"),
        )
        for fleet in cluster.fleets:
            await until(partial(is_paused_and_skipped, fleet))
