"""The fleet as a whole: enablement, requests, policies, and going on after a restart."""

import asyncio
import gc
import weakref
from datetime import timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock, SystemClock
from forewarn.core.errors import KeyConflict
from forewarn.core.event import EventType, Source, State
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.scope import ScopeKind
from forewarn.fleet import main_loop
from forewarn.fleet.campaign.duty import CampaignDuty
from forewarn.fleet.errors import AddressInUse, PartialSchedule, VmNotFound
from forewarn.fleet.fleet_state import FLEET_STATE
from forewarn.fleet.impacts import Impacts
from forewarn.fleet.log_observer import LogObserver
from forewarn.fleet.metrics import MetricsObserver
from forewarn.fleet.replica import LongPollObserver, RosterObservers
from forewarn.fleet.scheduler import Scheduler
from forewarn.fleet.scopes import ScopeChange
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import Retention
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import (
    CallbackObserver,
    FailingStore,
    read_journal,
    request_from_guest,
    run_fleet,
    until,
)

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def test_due_event_starts_when_the_disk_has_room_again() -> None:
    """What became due while nothing could be saved is not forgotten."""
    store, clock = FailingStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.full = True
        clock.set(TEN + HOUR)
        await asyncio.sleep(0)
        assert fleet.events.find(id_)[1].state is State.SCHEDULED
        store.full = False
        await until(lambda: fleet.events.find(id_)[1].state is State.STARTED)


async def test_partial_schedule_names_the_created_events() -> None:
    """Both scopes agreed when asked; then another request took the only place in one of them."""
    single = msgspec.structs.replace(EMULATOR, user_operations=1)
    async with run_fleet(web_scope(), scope("other", vm("other-0")), policy=single) as fleet:
        first, second = await asyncio.gather(
            fleet.events.schedule(schedule_request(EventType.REBOOT, "other-0", source=Source.USER)),
            fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", "other-0", number=2, source=Source.USER)),
            return_exceptions=True,
        )
        assert isinstance(first, tuple)
        assert isinstance(second, PartialSchedule)
        (made,) = second.created
        assert fleet.events.find(made.removeprefix("web/"))[1].vms == ("web-0",)


async def test_key_can_be_used_for_one_request_only() -> None:
    """The same key for anything else is refused, wherever its VMs are, and changes nothing."""
    async with run_fleet(web_scope(), scope("other", vm("other-0"))) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", key="k1"))
        for other in (
            schedule_request(EventType.REBOOT, "web-1", number=2, key="k1"),
            schedule_request(EventType.REBOOT, "other-0", number=3, key="k1"),
            schedule_request(EventType.FREEZE, "web-0", number=4, key="k1"),
        ):
            with pytest.raises(KeyConflict, match="k1"):
                await fleet.events.schedule(other)
        assert [len(view.scope.events) for view in fleet.replica.views() if view.scope] == [1, 0]


async def test_repeated_request_is_answered_after_its_standalone_scope_was_removed() -> None:
    """A repeated request may name a removed VM by its bare or its full name."""
    alone = scope("alone", vm("alone"), kind=ScopeKind.STANDALONE)
    async with run_fleet(alone, web_scope()) as fleet:
        both = ("alone/alone", "web-0")
        first = await fleet.events.schedule(schedule_request(EventType.TERMINATE, *both, key="k1"))
        await fleet.time.advance(HOUR)
        again = await fleet.events.schedule(schedule_request(EventType.TERMINATE, *both, number=2, key="k1"))
        assert again == tuple(pair for pair in first if pair[0] == "web")


async def test_event_that_became_due_while_the_service_was_down_starts_at_once() -> None:
    """After a restart the scheduler continues with due events."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
    clock.set(TEN + HOUR)
    async with run_fleet(store=store, clock=clock) as fleet:
        await until(lambda: fleet.events.find(id_)[1].state is State.STARTED)


async def test_clock_step_back_delays_and_never_reorders() -> None:
    """The journal's times never go back within a scope."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store, clock=ManualClock(TEN)) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.time.advance(20 * MINUTE)
    async with run_fleet(store=store, clock=ManualClock(TEN - HOUR)) as fleet:
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-1", number=2))
        assert fleet.events.find(id_)[1].not_before == TEN + 31 * MINUTE
    times = [row.entry.at for row in await read_journal(store) if row.key != FLEET_STATE]
    assert times == sorted(times)


