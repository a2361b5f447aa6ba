"""Campaigns with disturbances: late results break no policy, and no VM is maintained twice."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from forewarn.clock import ManualClock, wait_until
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.campaign.spec import Limit, Selection, Window
from forewarn.core.errors import NotAnnounced
from forewarn.core.event import EventType
from forewarn.core.impact import Done, Failed, NotStarted
from forewarn.core.journal import EntryKind
from forewarn.core.policy import PRODUCTION
from forewarn.core.scope import Scope
from forewarn.fleet.campaign.runner import CampaignRunner
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GatePassed, GateRequest, Work
from forewarn.store.port import RecordKey, RecordKind, StoreFull
from tests.core.sample_scopes import TEN, scope, vm, web_scope
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    MINUTE,
    DurablePlatform,
    advance_to,
    campaign_spec,
    read_campaign_journal,
    start_campaign,
)
from tests.fleet.campaign.policy_checks import PolicyCheckingStore
from tests.fleet.fleets import CampaignGatedStore, Save, read_journal, run_fleet, until

HOUR = timedelta(hours=1)
OTHER_ID = CAMPAIGN_ID[:-1] + "1"


def at(hours: int, minutes: int = 0) -> datetime:
    return TEN.replace(hour=hours, minute=minutes)


def two_hosts() -> Scope:
    """Make a scope whose first update domain is on two hosts."""
    return scope(
        "web",
        vm("web-0", domain=0, host="hv-0"),
        vm("web-1", domain=0, host="hv-1"),
        vm("web-2", domain=1, host="hv-2"),
    )


class SlowAndBroken:
    """Work on `web-0` fails at once, on others it takes forty minutes."""

    repeatable = True

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def carry_out(self, work: Work) -> Done | Failed:
        if work.vm == "web-0":
            return Failed("no power")
        await wait_until(self._clock, self._clock.now() + 40 * MINUTE)
        return Done()

    async def probe(self, work: Work) -> NotStarted:
        return NotStarted()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["seen", "ended while the service was down"])
async def test_gap_starts_when_the_last_impact_of_a_skipped_wave_has_ended(is_restarted: bool) -> None:
    store, clock = PolicyCheckingStore(), ManualClock(TEN)
    async with run_fleet(two_hosts(), store=store, clock=clock, platform=SlowAndBroken(clock)) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=None))
        await advance_to(fleet, at(10, 20))
        await fleet.campaigns.skip(CAMPAIGN_ID, "web", by="bob", why="it is going to be replaced")
        await advance_to(fleet, at(10, 50))
        assert [event.vms for event in fleet.replica.scope("web").events] == [("web-1",)], "nothing is announced yet"
        if not is_restarted:
            await advance_to(fleet, at(13))
    async with run_fleet(store=store, clock=clock, platform=SlowAndBroken(clock)) as fleet:
        await advance_to(fleet, at(14))
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert store.started == 3


async def test_campaign_started_within_a_second_announces_at_once_and_keeps_the_notice() -> None:
    store, clock = PolicyCheckingStore(), ManualClock(TEN + timedelta(milliseconds=300))
    async with run_fleet(web_scope(), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(timedelta(0))
        (event,) = fleet.replica.scope("web").events
        assert (event.created_at, event.not_before) == (clock.now(), TEN + timedelta(minutes=15, seconds=1))
        await fleet.time.advance(12 * HOUR)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert store.started == 3


async def test_scope_that_is_not_enabled_has_unannounced_waves_by_the_same_rules() -> None:
    store, clock = PolicyCheckingStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, policy=PRODUCTION) as fleet:
        with pytest.raises(NotAnnounced, match="0 of 1 scopes poll for events: 6 of 6 VMs will not hear of it"):
            await start_campaign(fleet, campaign_spec())
        await start_campaign(fleet, campaign_spec(), unannounced=True)
        await fleet.time.advance(timedelta(0))
        (event,) = fleet.replica.scope("web").events
        assert (event.announced, event.not_before) == (False, at(10, 15))
        await fleet.time.advance(12 * HOUR)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert store.started == 3


async def test_two_campaigns_over_one_scope_take_turns_by_update_domain() -> None:
    store, clock = PolicyCheckingStore(), ManualClock(TEN)
    platform = DurablePlatform(clock, length=20 * MINUTE)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(10 * MINUTE)
        await start_campaign(fleet, campaign_spec(name="firmware"), id_=OTHER_ID)
        await fleet.time.advance(12 * HOUR)
        assert [each.state for each in fleet.campaigns.all()] == [CampaignState.COMPLETED] * 2
    assert platform.done == {f"web/web-{n}": [EventType.REBOOT] * 2 for n in range(6)}


class HalfFull(PolicyCheckingStore):
    """A store that keeps no scopes while `full` is set, and counts those that it refused."""

    full = False
    refused = 0

    async def intercept(self, key: RecordKey, save: Save) -> int:
        if self.full and key.kind is RecordKind.SCOPE:
            self.refused += 1
            raise StoreFull(Path("/test"))
        return await save()


async def test_start_that_could_not_be_saved_in_the_window_does_not_happen_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.executor.CLEAR_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.fleet.scheduler.FIRST_PAUSE", 0.001)
    store, clock = HalfFull(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_campaign(fleet, campaign_spec(windows=(Window(start="10:00", end="10:20"),)))
        await advance_to(fleet, at(10, 14))
        store.full = True
        clock.set(at(10, 15))
        await until(lambda: store.refused > 2)
        clock.set(at(10, 30))
        store.full = False
        await fleet.time.advance(HOUR)
        assert store.started == 0
        assert list(fleet.campaigns.duty._fleet_load.loads()) == [], "nothing is reserved"
        await fleet.time.advance(24 * HOUR)
        assert store.started == 1


class Hesitant(PolicyCheckingStore):
    """A store that delays saves of scopes while `goes_on` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        if key.kind is RecordKind.SCOPE:
            await self.goes_on.wait()
        return await save()


