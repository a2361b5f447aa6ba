"""Campaigns that were started: what they announce and let start, when they stop, and what people do with them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core import impact_lifecycle
from forewarn.core.campaign.limits import Counts
from forewarn.core.campaign.plan import Plan
from forewarn.core.campaign.record import CampaignState, ScopeProgress, Wave, WaveState, decode, encode
from forewarn.core.campaign.spec import Limit, Selection, Window
from forewarn.core.errors import (
    CampaignScopeNotFound,
    Invalid,
    InvalidCampaignState,
    KeyConflict,
    PlacementFailed,
    ResourceExists,
)
from forewarn.core.event import EventType, State
from forewarn.core.explain import explain
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.impact import Done
from forewarn.core.journal import EntryKind
from forewarn.core.scope import Scope
from forewarn.fleet.errors import CampaignNotFound, GateNotFound
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import MAX_GUARDS, RecordKey, RecordKind
from tests.core.campaign.wave_counts import wave_counts
from tests.core.sample_scopes import TEN, schedule_request, scope, vm, web_scope
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    MINUTE,
    DurablePlatform,
    FakeGateChecker,
    advance_to,
    campaign_spec,
    journal_lines,
    plan_campaign,
    read_campaign_journal,
    single,
    start_campaign,
)
from tests.fleet.campaign.policy_checks import PolicyCheckingStore
from tests.fleet.fleets import FailingStore, InterceptedStore, Save, read_journal, run_fleet, until

HOUR = timedelta(hours=1)


def ten(hours: int, minutes: int = 0) -> datetime:
    return TEN.replace(hour=hours, minute=minutes)


def states(fleet: Fleet, id_: str = "web") -> list[str]:
    progress = fleet.campaigns.find(CAMPAIGN_ID).progress(id_)
    assert progress is not None
    return [wave.state.text for wave in progress.waves]


def scheduled(fleet: Fleet, id_: str = "web") -> list[str]:
    return [event.id for event in fleet.replica.scope(id_).events if event.state is State.SCHEDULED]


async def test_waves_follow_each_other_with_notice_and_gap() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(3 * HOUR)
        campaign = fleet.campaigns.find("kernel")
    assert journal_lines(await read_campaign_journal(store)) == [
        "10:00 campaign-started",
        "10:00 web 1 wave-announced",
        "10:15 web 1 wave-cleared",
        "10:16 web 1 wave-settled",
        "10:31 web 2 wave-announced",
        "10:46 web 2 wave-cleared",
        "10:47 web 2 wave-settled",
        "11:02 web 3 wave-announced",
        "11:17 web 3 wave-cleared",
        "11:18 web 3 wave-settled",
        "11:18 campaign-ended",
    ]
    assert (campaign.state, campaign.ended_at, wave_counts(campaign)) == (
        CampaignState.COMPLETED,
        ten(11, 18),
        {WaveState.DONE: 3},
    )
    assert sum(wave.vms for progress in campaign.scopes for wave in progress.waves) == 6


async def test_approved_wave_starts_early_and_the_next_ones_move_up_with_full_notice() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec(gap=5 * MINUTE))
        await advance_to(fleet, ten(10, 2))
        await fleet.events.approve("web", "web-0", scheduled(fleet))
        await advance_to(fleet, ten(10, 10))
        assert (await fleet.campaigns.status(CAMPAIGN_ID)).expected_end == ten(10, 43)
        await fleet.time.advance(HOUR)
    assert journal_lines(await read_campaign_journal(store), EntryKind.WAVE_ANNOUNCED, EntryKind.WAVE_CLEARED) == [
        "10:00 web 1 wave-announced",
        "10:02 web 1 wave-cleared",
        "10:03 web 2 wave-announced",
        "10:18 web 2 wave-cleared",
        "10:19 web 3 wave-announced",
        "10:34 web 3 wave-cleared",
    ]


async def test_without_advance_nothing_starts_before_its_planned_time() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        planned = [wave.not_before for wave in plan_campaign(fleet, campaign_spec(advance=False)).waves]
        await start_campaign(fleet, campaign_spec(advance=False))
        for _ in range(30):
            await fleet.time.advance(5 * MINUTE)
            await fleet.events.approve("web", "web-0", scheduled(fleet))
    cleared = [row.entry.at for row in await read_campaign_journal(store) if row.entry.kind is EntryKind.WAVE_CLEARED]
    assert cleared == planned


async def test_limits_count_impacts_of_other_causes() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock, length=20 * MINUTE)
    async with run_fleet(single(1), single(2), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(selection=Selection(scopes=("db-1",)), vms_at_once=Limit(1)))
        await advance_to(fleet, ten(10, 10))
        await fleet.events.schedule(schedule_request(EventType.REDEPLOY, "db-2", failure=True))
        await advance_to(fleet, ten(10, 20))
        assert states(fleet, "db-1") == ["announced"]
        assert (await fleet.campaigns.status("kernel")).explain[0] == (
            "the next wave waits for room: vms_at_once allows 1: with this wave there would be 2, 1 VM too many"
        )
        await fleet.time.advance(HOUR)
    assert journal_lines(await read_campaign_journal(store), EntryKind.WAVE_CLEARED) == ["10:30 db-1 1 wave-cleared"]


async def test_limits_count_impacts_that_began_while_no_campaign_ran() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock, length=40 * MINUTE)
    async with run_fleet(single(1), single(2), store=store, clock=clock, platform=platform) as fleet:
        await fleet.events.schedule(schedule_request(EventType.REDEPLOY, "db-2", failure=True))
        await start_campaign(fleet, campaign_spec(selection=Selection(scopes=("db-1",)), vms_at_once=Limit(1)))
        await fleet.time.advance(2 * HOUR)
    assert journal_lines(await read_campaign_journal(store), EntryKind.WAVE_CLEARED) == ["10:55 db-1 1 wave-cleared"]


async def test_large_wave_is_not_overtaken_by_smaller_ones() -> None:
    """What is first in the plan and does not fit yet is waited for."""
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock, length=10 * MINUTE)
    large = scope("a", *(vm(f"a-{n}", domain=0) for n in range(4)))
    async with run_fleet(large, *(single(n) for n in range(6)), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(vms_at_once=Limit(4)))
        await advance_to(fleet, ten(10, 14))
        await fleet.events.schedule(schedule_request(EventType.REBOOT, "db-5", failure=True))
        await fleet.time.advance(2 * HOUR)
    assert journal_lines(await read_campaign_journal(store), EntryKind.WAVE_CLEARED)[0] == "10:24 a 1 wave-cleared"


async def test_paused_campaign_starts_nothing_until_it_is_resumed() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), single(1), store=store) as fleet:
        await start_campaign(fleet, campaign_spec(scopes_at_once=Limit(1)))
        await advance_to(fleet, ten(10, 2))
        paused = await fleet.campaigns.pause("kernel", by="bob", why="lunch")
        assert paused.state is CampaignState.PAUSED
        await fleet.events.approve("web", "web-0", scheduled(fleet))
        await advance_to(fleet, ten(12))
        assert (states(fleet), states(fleet, "db-1")) == (["announced", "planned", "planned"], ["planned"])
        assert (await fleet.campaigns.status(CAMPAIGN_ID)).explain == (
            "paused, by bob since 2026-03-02 10:02:00Z: lunch",
        )
        assert (await fleet.campaigns.status(CAMPAIGN_ID)).expected_end is None
        await fleet.campaigns.resume("kernel", by="bob")
        await fleet.time.advance(timedelta(0))
        assert states(fleet) == ["cleared", "planned", "planned"]
        await fleet.time.advance(3 * HOUR)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.COMPLETED
    assert "12:00 campaign-resumed" in journal_lines(await read_campaign_journal(store))


async def test_abort_cancels_scheduled_events_and_lets_started_ones_end() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), single(1), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
        await fleet.events.approve("web", "web-0", scheduled(fleet))
        await fleet.time.advance(timedelta(0))
        aborting = await fleet.campaigns.abort("kernel", by="bob", why="wrong kernel")
        assert aborting.state is CampaignState.ABORTING
        await fleet.time.advance(timedelta(0))
        assert [event.state for event in fleet.replica.scope("web").events] == [State.STARTED]
        assert fleet.replica.scope("db-1").events == ()
        await fleet.time.advance(HOUR)
        campaign = fleet.campaigns.find(CAMPAIGN_ID)
        with pytest.raises(InvalidCampaignState, match="is Aborted: it cannot be resumed"):
            await fleet.campaigns.resume("kernel", by="bob")
    assert (campaign.state, campaign.ended_at) == (CampaignState.ABORTED, ten(10, 6))
    assert wave_counts(campaign) == {WaveState.DONE: 1, WaveState.LEFT: 3}
    assert journal_lines(await read_campaign_journal(store), EntryKind.WAVE_LEFT) == ["10:05 db-1 1 wave-left"]
    canceled = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.CANCELED]
    assert [(entry.by, entry.why) for entry in canceled] == [("bob", "wrong kernel")]


async def test_campaign_halts_after_halt_after_failures_and_continues_when_resumed() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    platform.failing |= {"db-1/db-1": "no power", "db-2/db-2": "no light", "db-4/db-4": "no luck"}
    scopes = [single(n) for n in range(1, 6)]
    async with run_fleet(*scopes, store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(scopes_at_once=Limit(2), halt_after=2))
        await fleet.time.advance(HOUR)
        halted = fleet.campaigns.find("kernel")
        assert (halted.state, halted.failures) == (CampaignState.HALTED, 2)
        assert (await fleet.campaigns.status("kernel")).explain == (
            "halted, by campaign:kernel since 2026-03-02 10:16:00Z: 2 waves have failed: db-2, wave 1: db-2: no light",
            "wave 1 of db-1 has failed: db-1: no power; retry it or skip it",
            "wave 1 of db-2 has failed: db-2: no light; retry it or skip it",
        )
        await fleet.campaigns.retry("kernel", "db-1", by="bob")
        with pytest.raises(Invalid, match="needs a reason"):
            await fleet.campaigns.skip("kernel", "db-2", by="bob", why=" ")
        await fleet.campaigns.skip("kernel", "db-2", by="bob", why="it is going to be replaced")
        await fleet.time.advance(HOUR)
        assert (states(fleet, "db-1"), states(fleet, "db-2")) == (["done"], ["skipped"])
        assert fleet.replica.scope("db-2").events == ()
        await fleet.campaigns.resume("kernel", by="bob")
        await fleet.time.advance(3 * HOUR)
        going_on = fleet.campaigns.find("kernel")
        assert (going_on.state, going_on.failures) == (CampaignState.RUNNING, 1)
        await fleet.campaigns.retry("kernel", "db-4", by="bob")
        await fleet.time.advance(3 * HOUR)
        assert fleet.campaigns.find("kernel").state is CampaignState.COMPLETED
    assert platform.done == {f"db-{n}/db-{n}": [EventType.REBOOT] for n in (1, 3, 4, 5)}


async def test_given_up_wave_is_announced_again_for_the_vms_that_are_not_done() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    platform.failing["web/web-3"] = "no power"
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=None))
        await advance_to(fleet, ten(10, 20))
        (event,) = fleet.replica.scope("web").events
        await fleet.events.resolve(event.id, by="bob", why="it is dead")
        await fleet.time.advance(HOUR)
        assert states(fleet) == ["failed", "planned", "planned"]
        await fleet.campaigns.retry("kernel", "web", by="bob")
        await fleet.time.advance(timedelta(0))
        (again,) = fleet.replica.scope("web").events
        assert (again.vms, again.id != event.id) == (("web-3",), True)
        await fleet.time.advance(3 * HOUR)
        assert fleet.campaigns.find("kernel").state is CampaignState.COMPLETED
    assert platform.done == {f"web/web-{n}": [EventType.REBOOT] for n in range(6)}


class InterruptedStore(InterceptedStore):
    """A store in which something else happens before the next save of a campaign."""

    def __init__(self) -> None:
        super().__init__()
        self.interruption: Callable[[], Awaitable[object]] | None = None

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Let it happen, then save."""
        if key.kind is RecordKind.CAMPAIGN and (interruption := self.interruption) is not None:
            self.interruption = None
            await interruption()
        return await save()