async def test_two_scopes_created_concurrently_do_not_get_the_same_address() -> None:
    """A claim holds while it is being saved."""
    async with run_fleet(web_scope()) as fleet:
        answers = await asyncio.gather(
            fleet.inventory.add_scope(scope("one", vm("a", ip="10.9.9.9")), by="test"),
            fleet.inventory.add_scope(scope("two", vm("b", ip="10.9.9.9")), by="test"),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [type(None), AddressInUse]


async def test_taken_address_is_refused() -> None:
    """Addresses are unique per network."""
    async with run_fleet(web_scope()) as fleet:
        with pytest.raises(AddressInUse, match="belongs to web/web-0"):
            await fleet.inventory.add_scope(scope("thief", vm("thief", ip="10.0.0.1")), by="test")
        await fleet.inventory.add_scope(scope("other-net", vm("twin", ip="10.0.0.1", network="blue")), by="test")


async def test_repeated_request_creates_nothing() -> None:
    """A request key and a request id each stand for one request."""
    async with run_fleet(web_scope()) as fleet:
        first = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", key="k1"))
        again = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", number=2, key="k1"))
        same_id = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert first == again == same_id
        assert len(fleet.replica.scope("web").events) == 1


async def test_repeated_request_is_answered_after_its_vm_has_left() -> None:
    """The answer to an eviction may be lost, and asked for again when the VM is gone."""
    spare = scope("spare", vm("spare-0"), vm("spare-1"), low_priority=True)
    async with run_fleet(spare) as fleet:
        first = await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", key="k1"))
        await fleet.time.advance(HOUR)
        assert await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", number=2, key="k1")) == first
        with pytest.raises(VmNotFound):
            await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", number=3, key="k2"))


async def test_journal_is_pruned_to_its_retention() -> None:
    """A service that has just started brings the journal within its bounds."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        for number in range(20):
            await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", number=number))
    keep = Retention(rows=5)
    async with Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, retention=keep):
        async with asyncio.timeout(60):
            while len(rows := await read_journal(store)) > 5:  # noqa: ASYNC110 - pruning raises no event
                await asyncio.sleep(0)
    assert [row.entry.kind for row in rows] == [EntryKind.SCHEDULED] * 5


async def test_nothing_is_kept_of_a_removed_scope_and_it_can_be_created_again() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db"))) as fleet:
        view = weakref.ref(fleet.replica.view("web"))
        await fleet.inventory.remove_scope("web", by="test")
        await until(lambda: list(fleet.replica._views) == ["db"])
        await until(lambda: gc.collect() is not None and view() is None)
        assert fleet.scopes._loop._gone == {}
        await fleet.inventory.add_scope(web_scope(), by="test")
        assert [view.id for view in fleet.replica.views()] == ["db", "web"]


async def test_changed_policy_applies_to_idle_scopes() -> None:
    """The idle timeout is evaluated without waiting for the scope's next event."""
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        await request_from_guest(fleet)
        fleet.use_policy(msgspec.structs.replace(EMULATOR, idle_after=timedelta(hours=1)))
        await fleet.time.advance(timedelta(minutes=59))
        assert fleet.replica.scope("web").enabled
        await fleet.time.advance(timedelta(minutes=1))
        assert not fleet.replica.scope("web").enabled


async def test_speed_divides_notice_and_duration_but_not_the_clock() -> None:
    """The clock is real; only the durations of the policy are divided."""
    quick = msgspec.structs.replace(Policy(enforce_notice=False, idle_after=None), speed=60.0)
    async with run_fleet(web_scope(), policy=quick) as fleet:
        await request_from_guest(fleet)
        ((_, id_),) = await fleet.events.schedule(
            schedule_request(EventType.FREEZE, "web-0", duration=timedelta(seconds=30))
        )
        event = fleet.events.find(id_)[1]
        assert (event.not_before - TEN, event.duration) == (timedelta(seconds=15), timedelta(seconds=0.5))


async def test_observers_of_scopes_are_in_the_documented_order() -> None:
    names = {
        "timers": Scheduler,
        "impacts": Impacts,
        "campaigns": CampaignDuty,
        "metrics": MetricsObserver,
        "logs": LogObserver,
        "changes of rosters": RosterObservers,
        "long polls of guests": LongPollObserver,
    }
    assert f"{', '.join(names)} (`fleet.service`" in " ".join((main_loop.__doc__ or "").split())
    async with run_fleet(clock=SystemClock()) as fleet:
        owners = [getattr(observer, "__self__", None) for observer in fleet.scopes.observers]
    assert list(map(type, owners)) == list(names.values())


async def test_fleet_has_few_parts() -> None:
    """A new part belongs behind one of these."""
    async with run_fleet() as fleet:
        members = {name for name in (*vars(fleet), *vars(Fleet)) if not name.startswith("_")}
    parts = {"inventory", "events", "holds", "campaigns", "tokens", "journal", "time", "cluster", "duties", "emulator"}
    guests = {"last_seen", "ports"}
    essentials = {"clock", "replica", "scopes", "metrics", "health"}
    assert members == parts | guests | essentials | {"run", "use_policy", "start_task", "cancel_tasks"}


async def test_failed_task_of_the_fleet_stops_the_service_with_an_error() -> None:
    """Nothing fails in silence."""

    def broken(change: ScopeChange) -> None:
        raise ZeroDivisionError(change.id)

    async def run() -> None:
        async with run_fleet(web_scope()) as fleet:
            CallbackObserver(fleet, broken)
            await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))

    with pytest.raises(ZeroDivisionError):
        await run()


async def test_control_node_starts_nothing_before_it_has_heard_of_a_host() -> None:
    """What is due when it starts waits, although it does not listen to hosts yet."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(scope("web", vm("web-0", host="hv-0")), store=store, clock=clock) as fleet:
        await fleet.cluster.hosts.claim("hv-0", "p", "a process", {})
        ((_, id_),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
    clock.set(TEN + HOUR)
    async with Fleet.run(
        store=store, platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR, has_hosts=True
    ) as fleet:
        await until(lambda: fleet.duties.scheduler.waiting == fleet.duties.scheduler.busy == 0)
        assert fleet.events.find(id_)[1].state is State.SCHEDULED
        fleet.cluster.hosts.hear("hv-0", "p")
        fleet.cluster.hosts.expect_hosts()
        await until(lambda: fleet.events.find(id_)[1].state is State.STARTED)