async def test_cleared_wave_does_not_start_after_the_campaign_is_paused() -> None:
    """It was decided that it may, and the pause came before the scope could be told."""
    store, clock = Hesitant(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, at(10, 14))
        (event,) = fleet.replica.scope("web").events
        store.goes_on.clear()
        approving = asyncio.create_task(fleet.events.approve("web", "web-0", [event.id]))
        clock.set(at(10, 15))
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).scopes[0].wave(1).state is WaveState.CLEARED)
        pausing = asyncio.create_task(fleet.campaigns.pause(CAMPAIGN_ID, by="bob"))
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.PAUSED)
        store.goes_on.set()
        await asyncio.gather(approving, pausing)
        await fleet.time.advance(HOUR)
        assert store.started == 0
        await fleet.campaigns.resume(CAMPAIGN_ID, by="bob")
        await fleet.time.advance(MINUTE)
        assert store.started == 1


async def test_wave_skipped_during_its_announcement_is_not_announced() -> None:
    store = CampaignGatedStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec(start_at=TEN + HOUR))
        store.may_read_journal.clear()
        passing = asyncio.create_task(advance_to(fleet, TEN + HOUR))
        await until(lambda: store.waiting == 1)
        campaign = await fleet.campaigns.skip(CAMPAIGN_ID, "web", by="bob", why="not this one")
        assert campaign.scopes[0].wave(1).state is WaveState.SKIPPED
        store.may_read_journal.set()
        await passing
        await fleet.time.advance(3 * HOUR)
        rows = await read_journal(store, RecordKey(RecordKind.SCOPE, "web"))
        assert [row.entry.facts["wave"] for row in rows if row.entry.kind is EntryKind.SCHEDULED] == ["2", "3"]


class SteppedClock(ManualClock):
    """A clock that can be set back."""

    def step_back(self, by: timedelta) -> None:
        self._now -= by


async def test_campaign_continues_by_its_own_time_when_the_clock_is_set_back() -> None:
    store, clock = PolicyCheckingStore(), SteppedClock(TEN)
    platform = DurablePlatform(clock)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, at(10, 10))
        await fleet.campaigns.pause(CAMPAIGN_ID, by="bob")
        await advance_to(fleet, at(10, 20))
        await fleet.campaigns.pause(CAMPAIGN_ID, by="carol")
        clock.step_back(3 * HOUR)
        await fleet.campaigns.resume(CAMPAIGN_ID, by="bob")
        await fleet.time.advance(MINUTE)
        assert (store.started, fleet.clock.now()) == (1, at(7, 21)), "it was due before"
        await fleet.time.advance(12 * HOUR)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert platform.done == {f"web/web-{n}": [EventType.REBOOT] for n in range(6)}


class HangingGateChecker:
    """A gate that hangs."""

    gates = ("health",)

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def check(self, request: GateRequest) -> GatePassed:
        self.is_asked.set()
        await asyncio.Event().wait()
        return GatePassed()