async def test_retry_is_decided_again_if_the_scope_changes_meanwhile() -> None:
    store, clock = InterruptedStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    platform.failing["web/web-3"] = "no power"
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=None))
        await advance_to(fleet, ten(10, 20))
        (event,) = fleet.replica.scope("web").events
        store.interruption = lambda: fleet.events.resolve(event.id, by="ann", why="it is dead")
        await fleet.campaigns.retry("kernel", "web", by="bob")
        await fleet.time.advance(timedelta(0))
        (again,) = fleet.replica.scope("web").events
        assert (again.vms, again.id != event.id) == (("web-3",), True)


async def test_wave_continues_after_its_failed_event_is_retried() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    platform.failing["web/web-3"] = "no power"
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec(halt_after=None))
        await advance_to(fleet, ten(10, 20))
        assert states(fleet)[0] == "failed"
        await fleet.events.retry(fleet.replica.scope("web").events[0].id, by="bob")
        await fleet.time.advance(5 * MINUTE)
        assert (states(fleet)[0], fleet.campaigns.find("kernel").wave_failures) == ("done", {})


async def test_only_suitable_waves_can_be_retried_and_skipped() -> None:
    async with run_fleet(web_scope(), single(1)) as fleet:
        await start_campaign(fleet, campaign_spec(selection=Selection(scopes=("web",))))
        with pytest.raises(CampaignScopeNotFound):
            await fleet.campaigns.skip("kernel", "db-1", by="bob", why="x")
        await fleet.time.advance(timedelta(0))
        with pytest.raises(InvalidCampaignState, match="wave 1 of scope web is announced: it cannot be retried"):
            await fleet.campaigns.retry("kernel", "web", by="bob")
        await fleet.campaigns.skip("kernel", "web", by="bob", why="done by hand")
        await advance_to(fleet, ten(10, 20))
        assert states(fleet) == ["skipped", "announced", "planned"]
        assert [event.update_domain for event in fleet.replica.scope("web").events] == [1]
        await advance_to(fleet, ten(10, 30))
        with pytest.raises(InvalidCampaignState, match="wave 2 of scope web is in progress: it cannot be skipped"):
            await fleet.campaigns.skip("kernel", "web", by="bob", why="x")


