"""Timers wake scopes at their moments and costs nothing while nothing is due."""

import asyncio
import gc
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.clock import ManualClock, SystemClock
from forewarn.core.backoff import backoff
from forewarn.core.event import EventType, State
from forewarn.fleet.scheduler import WAKE_BATCH, TimerHeap
from forewarn.store.port import RecordKey
from tests.core.sample_scopes import TEN, schedule_request
from tests.fleet.campaign.campaigns import single
from tests.fleet.fleets import FailingStore, Save, run_fleet, until

MINUTE = timedelta(minutes=1)


def test_scopes_are_woken_in_order_of_their_due_times() -> None:
    """The earliest comes first, each once."""
    clock = ManualClock(TEN)
    woken: list[str] = []
    timers = TimerHeap(clock, woken.append)
    timers.set("late", TEN + 3 * MINUTE)
    timers.set("early", TEN + MINUTE)
    timers.set("later", TEN + 9 * MINUTE)
    clock.set(TEN + 5 * MINUTE)
    assert woken == ["early", "late"]
    assert clock.next_timer_at == TEN + 9 * MINUTE


def test_new_due_time_of_a_scope_replaces_the_old_one() -> None:
    """A due time that was moved or removed wakes no scope."""
    clock = ManualClock(TEN)
    woken: list[str] = []
    timers = TimerHeap(clock, woken.append)
    timers.set("moved", TEN + MINUTE)
    timers.set("moved", TEN + 4 * MINUTE)
    timers.set("taken-back", TEN + MINUTE)
    timers.set("taken-back", None)
    clock.set(TEN + 3 * MINUTE)
    assert woken == []
    clock.set(TEN + 4 * MINUTE)
    assert woken == ["moved"]


def test_thousands_of_waiting_scopes_need_one_timer() -> None:
    """Nothing is polled: the clock knows of the earliest moment only."""
    clock = ManualClock(TEN)
    timers = TimerHeap(clock, lambda _: None)
    for n in range(5_000):
        timers.set(f"scope-{n}", TEN + n * MINUTE + MINUTE)
    assert (clock.timer_count, clock.next_timer_at) == (1, TEN + MINUTE)
    timers.stop()
    timers.set("scope-1", TEN + MINUTE)
    assert clock.timer_count == 0


def test_scope_can_set_its_next_due_time_while_it_is_woken() -> None:
    """Waking and setting go hand in hand."""
    clock, woken = ManualClock(TEN), []

    def wake(scope: str) -> None:
        woken.append((scope, clock.now()))
        if len(woken) < 3:
            timers.set(scope, clock.now() + MINUTE)

    timers = TimerHeap(clock, wake)
    timers.set("again", TEN + MINUTE)
    for n in range(1, 6):
        clock.set(TEN + n * MINUTE)
    assert woken == [("again", TEN + n * MINUTE) for n in (1, 2, 3)]


async def test_other_tasks_run_while_thousands_of_scopes_are_due() -> None:
    """The loop is not kept busy until the last of them is woken; none is forgotten, none is woken twice."""
    clock = SystemClock()
    woken: list[str] = []
    timers = TimerHeap(clock, woken.append)
    names = [f"scope-{n:04}" for n in range(10 * WAKE_BATCH + 1)]
    moment = clock.now()
    for name in names:
        timers.set(name, moment)
    in_between: list[int] = []
    while timers.is_armed:
        await asyncio.sleep(0)
        in_between.append(len(woken))
    assert woken == names
    assert in_between[:3] == [WAKE_BATCH, 2 * WAKE_BATCH, 3 * WAKE_BATCH]