async def test_campaign_can_be_aborted_while_its_gate_hangs() -> None:
    store, clock, gate = PolicyCheckingStore(), ManualClock(TEN), HangingGateChecker()
    async with run_fleet(web_scope(), store=store, clock=clock, checker=gate) as fleet:
        await start_campaign(fleet, campaign_spec(gate="health"))
        passing = asyncio.create_task(fleet.time.advance(HOUR))
        await gate.is_asked.wait()
        await fleet.campaigns.abort(CAMPAIGN_ID, by="bob")
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED)
        passing.cancel()
    assert [row.entry.kind for row in await read_campaign_journal(store)][-3:] == [
        EntryKind.CAMPAIGN_ABORTED,
        EntryKind.WAVE_LEFT,
        EntryKind.CAMPAIGN_ENDED,
    ]


async def test_vms_are_not_maintained_again_after_the_journal_was_pruned() -> None:
    store, clock = PolicyCheckingStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, at(11, 10))
        store.clear_journal()
        await fleet.time.advance(12 * HOUR)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert platform.done == {f"web/web-{n}": [EventType.REBOOT] for n in range(6)}


async def test_abort_is_obeyed_although_its_caller_was_cancelled() -> None:
    store = CampaignGatedStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await until(lambda: not fleet.campaigns.duty.busy and bool(fleet.replica.scope("web").events))
        store.may_save_campaigns.clear()
        aborting = asyncio.create_task(fleet.campaigns.abort(CAMPAIGN_ID, by="bob"))
        await until(lambda: store.waiting == 1)
        aborting.cancel()
        await asyncio.wait([aborting])
        store.may_save_campaigns.set()
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED)
        assert fleet.replica.scope("web").events == ()


async def test_command_during_a_save_is_decided_on_the_saved_record() -> None:
    store = CampaignGatedStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec(start_at=TEN + HOUR))
        store.may_save_campaigns.clear()
        passing = asyncio.create_task(advance_to(fleet, TEN + HOUR))
        await until(lambda: store.waiting == 1)
        pausing = asyncio.create_task(fleet.campaigns.pause(CAMPAIGN_ID, by="bob"))
        aborting = asyncio.create_task(fleet.campaigns.abort(CAMPAIGN_ID, by="bob"))
        store.may_save_campaigns.set()
        await asyncio.gather(passing, pausing, aborting)
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED)
        assert fleet.replica.scope("web").events == ()
        entries = [row.entry for row in await read_campaign_journal(store)]
        assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
        assert [entry.kind for entry in entries][:4] == [
            EntryKind.CAMPAIGN_STARTED,
            EntryKind.WAVE_ANNOUNCED,
            EntryKind.CAMPAIGN_PAUSED,
            EntryKind.CAMPAIGN_ABORTED,
        ]


