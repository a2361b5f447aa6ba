"""The fleet as a whole: enablement, requests, policies, and going on after a restart."""

import asyncio
import gc
import weakref
from datetime import timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core.errors import KeyConflict
from forewarn.core.event import EventType, Source, State
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, PRODUCTION, Policy
from forewarn.core.scope import ScopeKind
from forewarn.fleet import outages, scheduler
from forewarn.fleet.errors import AddressInUse, PartialSchedule, VmNotFound
from forewarn.fleet.fleet_state import FLEET_STATE
from forewarn.fleet.scopes import ScopeChange
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind, Retention
from forewarn.wire.document import encode_document
from forewarn.wire.protocol import PREVIEW_VERSION
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.fleets import CallbackObserver, FailingStore, SteppedClock, read_journal, run_fleet, until

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def asked(fleet: Fleet, scope_id: str = "web") -> None:
    """Let a guest of the scope ask, as the endpoint does."""
    noted = fleet.last_seen.record_request(fleet.replica.view(scope_id))
    if noted is not None:
        await noted


async def test_first_request_enables_and_the_next_ones_save_nothing() -> None:
    """A scope that asks once a second costs one save an hour."""
    store = FailingStore()
    async with run_fleet(web_scope(), store=store, policy=PRODUCTION) as fleet:
        await asyncio.gather(*(asked(fleet) for _ in range(50)))
        assert fleet.replica.scope("web").enabled
        before = store.saves
        for _ in range(59):
            await fleet.time.advance(MINUTE)
            await asked(fleet)
        moved = store.saves - before
        assert fleet.replica.scope("web").seen_at == TEN
        assert moved == 59  # the manual clock's own position, and nothing else
        await fleet.time.advance(2 * MINUTE)
        await asked(fleet)
        await until(lambda: fleet.replica.scope("web").seen_at == TEN + 61 * MINUTE)


async def test_silence_of_a_day_switches_off_and_requests_that_were_not_saved_count() -> None:
    """The scheduler looks at the newest request, not at the saved one."""
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        await asked(fleet)
        await fleet.time.advance(30 * MINUTE)
        await asked(fleet)
        await fleet.time.advance(24 * HOUR - timedelta(seconds=1))
        assert fleet.replica.scope("web").enabled
        await fleet.time.advance(timedelta(seconds=1))
        assert not fleet.replica.scope("web").enabled
        epoch = fleet.replica.scope("web").epoch
        await asked(fleet)
        again = fleet.replica.scope("web")
        assert (again.enabled, again.incarnation) == (True, 1)
        assert again.epoch != epoch


async def test_time_without_the_service_does_not_count_as_silence() -> None:
    """Twenty hours of service, three days of outage, and four hours of service are one day of silence.

    A request may have come in the hour after the one that was saved: that hour is not counted, either.
    """
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, policy=PRODUCTION) as fleet:
        await asked(fleet)
        await fleet.time.advance(20 * HOUR)
    clock.set(clock.now() + timedelta(days=3))
    async with run_fleet(store=store, clock=clock, policy=PRODUCTION) as fleet:
        await fleet.time.advance(5 * HOUR - MINUTE)
        assert fleet.replica.scope("web").enabled
        await fleet.time.advance(MINUTE)
        assert not fleet.replica.scope("web").enabled


async def test_time_that_the_machine_slept_through_does_not_count_as_silence() -> None:
    """Nobody could ask a service that was not there: what is due happens, and no scope begins anew."""
    clock, others = SteppedClock(), [scope(f"db-{n}", vm(f"db-{n}")) for n in range(3)]
    async with run_fleet(web_scope(), *others, clock=clock, policy=PRODUCTION) as fleet:
        for view in fleet.replica.views():
            await asked(fleet, view.id)
        made = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", *(other.id for other in others)))
        clock.step = timedelta(hours=30)
        await until(lambda: all(fleet.events.find(event)[1].state is State.STARTED for _, event in made))
        assert all(view.scope is not None and view.scope.enabled for view in fleet.replica.views())
        (outage,) = fleet.scopes.rule_context.outages
        assert abs(outage.ended_at - outage.began_at - 30 * HOUR) < MINUTE