async def test_wave_of_a_canceled_event_is_skipped() -> None:
    async with run_fleet(web_scope()) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(timedelta(0))
        await fleet.events.cancel(fleet.replica.scope("web").events[0].id, by="bob")
        await fleet.time.advance(3 * HOUR)
        assert (states(fleet), fleet.campaigns.find("kernel").state) == (
            ["skipped", "done", "done"],
            CampaignState.COMPLETED,
        )


async def test_gate_is_checked_before_every_wave_after_the_first() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    gate = FakeGateChecker(clock)
    async with run_fleet(web_scope(), store=store, clock=clock, checker=gate) as fleet:
        await start_campaign(fleet, campaign_spec(gate="health"))
        await fleet.time.advance(3 * HOUR)
    assert [(at, question.scope, question.wave) for at, question in gate.requests] == [
        (ten(10, 46), "web", 2),
        (ten(11, 17), "web", 3),
    ]


async def test_gate_that_stays_closed_halts_the_campaign_until_it_is_resumed() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    gate = FakeGateChecker(clock, (ten(10, 30), ten(12)))
    async with run_fleet(web_scope(), store=store, clock=clock, checker=gate) as fleet:
        await start_campaign(fleet, campaign_spec(gate="health", gate_patience=10 * MINUTE))
        await advance_to(fleet, ten(10, 50))
        assert (await fleet.campaigns.status("kernel")).explain[0] == (
            "gate health has been closed since 2026-03-02 10:46:00Z: the error rate is high; "
            "web waits for it; next check at 2026-03-02 10:51:00Z"
        )
        await advance_to(fleet, ten(11, 30))
        halted = fleet.campaigns.find("kernel")
        assert (halted.state, halted.state_change.at) == (CampaignState.HALTED, ten(10, 56))
        await fleet.campaigns.resume("kernel", by="bob")
        await advance_to(fleet, ten(11, 45))
        assert fleet.campaigns.find("kernel").state is CampaignState.HALTED
        await advance_to(fleet, ten(12, 5))
        await fleet.campaigns.resume("kernel", by="bob")
        await fleet.time.advance(3 * HOUR)
        assert fleet.campaigns.find("kernel").state is CampaignState.COMPLETED
    said = [
        row.entry
        for row in await read_campaign_journal(store)
        if row.entry.kind in (EntryKind.GATE_CLOSED, EntryKind.GATE_OPENED)
    ]
    assert [(f"{entry.at:%H:%M}", entry.kind, entry.facts) for entry in said][:1] == [
        ("10:46", EntryKind.GATE_CLOSED, {"gate": "health", "scope": "web", "wave": "2"})
    ]
    assert halted.state_change.why == "gate health has been closed since 2026-03-02T10:46:00Z: the error rate is high"


