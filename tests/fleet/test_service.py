"""The fleet as a whole: enablement, holds, manual time, ports, and going on after a restart."""

import asyncio
import gc
import weakref
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock, SystemClock
from forewarn.core.change import Change
from forewarn.core.errors import Invalid, KeyConflict
from forewarn.core.event import EventType, Source, State
from forewarn.core.impact import Retry
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.policy import EMULATOR, PRODUCTION, Policy
from forewarn.core.scope import ScopeKind
from forewarn.fleet import hold_record, outages, scheduler
from forewarn.fleet.errors import AddressInUse, EventNotFound, ManualTimeUnavailable, PartialSchedule, VmNotFound
from forewarn.fleet.event_loop import SLICE_ITEMS
from forewarn.fleet.fleet_state import FLEET_STATE, manual_clock_start
from forewarn.fleet.hold_record import FLEET_HOLD
from forewarn.fleet.scopes import ScopeChange
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import NO_GUARDS, Guards, RecordKey, RecordKind, Retention
from forewarn.wire.document import encode_document
from forewarn.wire.protocol import PREVIEW_VERSION
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.campaign.campaigns import campaign_spec, start_campaign
from tests.fleet.fleets import CallbackObserver, FailingStore, SteppedClock, read_journal, run_fleet, until

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class GatedStore(MemoryStore):
    """A store that saves scopes only when it may; all else at once."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save_scopes = asyncio.Event()
        self.may_save_scopes.set()
        self.waiting = 0

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Wait where it must, then save."""
        if key.kind is RecordKind.SCOPE:
            self.waiting += 1
            await self.may_save_scopes.wait()
            self.waiting -= 1
        return await super().save(key, value, entries, expected=expected, guards=guards)


async def asked(fleet: Fleet, scope_id: str = "web") -> None:
    """Let a guest of the scope ask, as the endpoint does."""
    noted = fleet.record_request(fleet.replica.view(scope_id))
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
            await fleet.advance(MINUTE)
            await asked(fleet)
        moved = store.saves - before
        assert fleet.replica.scope("web").seen_at == TEN
        assert moved == 59  # the manual clock's own position, and nothing else
        await fleet.advance(2 * MINUTE)
        await asked(fleet)
        await until(lambda: fleet.replica.scope("web").seen_at == TEN + 61 * MINUTE)


async def test_silence_of_a_day_switches_off_and_requests_that_were_not_saved_count() -> None:
    """The scheduler looks at the newest request, not at the saved one."""
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        await asked(fleet)
        await fleet.advance(30 * MINUTE)
        await asked(fleet)
        await fleet.advance(24 * HOUR - timedelta(seconds=1))
        assert fleet.replica.scope("web").enabled
        await fleet.advance(timedelta(seconds=1))
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
        await fleet.advance(20 * HOUR)
    clock.set(clock.now() + timedelta(days=3))
    async with run_fleet(store=store, clock=clock, policy=PRODUCTION) as fleet:
        await fleet.advance(5 * HOUR - MINUTE)
        assert fleet.replica.scope("web").enabled
        await fleet.advance(MINUTE)
        assert not fleet.replica.scope("web").enabled


async def test_time_that_the_machine_slept_through_does_not_count_as_silence() -> None:
    """Nobody could ask a service that was not there: what is due happens, and no scope begins anew."""
    clock, others = SteppedClock(), [scope(f"db-{n}", vm(f"db-{n}")) for n in range(3)]
    async with run_fleet(web_scope(), *others, clock=clock, policy=PRODUCTION) as fleet:
        for view in fleet.replica.views():
            await asked(fleet, view.id)
        made = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", *(other.id for other in others)))
        clock.step = timedelta(hours=30)
        await until(lambda: all(fleet.find_event(event)[1].state is State.STARTED for _, event in made))
        assert all(view.scope is not None and view.scope.enabled for view in fleet.replica.views())
        (outage,) = fleet.rule_context.outages
        assert abs(outage.ended_at - outage.began_at - 30 * HOUR) < MINUTE


