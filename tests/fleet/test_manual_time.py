"""Manual time: everything that is due on the way happens at its own moment."""

import asyncio
from datetime import datetime, timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock, SystemClock
from forewarn.core.event import EventType
from forewarn.core.impact import Retry
from forewarn.core.journal import EntryKind
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.scope import Scope
from forewarn.fleet.errors import ManualTimeUnavailable
from forewarn.fleet.fleet_state import FLEET_STATE, manual_clock_start
from forewarn.fleet.scopes import ScopeChange
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.campaign.campaigns import campaign_spec, start_campaign
from tests.fleet.fleets import read_journal, run_fleet

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


async def test_advance_runs_everything_at_its_due_time() -> None:
    """One leap of an hour gives the same journal as many small steps."""

    async def play(*steps: timedelta) -> list[tuple[datetime, EntryKind, tuple[str, ...]]]:
        store = MemoryStore()
        async with run_fleet(web_scope(), store=store) as fleet:
            await fleet.events.schedule(schedule_request(EventType.REBOOT, *(f"web-{n}" for n in range(6))))
            for step in steps:
                await fleet.time.advance(step)
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
async def test_one_step_and_many_steps_give_the_same_journal(steps: list[timedelta]) -> None:
    """Also where much is due in many scopes at the same moment."""

    async def play(*steps: timedelta) -> list[tuple[str, datetime, EntryKind, tuple[str, ...]]]:
        store = MemoryStore()
        scopes = [scope(f"s{n}", *(vm(f"s{n}-{m}", domain=m % 3) for m in range(6))) for n in range(40)]
        async with run_fleet(*scopes, store=store) as fleet:
            for n in range(40):
                names = (f"s{n}-{m}" for m in range(6))
                await fleet.events.schedule(schedule_request(EventType.REBOOT, *names, number=n + 1))
            for step in steps:
                await fleet.time.advance(step)
        rows = [row for row in await read_journal(store) if row.key != FLEET_STATE and row.entry.at > TEN]
        return [(row.key.id, row.entry.at, row.entry.kind, row.entry.vms) for row in rows]

    leap = await play(60 * MINUTE)
    assert len(leap) == 40 * (3 * 2 + 6 * 2)
    assert leap == await play(*steps)


async def test_advance_to_next_stops_at_each_change_and_stays_if_nothing_is_left() -> None:
    """It goes from moment to moment."""
    async with run_fleet(web_scope()) as fleet:
        await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0"))
        moments = [await fleet.time.advance_to_next() for _ in range(3)]
        assert [moment - TEN for moment in moments] == [
            15 * MINUTE,
            15 * MINUTE + timedelta(seconds=5),
            15 * MINUTE + timedelta(seconds=5),
        ]


async def test_advance_to_next_does_not_stop_if_no_event_changes() -> None:
    """Work that is postponed twice, and a timer of another part."""
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", Retry(after=5 * MINUTE, why="busy"), Retry(after=5 * MINUTE, why="busy"))
    rung: list[datetime] = []

    async def ring() -> None:
        rung.append(clock.now())

    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        fleet.emulator.timers.set(TEN + 2 * MINUTE, ring)
        moments = [await fleet.time.advance_to_next() for _ in range(3)]
    assert rung == [TEN + 2 * MINUTE]
    assert [(moment - TEN) // MINUTE for moment in moments] == [15, 28, 28]


async def test_journal_has_one_entry_for_a_move_to_the_next_change_before_all_others() -> None:
    """The move has one journal entry, however many due times it passes; its position is saved at each of them."""
    clock, store = ManualClock(TEN), MemoryStore()
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", *(Retry(after=5 * MINUTE, why="busy") for _ in range(3)))
    async with run_fleet(web_scope(), clock=clock, platform=platform, store=store) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        await fleet.time.advance(15 * MINUTE)
        await fleet.time.advance_to_next(who="ann")
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


async def test_advance_to_next_stops_when_a_campaign_changes_events() -> None:
    """Between two waves there is no event at all, and yet time alone brings the next one."""
    async with run_fleet(web_scope()) as fleet:
        await start_campaign(fleet, campaign_spec())
        moments = [await fleet.time.advance_to_next() for _ in range(9)]
    assert [(moment - TEN) // MINUTE for moment in moments] == [15, 16, 31, 46, 47, 62, 77, 78, 78]


async def test_advance_to_next_ends_although_work_is_postponed_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.manual_time.MAX_STEPS", 20)
    clock = ManualClock(TEN)
    platform = SimulatedPlatform(clock)
    platform.set_outcomes("web/web-0", *(Retry(after=MINUTE, why="busy") for _ in range(100)))
    async with run_fleet(web_scope(), clock=clock, platform=platform) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        assert await fleet.time.advance_to_next() == TEN + 15 * MINUTE
        assert TEN + 15 * MINUTE < await fleet.time.advance_to_next() < TEN + 60 * MINUTE


async def test_real_time_cannot_be_moved() -> None:
    """The refusal says how to get a clock that can."""
    async with run_fleet(web_scope(), clock=SystemClock()) as fleet:
        with pytest.raises(ManualTimeUnavailable, match="--manual-time"):
            await fleet.time.advance(MINUTE)


FLOOR = timedelta(seconds=0.3)
GUARD = 60.0


def with_floor(shortest_notice: timedelta) -> Policy:
    return msgspec.structs.replace(EMULATOR, shortest_notice=shortest_notice)


def enabled_scope() -> Scope:
    return msgspec.structs.replace(web_scope(), enabled=True, was_enabled=True, seen_at=TEN)


async def test_advance_leaves_an_event_scheduled_long_enough_for_clients_that_poll() -> None:
    time = asyncio.get_running_loop().time
    async with run_fleet(enabled_scope(), policy=with_floor(FLOOR)) as fleet:
        announced_at = time()
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0"))
        started_at: list[float] = []

        def observe(change: ScopeChange) -> None:
            if any(entry.kind is EntryKind.STARTED for entry in change.entries or ()):
                started_at.append(time())

        fleet.scopes.add_observers(observe)
        assert await fleet.time.advance(HOUR) == TEN + HOUR
        (started,) = started_at
        assert started - announced_at >= FLOOR.total_seconds()


@pytest.mark.parametrize(
    ("held_back", "notice"), [(web_scope(), 15 * MINUTE), (enabled_scope(), FLOOR)], ids=["not polled", "short notice"]
)
async def test_advance_does_not_wait_where_no_vm_polls_or_longer_than_the_notice(
    held_back: Scope, notice: timedelta
) -> None:
    """With a floor of an hour, it would not return here."""
    async with run_fleet(held_back, policy=with_floor(HOUR)) as fleet, asyncio.timeout(GUARD):
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "web-0", not_before=TEN + notice))
        await fleet.time.advance(HOUR)
        assert fleet.metrics.counts.events.total() == 0