async def test_index_is_kept_when_the_watch_is_faster_than_the_save(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch delivers our own save as another object, which must not count as a change by another process."""
    store, rebuilt, reset = CampaignGatedStore(), [], CampaignRunner._reset

    def count_and_reset(runner: CampaignRunner) -> None:
        rebuilt.append(runner.id)
        reset(runner)

    monkeypatch.setattr(CampaignRunner, "_reset", count_and_reset)
    store.is_slow_to_answer = True
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, at(16))
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert rebuilt == []


class HesitantCampaignStore(CampaignGatedStore):
    """A store that can also delay, and then refuse, the next save of one campaign."""

    def __init__(self) -> None:
        super().__init__()
        self.delayed: RecordKey | None = None
        self.is_delaying = asyncio.Event()
        self.may_refuse = asyncio.Event()

    async def intercept(self, key: RecordKey, save: Save) -> int:
        if key != self.delayed:
            return await super().intercept(key, save)
        self.delayed = None
        self.is_delaying.set()
        await self.may_refuse.wait()
        raise StoreFull(Path("/test"))


def rivals() -> tuple[Scope, Scope]:
    """Make a scope for each of two campaigns."""
    return scope("a", vm("a-0")), scope("b", vm("b-0"))


async def start_rivals(fleet: Fleet) -> None:
    """Start two campaigns whose waves are due at 10:15 and of which only one may have impact."""
    for name, id_ in (("a", CAMPAIGN_ID), ("b", OTHER_ID)):
        spec = campaign_spec(name=name, selection=Selection(scopes=(name,)), scopes_at_once=Limit(1))
        await start_campaign(fleet, spec, id_=id_)
    await advance_to(fleet, at(10, 14))


async def test_campaign_continues_when_another_one_was_paused_before_its_wave_was_saved_as_cleared() -> None:
    store, clock = CampaignGatedStore(), ManualClock(TEN)
    async with run_fleet(*rivals(), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_rivals(fleet)
        store.may_save_campaigns.clear()
        pausing = asyncio.create_task(fleet.campaigns.pause(CAMPAIGN_ID, by="bob"))
        await until(lambda: store.waiting == 1)
        clock.set(at(10, 15))
        await until(lambda: fleet.campaigns.duty.blockers(OTHER_ID).has_limit)
        store.may_save_campaigns.set()
        await pausing
        await until(lambda: fleet.campaigns.find(OTHER_ID).scopes[0].wave(1).state is WaveState.CLEARED)
        await advance_to(fleet, at(10, 20))
        states = [fleet.campaigns.find(id_).state for id_ in (CAMPAIGN_ID, OTHER_ID)]
        assert states == [CampaignState.PAUSED, CampaignState.COMPLETED]


async def test_campaign_continues_when_the_record_of_another_one_could_not_be_saved() -> None:
    store, clock = HesitantCampaignStore(), ManualClock(TEN)
    async with run_fleet(*rivals(), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_rivals(fleet)
        store.delayed = RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID)
        clock.set(at(10, 15))
        await store.is_delaying.wait()
        await until(lambda: fleet.campaigns.duty.blockers(OTHER_ID).has_limit)
        store.may_refuse.set()
        await until(lambda: fleet.campaigns.find(OTHER_ID).scopes[0].wave(1).state is WaveState.CLEARED)


async def test_campaign_continues_when_the_record_of_another_one_was_deleted() -> None:
    store, clock = HesitantCampaignStore(), ManualClock(TEN)
    async with run_fleet(*rivals(), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_rivals(fleet)
        store.delayed = RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID)
        record = await store.load(store.delayed)
        assert record is not None
        clock.set(at(10, 15))
        await store.is_delaying.wait()
        await until(lambda: fleet.campaigns.duty.blockers(OTHER_ID).has_limit)
        await store.save(record.key, None, (), expected=record.revision)
        await until(lambda: fleet.campaigns.find(OTHER_ID).scopes[0].wave(1).state is WaveState.CLEARED)
        store.may_refuse.set()


class AlwaysBroken:
    """Work always fails, at once."""

    repeatable = False

    def __init__(self) -> None:
        self.attempts: list[int] = []

    async def carry_out(self, work: Work) -> Failed:
        self.attempts.append(work.attempt)
        return Failed("no power")

    async def probe(self, work: Work) -> NotStarted:
        return NotStarted()


async def test_one_request_retries_failed_work_once_although_the_record_cannot_be_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.runner.FIRST_PAUSE", 0.001)
    store, clock, platform = HesitantCampaignStore(), ManualClock(TEN), AlwaysBroken()
    async with run_fleet(scope("a", vm("a-0")), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=None))
        await advance_to(fleet, at(10, 30))
        await fleet.campaigns.retry(CAMPAIGN_ID, "a", by="bob")
        store.may_refuse.set()
        for _ in range(3):
            store.is_delaying.clear()
            store.delayed = RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID)
            await store.is_delaying.wait()
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).scopes[0].wave(1).state is WaveState.FAILED)
        assert platform.attempts == [1, 2]
        await fleet.campaigns.retry(CAMPAIGN_ID, "a", by="bob")
        await until(lambda: fleet.campaigns.duty.busy == 0 and len(platform.attempts) == 3)


@pytest.mark.parametrize("rounds", range(8))
async def test_one_request_retries_failed_work_once_although_another_process_continues(rounds: int) -> None:
    """The first process stops at any moment after the request."""
    store, clock, platform = CampaignGatedStore(), ManualClock(TEN), AlwaysBroken()
    async with run_fleet(scope("a", vm("a-0")), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=None))
        await advance_to(fleet, at(10, 30))
        await fleet.campaigns.retry(CAMPAIGN_ID, "a", by="bob")
        for _ in range(rounds):
            await asyncio.sleep(0)
        await fleet.campaigns.duty.stop()
        await fleet.time.advance(MINUTE)
        await fleet.campaigns.duty.start()
        await until(lambda: fleet.campaigns.find(CAMPAIGN_ID).scopes[0].wave(1).state is WaveState.FAILED)
        assert platform.attempts == [1, 2]
        kinds = [row.entry.kind for row in await read_campaign_journal(store)]
        assert kinds[-2:] == [EntryKind.WAVE_RETRIED, EntryKind.WAVE_FAILED]
