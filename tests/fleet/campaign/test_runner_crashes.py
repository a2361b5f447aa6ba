"""A campaign over the demonstration fleet, with everything that can get in its way, and with deaths at every save."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.spec import Limit, Weekday, Window
from forewarn.core.event import EventType, State
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import schedule_request, vm
from tests.fleet.campaign.campaigns import (
    DurablePlatform,
    FakeGateChecker,
    OperatorScript,
    campaign_spec,
    demo_fleet,
    journal_lines,
    normalize_journals,
    read_campaign_journal,
    start_campaign,
)
from tests.fleet.fleets import InterceptedStore, Save, read_journal, run_fleet

VIENNA = "Europe/Vienna"
SATURDAY = datetime(2026, 3, 28, tzinfo=UTC)
"""In the night that follows, clocks in Vienna go forward: from 02:00 to 03:00, which is 01:00 UTC."""

SPEC = campaign_spec(
    gap=timedelta(minutes=100),
    scopes_at_once=Limit(2),
    vms_at_once=Limit(3),
    windows=(Window(days=(Weekday.SAT,), start="22:00", end="04:00", zone=VIENNA),),
    gate="health",
    halt_after=1,
)


def at(hour: int, minute: int = 0) -> datetime:
    """Return a moment of that Saturday, or of the days after."""
    return SATURDAY + timedelta(hours=hour, minutes=minute)


def once(key: str) -> IdempotencyKey:
    return IdempotencyKey(key, "d")


async def begin(fleet: Fleet) -> None:
    await start_campaign(fleet, SPEC, idempotency_key=once("start"))


async def add_vms(fleet: Fleet) -> None:
    """One comes to an update domain whose wave is still to come, one to a new update domain."""
    known = {machine.name for machine in fleet.replica.scope("web").roster}
    for new in (vm("web-6", domain=2, host="hv-2"), vm("web-7", domain=9, host="hv-2")):
        if new.name not in known:
            await fleet.inventory.add_vm("web", new, by="alice")


async def evict(fleet: Fleet) -> None:
    victim = next((each.name for each in fleet.replica.scope("batch").roster if each.update_domain == 2), None)
    if victim is not None:
        await fleet.events.schedule(schedule_request(EventType.PREEMPT, f"batch/{victim}", number=7))


async def approve(fleet: Fleet) -> None:
    """The guests of the shop approve whatever is announced."""
    events = [event.id for event in fleet.replica.scope("shop").events if event.state is State.SCHEDULED]
    await fleet.events.approve("shop", "BackEnd_IN_0", events)


async def retry(fleet: Fleet) -> None:
    await fleet.campaigns.retry("kernel", "shop", by="alice", why="the disk is replaced", idempotency_key=once("retry"))


async def resume(fleet: Fleet) -> None:
    await fleet.campaigns.resume("kernel", by="alice", idempotency_key=once("resume"))


EXPECTED_JOURNAL = """\
18:00 campaign-started
20:45 batch 1 wave-announced
20:45 web 1 wave-announced
20:50 shop 1 wave-announced
20:50 db-0 1 wave-announced
21:00 batch 1 wave-cleared
21:00 web 1 wave-cleared
21:01 batch 1 wave-settled
21:01 web 1 wave-settled
21:01 shop 1 wave-cleared
21:02 shop 1 wave-settled
21:05 db-0 1 wave-cleared
21:06 db-0 1 wave-settled
22:26 batch 2 wave-differs
22:26 batch 2 wave-announced
22:26 web 2 wave-differs
22:26 web 2 wave-announced
22:31 shop 2 wave-announced
22:41 batch 2 gate-shut
22:55 batch 2 gate-opened
22:55 batch 2 wave-cleared
22:55 web 2 wave-cleared
22:56 batch 2 wave-settled
22:56 web 2 wave-settled
22:56 shop 2 wave-cleared
22:57 shop 2 wave-failed
22:57 campaign-halted
00:00 shop 2 wave-retried
00:01 shop 2 wave-settled
00:05 campaign-resumed
00:21 batch 3 wave-settled
00:21 web 3 wave-announced
00:26 batch 4 wave-announced
00:36 web 3 wave-cleared
00:37 web 3 wave-settled
00:37 web 4 wave-differs
00:41 batch 4 wave-cleared
00:42 batch 4 wave-settled
19:45 web 4 wave-announced
20:00 web 4 wave-cleared
20:01 web 4 wave-settled
20:01 campaign-ended""".splitlines()
"""Two scopes and three VMs at once; shop 1 was approved, and starts as soon as there is room for it."""


class CampaignRun:
    """The service with everything around it that outlives it."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.clock = ManualClock(at(18))
        self.platform = DurablePlatform(self.clock)
        self.platform.failing["shop/FrontEnd_IN_1"] = "its disk has failed"
        self.gate = FakeGateChecker(self.clock, (at(22, 30), at(22, 55)))
        self.agenda = OperatorScript(
            (
                (at(18), begin),
                (at(20, 50), approve),
                (at(21, 30), add_vms),
                (at(22), evict),
                (at(22, 35), approve),
                (at(24), retry),
                (at(24, 5), resume),
            ),
            until=at(8 * 24),
        )

    async def run(self) -> None:
        """Live until all is over."""
        async with run_fleet(
            *demo_fleet(at(18)), store=self.store, clock=self.clock, platform=self.platform, checker=self.gate
        ) as fleet:
            await self.agenda.run(fleet)


