"""Campaigns over large fleets in which anything may happen, by lot: no policy is broken at any moment."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.clock import Clock, ManualClock, wait_until
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.campaign.spec import Blackout, CampaignSpec, Limit, Window
from forewarn.core.event import EventType, State
from forewarn.core.impact import Done, Failed, NotStarted, Retry
from forewarn.core.scope import Scope, ScopeKind
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GateFailed, GatePassed, GateRequest, Work
from tests.core.campaign.wave_counts import wave_counts
from tests.core.sample_scopes import schedule_request, scope, vm
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, campaign_spec, start_campaign
from tests.fleet.campaign.policy_checks import PolicyCheckingStore
from tests.fleet.fleets import run_fleet

FRIDAY = datetime(2026, 10, 23, 12, 0, tzinfo=UTC)
"""In the night to Sunday, clocks in Vienna go back: an hour comes twice."""

HOUR = timedelta(hours=1)


class RandomOutcomes:
    """A platform, a gate and guests that draw lots. Work takes its time, and some of it fails."""

    repeatable = True
    gates = ("health",)

    def __init__(self, clock: Clock, seed: int) -> None:
        self.random = random.Random(seed)
        self._clock = clock

    async def carry_out(self, work: Work) -> Done | Failed | Retry:
        """Do it, more or less."""
        lot = random.Random(f"{work.id} {work.attempt}").random()
        await wait_until(self._clock, self._clock.now() + timedelta(seconds=10 + int(lot * 600)))
        if lot < 0.003:
            return Failed("by lot")
        return Retry(timedelta(minutes=3)) if lot < 0.02 else Done()

    async def probe(self, work: Work) -> NotStarted:
        """Nothing survives."""
        return NotStarted()

    async def check(self, request: GateRequest) -> GatePassed | GateFailed:
        """Be shut now and then."""
        return GateFailed("by lot") if self.random.random() < 0.05 else GatePassed()


def a_fleet(number: int, outcomes: random.Random) -> list[Scope]:
    """Make scopes of one to five update domains, on hosts that they share."""
    made = []
    for n in range(number):
        domains, size = outcomes.randint(1, 5), outcomes.randint(1, 8)
        vms = (
            vm(f"s{n}-{k}", domain=k % domains, host=f"hv-{outcomes.randrange(number // 4)}-{k % domains}")
            for k in range(size)
        )
        made.append(scope(f"s{n:04d}", *vms, kind=ScopeKind.AVAILABILITY_SET, low_priority=True))
    return made


def policy(*, advance: bool) -> CampaignSpec:
    return campaign_spec(
        gap=timedelta(minutes=30),
        expected=timedelta(minutes=6),
        scopes_at_once=Limit(percent=8.0),
        hosts_at_once=Limit(percent=18.0),
        vms_at_once=Limit(percent=6.0),
        windows=(Window(start="21:00", end="07:30", zone="Europe/Vienna"), Window(start="12:00", end="14:00")),
        blackouts=(Blackout(start=FRIDAY + 12 * HOUR, end=FRIDAY + 13 * HOUR, why="backup"),),
        gate="health",
        gate_patience=timedelta(minutes=3),
        halt_after=3,
        advance=advance,
    )


async def something_happens(fleet: Fleet, outcomes: random.Random, number: int) -> None:
    """At random, guests approve, hardware fails, and VMs are evicted, moved, added and removed."""
    views = [view for view in fleet.replica.views() if view.scope is not None and view.scope.roster]
    for view in outcomes.sample(views, k=max(2, len(views) // 40)):
        current = view.scope
        assert current is not None
        if waiting := [event.id for event in current.events if event.state is State.SCHEDULED]:
            await fleet.events.approve(view.id, outcomes.choice(current.roster.vms).name, waiting)
    view = outcomes.choice(views)
    assert view.scope is not None
    victim = f"{view.id}/{outcomes.choice(view.scope.roster.vms).name}"
    match outcomes.randrange(5):
        case 0:
            await fleet.events.schedule(schedule_request(EventType.REBOOT, victim, number=number, failure=True))
        case 1:
            await fleet.events.schedule(schedule_request(EventType.PREEMPT, victim, number=number))
        case 2:
            await fleet.inventory.add_vm(view.id, vm(f"new-{number}", domain=outcomes.randrange(6)), by="lots")
        case 3:
            await fleet.holds.set(by="lots", reason="by lot", scope=view.id)
        case _:
            await fleet.holds.release(by="lots", scope=view.id)


async def people_decide(fleet: Fleet, outcomes: random.Random) -> None:
    """An operator skips failed waves and resumes the campaign."""
    campaign = fleet.campaigns.find(CAMPAIGN_ID)
    for id_ in campaign.wave_failures:
        if outcomes.random() < 0.5:
            await fleet.campaigns.retry(CAMPAIGN_ID, id_, by="bob")
        else:
            await fleet.campaigns.skip(CAMPAIGN_ID, id_, by="bob", why="by lot")
    if campaign.state in (CampaignState.HALTED, CampaignState.PAUSED):
        await fleet.campaigns.resume(CAMPAIGN_ID, by="bob")
    elif campaign.state is CampaignState.RUNNING and outcomes.random() < 0.02:
        await fleet.campaigns.pause(CAMPAIGN_ID, by="bob")


async def simulate(number: int, seed: int, *, advance: bool) -> None:
    clock, store = ManualClock(FRIDAY), PolicyCheckingStore()
    outcomes = RandomOutcomes(clock, seed)
    fleet_of = a_fleet(number, outcomes.random)
    async with run_fleet(*fleet_of, store=store, clock=clock, platform=outcomes, checker=outcomes) as fleet:
        await start_campaign(fleet, policy(advance=advance))
        for n in range(1, 2_000):
            await fleet.time.advance(timedelta(minutes=outcomes.random.randint(1, 40)))
            if fleet.campaigns.find(CAMPAIGN_ID).state.is_over:
                break
            await something_happens(fleet, outcomes.random, n)
            await people_decide(fleet, outcomes.random)
            if n % 25 == 0:
                for view in fleet.replica.views():
                    if view.scope is not None and view.scope.hold is not None:
                        await fleet.holds.release(by="lots", scope=view.id)
        campaign = fleet.campaigns.find(CAMPAIGN_ID)
    assert campaign.state is CampaignState.COMPLETED, f"seed {seed}: {wave_counts(campaign)}"
    assert store.started > number, f"seed {seed}"
    assert max(Counter(store.work_done.values())) == 1, f"seed {seed}: work was done twice on a VM"
    skipped = {progress.scope for progress in campaign.scopes for w in progress.waves if w.state is WaveState.SKIPPED}
    for id_, value in store.scopes.items():
        if id_ not in skipped:
            left = {each.name for each in value.roster if (CAMPAIGN_ID, id_, each.name) not in store.work_done}
            assert all(name.startswith("new-") for name in left), f"seed {seed}: {left} were forgotten"


@pytest.mark.parametrize(("seed", "advance"), [(1, True), (2, False)])
async def test_no_policy_is_broken_in_a_small_fleet(seed: int, advance: bool) -> None:
    await simulate(60, seed, advance=advance)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [11, 12])
async def test_no_policy_is_broken_over_two_thousand_scopes(seed: int) -> None:
    await simulate(2_000, seed, advance=True)