async def test_what_was_missed_is_counted_from_the_clock_as_it_was_set_back() -> None:
    """Two hours back and three forward are three hours that nobody could ask in."""
    clock = SteppedClock()
    async with run_fleet(web_scope(), clock=clock, policy=PRODUCTION) as fleet:
        for step in (-2 * HOUR, HOUR):
            clock.step = step
            await fleet._outages.record_outage()
        (outage,) = fleet.scopes.rule_context.outages
        assert abs(outage.ended_at - outage.began_at - 3 * HOUR) < MINUTE


async def test_silence_is_not_counted_before_it_is_saved_that_the_machine_has_slept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "RETRY_DELAY", 0.001)
    clock, store = SteppedClock(), FailingStore()
    async with run_fleet(web_scope(), clock=clock, store=store, policy=PRODUCTION) as fleet:
        await asked(fleet)
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.full, clock.step = True, timedelta(hours=30)
        await until(lambda: store.refused > 2)
        assert fleet.replica.scope("web").enabled
        store.full = False
        await until(lambda: fleet.events.find(event)[1].state is State.STARTED)
        assert fleet.replica.scope("web").enabled


async def test_guests_are_answered_although_nothing_can_be_saved() -> None:
    """A full disk does not blind the guests; the next request tries again."""
    store = FailingStore()
    async with run_fleet(web_scope(), store=store, policy=PRODUCTION) as fleet:
        store.full = True
        await asked(fleet)
        assert not fleet.replica.scope("web").enabled
        store.full = False
        await asked(fleet)
        assert fleet.replica.scope("web").enabled


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


async def test_request_that_one_scope_refuses_late_says_what_the_others_made() -> None:
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


async def test_key_stands_for_one_request_only() -> None:
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


async def test_request_is_answered_again_though_its_standalone_scope_is_gone_with_its_vm() -> None:
    """Bare or in full, the name of a VM that was there is known to whoever repeats the request."""
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


async def test_two_scopes_that_come_at_once_do_not_get_one_address() -> None:
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


async def test_asking_again_after_a_lost_answer_makes_nothing_twice() -> None:
    """A request key and a request id each stand for one request."""
    async with run_fleet(web_scope()) as fleet:
        first = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", key="k1"))
        again = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", number=2, key="k1"))
        same_id = await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert first == again == same_id
        assert len(fleet.replica.scope("web").events) == 1


async def test_request_is_answered_again_though_its_vm_has_left() -> None:
    """The answer to an eviction may be lost, and asked for again when the VM is gone."""
    spare = scope("spare", vm("spare-0"), vm("spare-1"), low_priority=True)
    async with run_fleet(spare) as fleet:
        first = await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", key="k1"))
        await fleet.time.advance(HOUR)
        assert await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", number=2, key="k1")) == first
        with pytest.raises(VmNotFound):
            await fleet.events.schedule(schedule_request(EventType.PREEMPT, "spare-0", number=3, key="k2"))


async def test_scope_for_whose_news_somebody_waits_is_not_silent() -> None:
    """A held request counts as one that is being made all the time."""
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        await asked(fleet)
        view, news = fleet.replica.view("web"), asyncio.Event()
        view.wait_for_change(news.set)
        await fleet.time.advance(timedelta(days=3))
        assert fleet.replica.scope("web").enabled
        view.cancel_wait(news.set)
        await fleet.time.advance(timedelta(days=3))
        assert not fleet.replica.scope("web").enabled


async def test_journal_is_pruned_to_what_is_to_be_kept() -> None:
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