async def test_what_was_missed_is_counted_from_the_clock_as_it_was_set_back() -> None:
    """Two hours back and three forward are three hours that nobody could ask in."""
    clock = SteppedClock()
    async with run_fleet(web_scope(), clock=clock, policy=PRODUCTION) as fleet:
        for step in (-2 * HOUR, HOUR):
            clock.step = step
            await fleet._outages.record_outage()
        (outage,) = fleet.rule_context.outages
        assert abs(outage.ended_at - outage.began_at - 3 * HOUR) < MINUTE


async def test_silence_is_not_counted_before_it_is_saved_that_the_machine_has_slept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "RETRY_DELAY", 0.001)
    clock, store = SteppedClock(), FailingStore()
    async with run_fleet(web_scope(), clock=clock, store=store, policy=PRODUCTION) as fleet:
        await asked(fleet)
        ((_, event),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.full, clock.step = True, timedelta(hours=30)
        await until(lambda: store.refused > 2)
        assert fleet.replica.scope("web").enabled
        store.full = False
        await until(lambda: fleet.find_event(event)[1].state is State.STARTED)
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
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.full = True
        clock.set(TEN + HOUR)
        await asyncio.sleep(0)
        assert fleet.find_event(id_)[1].state is State.SCHEDULED
        store.full = False
        await until(lambda: fleet.find_event(id_)[1].state is State.STARTED)


async def test_hold_on_the_whole_fleet_stops_what_is_planned_and_release_lets_it_go() -> None:
    """Everything that became due meanwhile starts on release."""
    async with run_fleet(web_scope(), scope("other", vm("other-0"))) as fleet:
        await fleet.hold(by="operator:test", reason="storm")
        pairs = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", "other-0"))
        ((_, restart),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-1", number=2, failure=True))
        await fleet.advance(HOUR)
        assert [fleet.find_event(id_)[1].state for _, id_ in pairs] == [State.SCHEDULED, State.SCHEDULED]
        with pytest.raises(EventNotFound):
            fleet.find_event(restart)
        await fleet.release(by="operator:test")
        await until(lambda: all(fleet.find_event(id_)[1].state is State.STARTED for _, id_ in pairs))


async def test_nothing_starts_after_a_hold_was_acknowledged() -> None:
    """Not even what was being decided when the hold came: it is decided anew."""
    async with run_fleet(web_scope()) as fleet:
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        approving = [asyncio.ensure_future(fleet.approve("web", "web-0", [id_]))]
        approving += [
            asyncio.ensure_future(fleet.apply("web", lambda value: Change(value, (), None)))
            for _ in range(50 * SLICE_ITEMS)
        ]
        await fleet.hold(by="operator:test", reason="storm")
        assert not any(one.done() for one in approving), "the hold came while it was decided"
        await asyncio.gather(*approving)
        event = fleet.find_event(id_)[1]
        assert (event.state, len(event.approvals)) == (State.SCHEDULED, 1)


async def test_what_is_on_its_way_to_the_disk_does_not_start_after_the_hold_was_acknowledged() -> None:
    """It was decided on the hold as it was before: the store refuses it, and it is decided again."""
    store = GatedStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        store.may_save_scopes.clear()
        approving = asyncio.ensure_future(fleet.approve("web", "web-0", [id_]))
        await until(lambda: store.waiting == 1)
        await fleet.hold(by="operator:test", reason="storm")
        store.may_save_scopes.set()
        await approving
        event = fleet.find_event(id_)[1]
        assert (event.state, len(event.approvals)) == (State.SCHEDULED, 1)
        assert fleet.metrics.conflicts == 1


async def test_event_approved_under_a_hold_starts_after_a_crash_between_release_and_start() -> None:
    """The alarm of an approved event that nothing holds is now, not its not_before."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        await fleet.hold(by="operator:test", reason="storm")
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", notice=timedelta(days=2)))
        await fleet.approve("web", "web-0", [id_])
    record = await store.load(FLEET_HOLD)
    assert record is not None
    released = msgspec.structs.replace(hold_record.decode(record.value), hold=None)
    await store.save(FLEET_HOLD, hold_record.encode(released), (), expected=record.revision)
    async with run_fleet(store=store, clock=clock) as fleet:
        await until(lambda: fleet.find_event(id_)[1].state is State.STARTED)


async def test_request_that_one_scope_refuses_late_says_what_the_others_made() -> None:
    """Both scopes agreed when asked; then another request took the only place in one of them."""
    single = msgspec.structs.replace(EMULATOR, user_operations=1)
    async with run_fleet(web_scope(), scope("other", vm("other-0")), policy=single) as fleet:
        first, second = await asyncio.gather(
            fleet.schedule(schedule_request(EventType.REBOOT, "other-0", source=Source.USER)),
            fleet.schedule(schedule_request(EventType.REBOOT, "web-0", "other-0", number=2, source=Source.USER)),
            return_exceptions=True,
        )
        assert isinstance(first, tuple)
        assert isinstance(second, PartialSchedule)
        (made,) = second.created
        assert fleet.find_event(made.removeprefix("web/"))[1].vms == ("web-0",)


async def test_key_stands_for_one_request_only() -> None:
    """The same key for anything else is refused, wherever its VMs are, and changes nothing."""
    async with run_fleet(web_scope(), scope("other", vm("other-0"))) as fleet:
        await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", key="k1"))
        for other in (
            schedule_request(EventType.REBOOT, "web-1", number=2, key="k1"),
            schedule_request(EventType.REBOOT, "other-0", number=3, key="k1"),
            schedule_request(EventType.FREEZE, "web-0", number=4, key="k1"),
        ):
            with pytest.raises(KeyConflict, match="k1"):
                await fleet.schedule(other)
        assert [len(view.scope.events) for view in fleet.replica.views() if view.scope] == [1, 0]


async def test_request_is_answered_again_though_its_standalone_scope_is_gone_with_its_vm() -> None:
    """Bare or in full, the name of a VM that was there is known to whoever repeats the request."""
    alone = scope("alone", vm("alone"), kind=ScopeKind.STANDALONE)
    async with run_fleet(alone, web_scope()) as fleet:
        both = ("alone/alone", "web-0")
        first = await fleet.schedule(schedule_request(EventType.TERMINATE, *both, key="k1"))
        await fleet.advance(HOUR)
        again = await fleet.schedule(schedule_request(EventType.TERMINATE, *both, number=2, key="k1"))
        assert again == tuple(pair for pair in first if pair[0] == "web")


async def test_hold_survives_a_restart() -> None:
    """The fleet state is a record like any other."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.hold(by="operator:test", reason="storm")
    async with run_fleet(store=store) as fleet:
        assert fleet.rule_context.hold is not None
        assert fleet.rule_context.hold.reason == "storm"


async def test_advance_runs_everything_on_the_way_at_its_own_moment() -> None:
    """One leap of an hour gives the same journal as many small steps."""

    async def play(*steps: timedelta) -> list[tuple[datetime, EntryKind, tuple[str, ...]]]:
        store = MemoryStore()
        async with run_fleet(web_scope(), store=store) as fleet:
            await fleet.schedule(schedule_request(EventType.REBOOT, *(f"web-{n}" for n in range(6))))
            for step in steps:
                await fleet.advance(step)
        return [
            (row.entry.at, row.entry.kind, row.entry.vms) for row in await read_journal(store) if row.key != FLEET_STATE
        ]

    leap = await play(HOUR)
    assert leap == await play(*[timedelta(seconds=30)] * 120)
    ended = [(at - TEN, vms) for at, did, vms in leap if did is EntryKind.COMPLETED]
    assert ended == [
        (16 * MINUTE, ("web-0", "web-3")),
        (17 * MINUTE, ("web-1", "web-4")),
        (18 * MINUTE, ("web-2", "web-5")),
    ]


@pytest.mark.parametrize(
    "steps", [[15 * MINUTE, MINUTE, 44 * MINUTE], [timedelta(seconds=20)] * 180], ids=["few", "many"]
)
async def test_time_brings_the_same_in_the_same_order_in_one_step_and_in_many(steps: list[timedelta]) -> None:
    """Also where much is due in many scopes at the same moment."""

    async def play(*steps: timedelta) -> list[tuple[str, datetime, EntryKind, tuple[str, ...]]]:
        store = MemoryStore()
        scopes = [scope(f"s{n}", *(vm(f"s{n}-{m}", domain=m % 3) for m in range(6))) for n in range(40)]
        async with run_fleet(*scopes, store=store) as fleet:
            for n in range(40):
                names = (f"s{n}-{m}" for m in range(6))
                await fleet.schedule(schedule_request(EventType.REBOOT, *names, number=n + 1))
            for step in steps:
                await fleet.advance(step)
        rows = [row for row in await read_journal(store) if row.key != FLEET_STATE and row.entry.at > TEN]
        return [(row.key.id, row.entry.at, row.entry.kind, row.entry.vms) for row in rows]

    leap = await play(60 * MINUTE)
    assert len(leap) == 40 * (3 * 2 + 6 * 2)
    assert leap == await play(*steps)


async def test_advance_to_next_stops_at_each_change_and_stays_where_nothing_is_left() -> None:
    """It goes from moment to moment."""
    async with run_fleet(web_scope()) as fleet:
        await fleet.schedule(schedule_request(EventType.FREEZE, "web-0"))
        moments = [await fleet.advance_to_next() for _ in range(3)]
        assert [moment - TEN for moment in moments] == [
            15 * MINUTE,
            15 * MINUTE + timedelta(seconds=9),
            15 * MINUTE + timedelta(seconds=9),
        ]


async def test_advance_to_next_passes_by_what_changes_no_event() -> None:
    """Work that is put off twice, and an alarm that somebody else has set."""
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", Retry(after=5 * MINUTE, why="busy"), Retry(after=5 * MINUTE, why="busy"))
    rung: list[datetime] = []

    async def ring() -> None:
        rung.append(clock.now())

    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        fleet.timers.set(TEN + 2 * MINUTE, ring)
        moments = [await fleet.advance_to_next() for _ in range(3)]
    assert rung == [TEN + 2 * MINUTE]
    assert [(moment - TEN) // MINUTE for moment in moments] == [15, 28, 28]


async def test_journal_tells_of_a_long_way_to_the_next_change_once_and_first() -> None:
    """However many moments the way has, nobody has sent the clock more than once; where it is is kept all the same."""
    clock, store = ManualClock(TEN), MemoryStore()
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", *(Retry(after=5 * MINUTE, why="busy") for _ in range(3)))
    async with run_fleet(web_scope(), clock=clock, platform=platform, store=store) as fleet:
        await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.advance(15 * MINUTE)
        await fleet.advance_to_next(who="ann")
    rows = [(row.entry.kind, row.entry.at - TEN, row.entry.by, row.entry.why) for row in await read_journal(store)]
    moved = [row for row in rows if row[0] is EntryKind.CLOCK_MOVED]
    assert moved == [
        (EntryKind.CLOCK_MOVED, 15 * MINUTE, "operator", ""),
        (EntryKind.CLOCK_MOVED, 16 * MINUTE, "ann", "to the next change of an event"),
    ]
    brought = rows[rows.index(moved[-1]) + 1 :]
    assert brought[-1][:2] == (EntryKind.COMPLETED, 34 * MINUTE)
    assert [at for _, at, *_ in brought] == sorted(at for _, at, *_ in brought)
    assert await manual_clock_start(store, now=TEN) == TEN + 34 * MINUTE


async def test_advance_to_next_stops_where_a_campaign_changes_events() -> None:
    """Between two waves there is no event at all, and yet time alone brings the next one."""
    async with run_fleet(web_scope()) as fleet:
        await start_campaign(fleet, campaign_spec())
        moments = [await fleet.advance_to_next() for _ in range(9)]
    assert [(moment - TEN) // MINUTE for moment in moments] == [15, 16, 31, 46, 47, 62, 77, 78, 78]


async def test_advance_to_next_ends_although_work_is_put_off_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.manual_time.MAX_STEPS", 20)
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", *(Retry(after=MINUTE, why="busy") for _ in range(100)))
    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert await fleet.advance_to_next() == TEN + 15 * MINUTE
        assert TEN + 15 * MINUTE < await fleet.advance_to_next() < TEN + 60 * MINUTE


async def test_manual_clock_goes_on_where_it_was() -> None:
    """Its position is saved before anything happens there, so it never goes back."""
    store = MemoryStore()
    assert await manual_clock_start(store, now=TEN + timedelta(milliseconds=700)) == TEN
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.advance(90 * MINUTE)
    assert await manual_clock_start(store, now=TEN + MINUTE) == TEN + 90 * MINUTE


async def test_manual_clock_on_data_of_real_time_starts_at_the_real_time() -> None:
    """Only a position that it had itself is older than the present."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store):
        pass
    assert await manual_clock_start(store, now=TEN + timedelta(days=30)) == TEN + timedelta(days=30)
    assert await manual_clock_start(store, now=TEN - timedelta(days=30)) == TEN


async def test_real_time_cannot_be_moved() -> None:
    """The refusal says how to get a clock that can."""
    async with run_fleet(web_scope(), clock=SystemClock()) as fleet:
        with pytest.raises(ManualTimeUnavailable, match="--manual-time"):
            await fleet.advance(MINUTE)


async def test_event_that_became_due_while_the_service_was_down_starts_at_once() -> None:
    """After a restart the scheduler continues with due events."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
    clock.set(TEN + HOUR)
    async with run_fleet(store=store, clock=clock) as fleet:
        await until(lambda: fleet.find_event(id_)[1].state is State.STARTED)


async def test_clock_step_back_delays_and_never_reorders() -> None:
    """The journal's times never go back within a scope."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store, clock=ManualClock(TEN)) as fleet:
        await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.advance(20 * MINUTE)
    async with run_fleet(store=store, clock=ManualClock(TEN - HOUR)) as fleet:
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.REBOOT, "web-1", number=2))
        assert fleet.find_event(id_)[1].not_before == TEN + 31 * MINUTE
    times = [row.entry.at for row in await read_journal(store) if row.key != FLEET_STATE]
    assert times == sorted(times)


async def test_port_is_given_once_and_never_to_another() -> None:
    """Even a VM that is gone keeps its port, so that no handler ever talks to a stranger."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await fleet.assign_ports({"web/web-0": 8180, "web/web-1": 8181})
        await fleet.assign_ports({"web/web-0": 8180})
        with pytest.raises(Invalid, match="given to web/web-1"):
            await fleet.assign_ports({"web/web-2": 8181})
        with pytest.raises(Invalid, match="keeps it"):
            await fleet.assign_ports({"web/web-0": 9000})
    async with run_fleet(store=store) as fleet:
        assert fleet.ports == {"web/web-0": 8180, "web/web-1": 8181}


async def test_ports_leave_room_for_everything_else_in_the_fleet_state() -> None:
    """However many ports were given, the fleet can be held and the service can start."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        with pytest.raises(Invalid, match="more than can be kept"):
            await fleet.assign_ports({f"{'s' * 128}/{'v' * 120}{n}": n for n in range(1, 4_000)})
        await fleet.assign_ports({f"{'s' * 128}/{'v' * 120}{n}": n for n in range(1, 2_000)})
        await fleet.hold(by="operator:" + "x" * 400, reason="y" * 512)
    async with run_fleet(store=store) as fleet:
        assert len(fleet.ports) == 1_999


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
        first = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", key="k1"))
        again = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", number=2, key="k1"))
        same_id = await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert first == again == same_id
        assert len(fleet.replica.scope("web").events) == 1


async def test_request_is_answered_again_though_its_vm_has_left() -> None:
    """The answer to an eviction may be lost, and asked for again when the VM is gone."""
    spare = scope("spare", vm("spare-0"), vm("spare-1"), low_priority=True)
    async with run_fleet(spare) as fleet:
        first = await fleet.schedule(schedule_request(EventType.PREEMPT, "spare-0", key="k1"))
        await fleet.advance(HOUR)
        assert await fleet.schedule(schedule_request(EventType.PREEMPT, "spare-0", number=2, key="k1")) == first
        with pytest.raises(VmNotFound):
            await fleet.schedule(schedule_request(EventType.PREEMPT, "spare-0", number=3, key="k2"))


async def test_scope_for_whose_news_somebody_waits_is_not_silent() -> None:
    """A held request counts as one that is being made all the time."""
    async with run_fleet(web_scope(), policy=PRODUCTION) as fleet:
        await asked(fleet)
        view, news = fleet.replica.view("web"), asyncio.Event()
        view.wait_for_change(news.set)
        await fleet.advance(timedelta(days=3))
        assert fleet.replica.scope("web").enabled
        view.cancel_wait(news.set)
        await fleet.advance(timedelta(days=3))
        assert not fleet.replica.scope("web").enabled


async def test_journal_is_pruned_to_what_is_to_be_kept() -> None:
    """A service that has just started brings the journal within its bounds."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        for number in range(20):
            await fleet.schedule(schedule_request(EventType.REBOOT, "web-0", number=number))
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
        await fleet.advance(timedelta(minutes=59))
        assert fleet.replica.scope("web").enabled
        await fleet.advance(timedelta(minutes=1))
        assert not fleet.replica.scope("web").enabled


async def test_service_that_has_begun_to_count_silence_saves_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "HEARTBEAT_INTERVAL", 0.001)
    clock, store = ManualClock(TEN), MemoryStore()
    async with run_fleet(clock=clock, store=store, policy=EMULATOR) as fleet:
        await fleet.advance(timedelta(minutes=10))
        fleet.use_policy(msgspec.structs.replace(EMULATOR, idle_after=timedelta(hours=1)))
        async with asyncio.timeout(30):
            while fleet._state_record.state.alive_at != clock.now():  # noqa: ASYNC110 - nobody is told of a heartbeat
                await asyncio.sleep(0.001)


async def test_speed_divides_notice_and_duration_and_leaves_the_clock_alone() -> None:
    """Dates never lie: it is the policy that is quicker."""
    quick = msgspec.structs.replace(Policy(enforce_notice=False, idle_after=None), speed=60.0)
    async with run_fleet(web_scope(), policy=quick) as fleet:
        await asked(fleet)
        ((_, id_),) = await fleet.schedule(schedule_request(EventType.FREEZE, "web-0", duration=timedelta(seconds=30)))
        event = fleet.find_event(id_)[1]
        assert (event.not_before - TEN, event.duration) == (timedelta(seconds=15), timedelta(seconds=0.5))


async def test_task_of_the_fleet_that_breaks_ends_the_service_loudly() -> None:
    """Nothing fails in silence."""

    def broken(change: ScopeChange) -> None:
        raise ZeroDivisionError(change.id)

    async def run() -> None:
        async with run_fleet(web_scope()) as fleet:
            CallbackObserver(fleet, broken)
            await fleet.schedule(schedule_request(EventType.REBOOT, "web-0"))

    with pytest.raises(ZeroDivisionError):
        await run()


async def test_event_that_an_older_version_saved_is_shown_as_it_was() -> None:
    """Then an event did not say which of its VMs are role instances: it was read from the VMs."""
    store = MemoryStore()
    instance = msgspec.structs.replace(vm("Front_IN_0"), role_instance=True)
    service = scope("service", instance, vm("web_0"), kind=ScopeKind.CLOUD_SERVICE)
    async with run_fleet(service, store=store) as fleet:
        await fleet.schedule(schedule_request(EventType.REBOOT, "Front_IN_0", "web_0", notice=HOUR))
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