async def undisturbed() -> CampaignRun:
    tour = CampaignRun(MemoryStore())
    await tour.run()
    return tour


async def test_campaign_keeps_its_policy_despite_disturbances() -> None:
    tour = await undisturbed()
    rows = await read_campaign_journal(tour.store)
    assert journal_lines(rows) == EXPECTED_JOURNAL
    (halted,) = [row.entry for row in rows if row.entry.kind is EntryKind.CAMPAIGN_HALTED]
    assert halted.why == "a wave has failed: shop, wave 2: FrontEnd_IN_1: its disk has failed"
    everything = {f"{scope.id}/{each.name}" for scope in demo_fleet() for each in scope.roster}
    expected = {each: [EventType.REBOOT] for each in everything | {"web/web-6", "web/web-7"}}
    assert tour.platform.done == expected | {"batch/batch_2": [EventType.PREEMPT]}


async def test_differences_from_the_plan_are_journaled_when_a_wave_is_announced() -> None:
    tour = await undisturbed()
    differing = [
        row.entry for row in await read_campaign_journal(tour.store) if row.entry.kind is EntryKind.WAVE_DIFFERS
    ]
    assert [(entry.facts, entry.why) for entry in differing] == [
        ({"scope": "batch", "wave": "2", "update_domain": "1", "went": "batch_2"}, ""),
        ({"scope": "web", "wave": "2", "update_domain": "1", "came": "web-6 web-7"}, ""),
        ({"scope": "web", "wave": "4", "update_domain": "9"}, "added for VMs that were in no wave"),
    ]


async def test_dst_change_shortens_the_night_and_moves_the_next_window() -> None:
    """22:00 to 04:00 in Vienna are five hours of that night, 21:00 to 02:00 UTC, and begin an hour earlier after it."""
    tour = await undisturbed()
    cleared = [
        row.entry.at for row in await read_campaign_journal(tour.store) if row.entry.kind is EntryKind.WAVE_CLEARED
    ]
    nights = [(at(21), at(26)), (at(7 * 24 + 20), at(7 * 24 + 26))]
    assert all(any(opens <= moment < closes for opens, closes in nights) for moment in cleared)
    assert cleared[-1] == at(7 * 24 + 20)


class CrashingStore(InterceptedStore):
    """A store whose process dies right after, or right before, the next save of a scope or campaign of its life."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: int | None = None
        """After how many such saves the process crashes; None: never."""
        self.before = False
        self.saves = 0
        self.dead = asyncio.Event()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        if self.lives is None or key.kind not in (RecordKind.SCOPE, RecordKind.CAMPAIGN):
            return await save()
        if self.dead.is_set() or (self.before and self.lives == 0):
            await self._die()
        self.lives -= 1
        self.saves += 1
        revision = await save()
        if self.lives < 0 or (not self.before and self.lives == 0):
            await self._die()
        return revision

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()


async def lived_through(campaign_run: CampaignRun, store: CrashingStore) -> bool:
    """Live until all is over or the process dies; tell which."""
    life, death = asyncio.ensure_future(campaign_run.run()), asyncio.ensure_future(store.dead.wait())
    done, _ = await asyncio.wait((life, death), return_when=asyncio.FIRST_COMPLETED)
    for task in (life, death):
        task.cancel()
    await asyncio.gather(life, death, return_exceptions=True)
    if life in done:
        life.result()
    store.dead.clear()
    return life in done


async def test_crash_after_every_save_gives_the_same_journal() -> None:
    expected = normalize_journals(await read_journal((await undisturbed()).store))
    store = CrashingStore()
    tour = CampaignRun(store)
    store.lives = 1
    deaths = 0
    while not await lived_through(tour, store):
        deaths += 1
        store.lives = 1
    assert normalize_journals(await read_journal(store)) == expected
    assert deaths > 80


async def died_once(lives: int, *, before: bool) -> tuple[bool, dict[str, list[str]]]:
    store = CrashingStore()
    tour = CampaignRun(store)
    store.lives, store.before = lives, before
    survived = await lived_through(tour, store)
    if not survived:
        store.lives = None
        assert await lived_through(tour, store)
    return survived, normalize_journals(await read_journal(store))


async def dies_at(saves: Iterator[int]) -> None:
    """Die once at each of these saves, after it and before it."""
    expected = normalize_journals(await read_journal((await undisturbed()).store))
    for lives in saves:
        after, found = await died_once(lives, before=False)
        assert found == expected, f"after a death right after save {lives}"
        before, found = await died_once(lives, before=True)
        assert found == expected, f"after a death right before save {lives}"
        if after and before:
            return


async def test_one_crash_gives_the_same_journal() -> None:
    """At some of the saves; the long test takes all."""
    await dies_at(count(3, 37))


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_one_crash_at_any_save_gives_the_same_journal() -> None:
    await dies_at(count(1))