async def test_of_a_scope_that_was_removed_nothing_is_kept_and_it_can_come_again() -> None:
    async with run_fleet(web_scope(), scope("db", vm("db"))) as fleet:
        view = weakref.ref(fleet.replica.view("web"))
        await fleet.inventory.remove_scope("web", by="test")
        await until(lambda: list(fleet.replica._views) == ["db"])
        await until(lambda: gc.collect() is not None and view() is None)
        assert fleet.scopes._loop._gone == {}
        await fleet.inventory.add_scope(web_scope(), by="test")
        assert [view.id for view in fleet.replica.views()] == ["db", "web"]


async def test_policy_that_changes_holds_for_scopes_in_which_nothing_happens() -> None:
    """Nobody waits for a scope's next event to count its silence."""
    async with run_fleet(web_scope(), policy=EMULATOR) as fleet:
        await asked(fleet)
        fleet.use_policy(msgspec.structs.replace(EMULATOR, idle_after=timedelta(hours=1)))
        await fleet.time.advance(timedelta(minutes=59))
        assert fleet.replica.scope("web").enabled
        await fleet.time.advance(timedelta(minutes=1))
        assert not fleet.replica.scope("web").enabled


async def test_service_that_has_begun_to_count_silence_saves_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "HEARTBEAT_INTERVAL", 0.001)
    clock, store = ManualClock(TEN), MemoryStore()
    async with run_fleet(clock=clock, store=store, policy=EMULATOR) as fleet:
        await fleet.time.advance(timedelta(minutes=10))
        fleet.use_policy(msgspec.structs.replace(EMULATOR, idle_after=timedelta(hours=1)))
        async with asyncio.timeout(30):
            while fleet._outages._state_record.state.alive_at != clock.now():  # noqa: ASYNC110 - nobody is told of a heartbeat
                await asyncio.sleep(0.001)


async def test_speed_divides_notice_and_duration_and_leaves_the_clock_alone() -> None:
    """Dates never lie: it is the policy that is quicker."""
    quick = msgspec.structs.replace(Policy(enforce_notice=False, idle_after=None), speed=60.0)
    async with run_fleet(web_scope(), policy=quick) as fleet:
        await asked(fleet)
        ((_, id_),) = await fleet.events.schedule(
            schedule_request(EventType.FREEZE, "web-0", duration=timedelta(seconds=30))
        )
        event = fleet.events.find(id_)[1]
        assert (event.not_before - TEN, event.duration) == (timedelta(seconds=15), timedelta(seconds=0.5))


async def test_task_of_the_fleet_that_breaks_ends_the_service_loudly() -> None:
    """Nothing fails in silence."""

    def broken(change: ScopeChange) -> None:
        raise ZeroDivisionError(change.id)

    async def run() -> None:
        async with run_fleet(web_scope()) as fleet:
            CallbackObserver(fleet, broken)
            await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))

    with pytest.raises(ZeroDivisionError):
        await run()


async def test_event_that_an_older_version_saved_is_shown_as_it_was() -> None:
    """Then an event did not say which of its VMs are role instances: it was read from the VMs."""
    store = MemoryStore()
    instance = msgspec.structs.replace(vm("Front_IN_0"), role_instance=True)
    service = scope("service", instance, vm("web_0"), kind=ScopeKind.CLOUD_SERVICE)
    async with run_fleet(service, store=store) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "Front_IN_0", "web_0", notice=HOUR))
        shown = encode_document(fleet.replica.scope("service"), PREVIEW_VERSION)
    key = RecordKey(RecordKind.SCOPE, "service")
    record = await store.load(key)
    assert record is not None
    saved = msgspec.json.decode(record.value)
    for event in saved["events"]:
        del event["role_instances"]
    await store.save(key, msgspec.json.encode(saved), [], expected=record.revision)
    async with run_fleet(store=store) as fleet:
        assert encode_document(fleet.replica.scope("service"), PREVIEW_VERSION) == shown
        assert b'"Front_IN_0"' in shown
        assert b'"_web_0"' in shown