async def test_campaign_does_nothing_in_a_held_scope_or_fleet() -> None:
    async with run_fleet(web_scope(), single(1)) as fleet:
        await fleet.holds.set(by="bob", reason="audit", scope="web")
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(timedelta(0))
        assert (states(fleet)[0], states(fleet, "db-1")) == ("planned", ["announced"])
        assert "web is held by an operator" in (await fleet.campaigns.status("kernel")).explain
        await fleet.holds.set(by="bob", reason="audit")
        await fleet.holds.release(by="bob", scope="web")
        await fleet.time.advance(HOUR)
        assert (states(fleet)[0], states(fleet, "db-1")) == ("planned", ["announced"])
        await fleet.holds.release(by="bob")
        await fleet.time.advance(timedelta(0))
        assert (states(fleet)[0], states(fleet, "db-1")) == ("announced", ["cleared"])


async def test_vm_that_moves_away_from_its_event_gets_a_further_wave() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
        await fleet.inventory.change_vm("web", "web-3", lambda old: msgspec.structs.replace(old, host="hv-9"), by="bob")
        await fleet.time.advance(4 * HOUR)
        assert states(fleet) == ["done"] * 4
    assert platform.done == {f"web/web-{n}": [EventType.REBOOT] for n in range(6)}


async def test_waves_of_a_removed_scope_are_skipped() -> None:
    async with run_fleet(web_scope(), single(1)) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
        await fleet.inventory.remove_scope("web", by="bob", force=True)
        await fleet.time.advance(HOUR)
        assert (states(fleet), fleet.campaigns.find("kernel").state) == (["skipped"] * 3, CampaignState.COMPLETED)