def test_postponed_due_time_has_one_heap_entry() -> None:
    """The idle timeout of a scope that polls every second restarts without end."""
    clock = ManualClock(TEN)
    woken: list[str] = []
    timers = TimerHeap(clock, woken.append)
    timers.set("first", TEN + MINUTE)
    for n in range(1_000):
        timers.set("silent", TEN + 2 * MINUTE + n * MINUTE)
    assert len(timers._heap) == 2
    clock.set(TEN + 1_000 * MINUTE)
    assert (woken, clock.next_timer_at) == (["first"], TEN + 1_001 * MINUTE)
    clock.set(TEN + 1_001 * MINUTE)
    assert woken == ["first", "silent"]
    assert (timers._heap, timers._queued, timers._moments) == ([], {}, {})


@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(1, 20), st.booleans()), max_size=40))
def test_each_scope_is_woken_only_at_its_last_due_time(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    clock, woken, expected = ManualClock(TEN), [], []
    timers = TimerHeap(clock, lambda scope: woken.append((clock.now(), scope)))
    last: dict[str, datetime] = {}

    def let_time_go_on(until: datetime) -> None:
        expected.extend(sorted((moment, scope) for scope, moment in last.items() if moment <= until))
        for _, scope in expected:
            if scope in last and last[scope] <= until:
                del last[scope]
        while clock.next_timer_at is not None and clock.next_timer_at <= until:
            clock.set(clock.next_timer_at)
        clock.set(until)

    for scope, minutes, goes_on in steps:
        moment = None if minutes is None else clock.now() + minutes * MINUTE
        timers.set(scope, moment)
        last.pop(scope, None)
        if moment is not None:
            last[scope] = moment
        if goes_on:
            let_time_go_on(clock.now() + 3 * MINUTE)
    let_time_go_on(TEN + timedelta(days=1))
    assert woken == expected
    assert (timers._heap, timers._queued, timers._moments) == ([], {}, {})


async def test_scopes_beyond_the_slots_are_ticked_when_one_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.scheduler.TICK_CONCURRENCY", 2)
    ticked: list[str] = []
    async with run_fleet(*(single(n) for n in range(5))) as fleet:
        fleet.scopes.add_observers(lambda change: ticked.append(change.id))
        for n in range(5):
            fleet.duties.scheduler.wake(f"db-{n}")
        assert fleet.duties.scheduler.busy == 5
        await until(lambda: fleet.duties.scheduler.busy == 0)
    assert ticked == [f"db-{n}" for n in range(5)]


async def test_nothing_waits_for_a_slot_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.scheduler.TICK_CONCURRENCY", 2)
    ticked: list[str] = []
    async with run_fleet(*(single(n) for n in range(5))) as fleet:
        fleet.scopes.add_observers(lambda change: ticked.append(change.id))
        for n in range(5):
            fleet.duties.scheduler.wake(f"db-{n}")
        await fleet.duties.scheduler.stop()
        await fleet.duties.scheduler.wait_idle()
        assert (fleet.duties.scheduler.busy, ticked) == (0, [])
        await fleet.duties.scheduler.start()
        fleet.duties.scheduler.wake("db-3")
        await until(lambda: fleet.duties.scheduler.busy == 0)
    assert ticked == ["db-3"]


async def test_gc_is_paused_while_many_scopes_are_ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.scheduler.BURST_TICKS", 3)
    async with run_fleet(*(single(n) for n in range(3))) as fleet:
        for n in range(2):
            fleet.duties.scheduler.wake(f"db-{n}")
        assert gc.isenabled()
        fleet.duties.scheduler.wake("db-2")
        assert not gc.isenabled()
        await until(lambda: fleet.duties.scheduler.is_idle)
        assert gc.isenabled()


async def test_stop_ends_the_pause_of_gc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.scheduler.BURST_TICKS", 1)
    async with run_fleet(single(0)) as fleet:
        fleet.duties.scheduler.wake("db-0")
        await fleet.duties.scheduler.stop()
        assert gc.isenabled()


class CountingStore(FailingStore):
    """A store that counts how many scopes it is asked to save at once while it is full."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns
        """How many turns of the event loop a save takes."""
        self.saving = self.most = 0

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Count, and save if there is room."""
        self.saving += 1
        self.most = max(self.most, self.saving if self.full else 0)
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            return await super().intercept(key, save)
        finally:
            self.saving -= 1


async def test_scopes_that_cannot_be_saved_are_retried_in_rounds_within_the_slots(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A round logs one line, and the pauses grow."""
    clock, store = ManualClock(TEN), CountingStore(turns=1)
    pauses = record_pauses(monkeypatch, store)
    monkeypatch.setattr("forewarn.fleet.scheduler.TICK_CONCURRENCY", 2)
    async with run_fleet(*(single(n) for n in range(5)), store=store, clock=clock) as fleet:
        events = [
            event
            for n in range(5)
            for _, event in await fleet.events.schedule(schedule_request(EventType.FREEZE, f"db-{n}", number=n))
        ]
        store.full = True
        clock.set(TEN + timedelta(days=1))
        await until(lambda: fleet.duties.scheduler.busy == 0)
        assert {fleet.events.find(event)[1].state for event in events} == {State.STARTED}
    assert pauses == [1.0, 2.0, 4.0, 5.0]
    assert store.most == 2
    lines = [record.getMessage() for record in caplog.records if "could not save due changes" in record.getMessage()]
    assert len(lines) == 4
    assert lines[0].startswith("could not save due changes of 5 scopes, retrying in 0 s: ")


async def test_pauses_grow_although_saves_take_longer_than_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, store = ManualClock(TEN), CountingStore(turns=50)
    pauses = record_pauses(monkeypatch, store)
    monkeypatch.setattr("forewarn.fleet.scheduler.ROUND_TIME", 0.0)
    async with run_fleet(single(0), store=store, clock=clock) as fleet:
        ((_, event),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "db-0"))
        store.full = True
        clock.set(TEN + timedelta(days=1))
        await until(lambda: fleet.events.find(event)[1].state is State.STARTED)
    assert pauses == [1.0, 2.0, 4.0, 5.0]


def record_pauses(monkeypatch: pytest.MonkeyPatch, store: FailingStore) -> list[float]:
    """Return a list of all pauses, which take no time. The fourth one ends when the store has room again."""
    pauses: list[float] = []

    def recorded(first: float, maximum: float) -> Iterator[float]:
        for pause in backoff(first, maximum):
            pauses.append(pause)
            store.full = len(pauses) < 4
            yield 0.0

    monkeypatch.setattr("forewarn.fleet.scheduler.backoff", recorded)
    return pauses


class HangingStore(FailingStore):
    """A store that does not return from saves of one record, and once cannot save another one."""

    def __init__(self, hanging: str, failing: str) -> None:
        super().__init__()
        self.hanging, self.failing = hanging, failing
        self.may_save = asyncio.Event()
        self.may_save.set()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Save, unless this record hangs or fails."""
        if not self.may_save.is_set() and key.id == self.hanging:
            await self.may_save.wait()
        self.full = not self.may_save.is_set() and key.id == self.failing and not self.refused
        return await super().intercept(key, save)


async def test_failed_tick_is_retried_while_another_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.scheduler.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.fleet.scheduler.ROUND_TIME", 0.001)
    clock, store = ManualClock(TEN), HangingStore("db-1", "db-2")
    async with run_fleet(single(1), single(2), store=store, clock=clock) as fleet:
        ((_, first),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "db-1", number=1))
        ((_, second),) = await fleet.events.schedule(schedule_request(EventType.FREEZE, "db-2", number=2))
        store.may_save.clear()
        clock.set(TEN + timedelta(days=1))
        await until(lambda: fleet.events.find(second)[1].state is State.STARTED)
        assert (fleet.events.find(first)[1].state, store.refused) == (State.SCHEDULED, 1)
        store.may_save.set()
        await until(lambda: fleet.events.find(first)[1].state is State.STARTED)