async def test_wave_that_became_too_large_fails_with_the_reason() -> None:
    async with run_fleet(web_scope()) as fleet:
        await start_campaign(fleet, campaign_spec(vms_at_once=Limit(2), halt_after=None))
        await advance_to(fleet, ten(10, 5))
        await fleet.inventory.add_vm("web", vm("web-7", domain=1), by="bob")
        await fleet.time.advance(HOUR)
        trouble = fleet.campaigns.find("kernel").wave_failures["web"]
        assert (trouble.wave, trouble.why) == (2, "vms_at_once allows 2, and it has 3 VMs, 1 VM too many")


async def test_outcome_that_the_scope_has_forgotten_is_read_from_the_journal() -> None:
    """The service was down for more than a day; the platform's work had been settled right before."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(single(1), store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 15))
        value = fleet.replica.scope("db-1")
        event = value.events[0].id
        conditions = fleet.scopes.rule_context
    record = await store.load(RecordKey(RecordKind.SCOPE, "db-1"))
    assert record is not None
    ended = impact_lifecycle.settle(
        msgspec.json.decode(record.value, type=Scope), event, "db-1", Done(), conditions, now=ten(10, 16)
    )
    assert ended.scope is not None
    forgot = msgspec.structs.replace(ended.scope, ended=())
    await store.save(record.key, msgspec.json.encode(forgot), ended.entries, expected=record.revision)
    clock = ManualClock(TEN + timedelta(days=2))
    async with run_fleet(store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await fleet.time.advance(HOUR)
        campaign = fleet.campaigns.find("kernel")
    assert (campaign.state, wave_counts(campaign)[WaveState.DONE]) == (CampaignState.COMPLETED, 1)


async def test_request_with_a_key_starts_one_campaign() -> None:
    async with run_fleet(web_scope()) as fleet:
        once = IdempotencyKey("k1", "d1")
        first = await start_campaign(fleet, campaign_spec(), idempotency_key=once)
        assert (
            await start_campaign(fleet, campaign_spec(), id_=CAMPAIGN_ID.replace("0F", "1F"), idempotency_key=once)
            == first
        )
        assert fleet.campaigns.find_by_key(once) == first
        with pytest.raises(KeyConflict):
            await start_campaign(fleet, campaign_spec(name="other"), idempotency_key=IdempotencyKey("k1", "d2"))
        await fleet.campaigns.pause("kernel", by="bob", idempotency_key=IdempotencyKey("k2", "p"))
        await fleet.campaigns.resume("kernel", by="bob", idempotency_key=IdempotencyKey("k3", "r"))
        assert (
            await fleet.campaigns.pause("kernel", by="bob", idempotency_key=IdempotencyKey("k2", "p"))
        ).state is CampaignState.RUNNING


async def test_campaign_is_found_by_id_in_any_case_and_by_name() -> None:
    async with run_fleet(web_scope()) as fleet:
        first = await start_campaign(fleet, campaign_spec())
        with pytest.raises(ResourceExists, match="an open campaign kernel"):
            await start_campaign(fleet, campaign_spec(), id_=CAMPAIGN_ID.replace("0F", "1F"))
        assert fleet.campaigns.find(CAMPAIGN_ID.lower()) == fleet.campaigns.find("kernel") == first
        await fleet.campaigns.abort("kernel", by="bob")
        await fleet.time.advance(timedelta(0))
        second = await start_campaign(fleet, campaign_spec(), id_=CAMPAIGN_ID.replace("0F", "1F"))
        assert fleet.campaigns.find("kernel").id == second.id
        assert [campaign.state for campaign in fleet.campaigns.all()] == [CampaignState.ABORTED, CampaignState.RUNNING]
        with pytest.raises(CampaignNotFound):
            fleet.campaigns.find("nobody")


async def test_invalid_campaign_is_refused_before_anything_is_saved() -> None:
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        with pytest.raises(
            GateNotFound, match="there is no gate health: the settings have no gates; gates are set in forewarn"
        ):
            await start_campaign(fleet, campaign_spec(gate="health"))
        with pytest.raises(Invalid, match="no time zone"):
            fleet.campaigns.check(campaign_spec(windows=(Window(start="22:00", end="04:00", zone="Mars/Olympus"),)))
        with pytest.raises(PlacementFailed, match="2 VMs of scope web cannot be placed because of vms_at_once"):
            await start_campaign(fleet, campaign_spec(vms_at_once=Limit(1)))
        nothing = Plan(waves=(), unplaced=(), ends_at=None, totals=Counts())
        with pytest.raises(Invalid, match="matches no VM"):
            await fleet.campaigns.start(campaign_spec(), nothing, by="alice")
    assert await read_campaign_journal(store) == []


async def test_campaign_continues_when_the_disk_has_room_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("campaign.runner", "retry"):
        monkeypatch.setattr(f"forewarn.fleet.{module}.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("forewarn.fleet.scheduler.FIRST_PAUSE", 0.001)
    store, clock = FailingStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=SimulatedPlatform(clock)) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 10))
        store.full = True
        clock.set(ten(10, 15))
        await until(lambda: fleet.metrics.failures > 2)
        store.full = False
        await fleet.time.advance(3 * HOUR)
        assert fleet.campaigns.find("kernel").state is CampaignState.COMPLETED
    assert [row.entry.n for row in await read_campaign_journal(store)] == list(range(1, 12))


async def test_vm_added_to_a_settled_update_domain_gets_a_further_wave_and_no_vm_is_maintained_twice() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    async with run_fleet(web_scope(), store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 40))
        await fleet.inventory.add_vm("web", vm("web-7", domain=0), by="bob")
        await fleet.inventory.change_vm(
            "web", "web-0", lambda old: msgspec.structs.replace(old, update_domain=2), by="bob"
        )
        await fleet.time.advance(4 * HOUR)
        assert states(fleet) == ["done"] * 4
    assert platform.done == {f"web/web-{n}": [EventType.REBOOT] for n in (0, 1, 2, 3, 4, 5, 7)}


async def test_oldest_ended_campaigns_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.fleet.campaign.service.MAX_FINISHED", 2)
    store = MemoryStore()
    async with run_fleet(single(1), store=store) as fleet:
        for n in range(5):
            await start_campaign(fleet, campaign_spec(name=f"c{n}"), id_=CAMPAIGN_ID.replace("0F", f"{n}F"))
            await fleet.time.advance(HOUR)
        assert [campaign.name for campaign in fleet.campaigns.all()] == ["c2", "c3", "c4"]
    async with run_fleet(store=store) as fleet:
        assert [campaign.name for campaign in fleet.campaigns.all()] == ["c2", "c3", "c4"]


async def test_blocker_of_an_event_names_its_campaign() -> None:
    async with run_fleet(web_scope()) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(timedelta(0))
        await fleet.campaigns.pause("kernel", by="bob")
        await fleet.time.advance(HOUR)
        value = fleet.replica.scope("web")
        holds = explain(value, value.events[0], fleet.scopes.rule_context, now=fleet.clock.now())
        assert [str(hold) for hold in holds] == ["campaign kernel has not cleared it"]


async def test_each_event_of_a_wave_starts_when_it_is_approved_or_due() -> None:
    """A wave on two hosts has two events, which guests approve by themselves."""
    store = MemoryStore()
    spread = scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1"), vm("web-2", domain=1))
    async with run_fleet(spread, store=store) as fleet:
        await start_campaign(fleet, campaign_spec(gap=5 * MINUTE))
        await advance_to(fleet, ten(10, 3))
        await fleet.events.approve("web", "web-0", scheduled(fleet)[:1])
        await fleet.time.advance(HOUR)
    started = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.STARTED]
    assert [(entry.at, entry.vms) for entry in started] == [
        (ten(10, 3), ("web-0",)),
        (ten(10, 15), ("web-1",)),
        (ten(10, 31), ("web-2",)),
    ]


async def test_limits_count_impacts_of_other_campaigns() -> None:
    store, clock = PolicyCheckingStore(), ManualClock(TEN)
    platform = DurablePlatform(clock, length=7 * MINUTE)
    async with run_fleet(
        web_scope(), *(single(n) for n in range(4)), store=store, clock=clock, platform=platform
    ) as fleet:
        for n, pattern in enumerate(("web", "db-*")):
            spec = campaign_spec(name=f"c{n}", selection=Selection(scopes=(pattern,)), vms_at_once=Limit(2))
            await start_campaign(fleet, spec, id_=CAMPAIGN_ID.replace("0F", f"{n}F"))
        await fleet.time.advance(6 * HOUR)
        assert {campaign.state for campaign in fleet.campaigns.all()} == {CampaignState.COMPLETED}
    assert (store.started, store.most_vms) == (7, 2)


async def test_campaign_stays_paused_over_a_restart() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        await start_campaign(fleet, campaign_spec())
        await fleet.time.advance(MINUTE)
        await fleet.campaigns.pause("kernel", by="bob", why="lunch")
    async with run_fleet(store=store, clock=clock) as fleet:
        await fleet.time.advance(HOUR)
        assert states(fleet) == ["announced", "planned", "planned"]
        await fleet.campaigns.resume("kernel", by="bob")
        await fleet.time.advance(3 * HOUR)
        assert fleet.campaigns.find("kernel").state is CampaignState.COMPLETED


async def test_wave_whose_events_were_canceled_before_its_announcement_was_saved_is_skipped() -> None:
    """The service died between the two saves of an announcement, and an operator canceled the event first."""
    store = MemoryStore()
    async with run_fleet(single(1), store=store) as fleet:
        before = await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 1))
        await fleet.campaigns.pause("kernel", by="bob")
        await fleet.events.cancel(fleet.replica.scope("db-1").events[0].id, by="bob")
    record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
    assert record is not None
    await store.save(record.key, encode(before), (), expected=record.revision)
    async with run_fleet(store=store, clock=ManualClock(ten(10, 2))) as fleet:
        await fleet.time.advance(timedelta(0))
        assert (states(fleet, "db-1"), fleet.campaigns.find("kernel").state) == (["skipped"], CampaignState.COMPLETED)


async def test_reason_of_the_start_is_kept() -> None:
    async with run_fleet(web_scope()) as fleet:
        await start_campaign(fleet, campaign_spec(), why="ticket 4711")
        await fleet.campaigns.pause(CAMPAIGN_ID, by="bob", why="lunch")
        campaign = fleet.campaigns.find(CAMPAIGN_ID)
        assert (campaign.why, campaign.state_change.why) == ("ticket 4711", "lunch")
    record = msgspec.to_builtins(campaign)
    del record["why"]
    assert decode(msgspec.json.encode(record)).why == "", "records from before have none"


async def test_status_of_a_large_campaign_does_not_block_the_event_loop() -> None:
    waves = tuple(Wave(domain, domain * 3_600, vms=1) for domain in range(5))
    async with run_fleet(web_scope()) as fleet:
        small = await start_campaign(
            fleet, campaign_spec(scopes_at_once=Limit(10)), id_=CAMPAIGN_ID.replace("0F", "1F")
        )
        scopes = tuple(ScopeProgress(f"s{n}", n * 60, waves) for n in range(20_000))
        large = msgspec.structs.replace(small, id=CAMPAIGN_ID, scopes=scopes)
        fleet.campaigns._records.update(CAMPAIGN_ID, large, 1)
        asking = asyncio.create_task(fleet.campaigns.status(CAMPAIGN_ID))
        rounds = 0
        while not asking.done():
            await asyncio.sleep(0)
            rounds += 1
        waits, expected_end, _ = await asking
    assert rounds > 10, "others had their turns"
    assert waits == ("20000 scopes wait to be announced",)
    assert expected_end is not None
    assert expected_end >= TEN + timedelta(minutes=20_000)


async def test_overlapping_campaigns_are_reported() -> None:
    async with run_fleet(web_scope(), single(1)) as fleet:
        await start_campaign(fleet, campaign_spec(selection=Selection(scopes=("web",))))
        other = campaign_spec(name="firmware", selection=Selection(all=True, exclude_vms=("web-5",)))
        assert await fleet.campaigns.overlaps(other) == (
            "campaign kernel also still has to maintain 5 VMs of these: both will do so in turn",
        )
        assert await fleet.campaigns.overlaps(campaign_spec(selection=Selection(scopes=("db-*",)))) == ()
        await fleet.time.advance(20 * MINUTE)
        assert (await fleet.campaigns.overlaps(other))[0].startswith("campaign kernel also still has to maintain 3 VMs")
        await fleet.time.advance(12 * HOUR)
        assert await fleet.campaigns.overlaps(other) == ()


async def test_many_campaigns_that_become_due_on_one_scope_are_all_announced() -> None:
    """Each announcement rests on the record of its campaign, and a save names a limited number of records."""
    async with run_fleet(web_scope()) as fleet:
        for n in range(MAX_GUARDS + 4):
            spec = campaign_spec(name=f"c{n}", start_at=TEN + HOUR)
            await start_campaign(fleet, spec, id_=f"{CAMPAIGN_ID[:-2]}{n:02}")
        await advance_to(fleet, TEN + HOUR)
        announced = {event.campaign for event in fleet.replica.scope("web").events}
        assert len(announced) == MAX_GUARDS + 4
