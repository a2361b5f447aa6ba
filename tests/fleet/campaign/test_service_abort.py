"""Campaigns that are aborted while work of theirs has failed: people decide about it, and then they are over."""

import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.errors import InvalidCampaignState
from forewarn.fleet.service import Fleet
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, scope, vm
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    MINUTE,
    DurablePlatform,
    advance_to,
    campaign_spec,
    start_campaign,
)
from tests.fleet.fleets import run_fleet

FAILED_AT = TEN + 17 * MINUTE


def failing(clock: ManualClock) -> DurablePlatform:
    """Make a platform on which the first work fails."""
    platform = DurablePlatform(clock)
    platform.failing["web/web-0"] = "no power"
    return platform


async def abort_with_failed_work(fleet: Fleet) -> None:
    """Start a campaign of two waves, and abort it when the first has failed."""
    await fleet.inventory.add_scope(
        scope("web", *(vm(f"web-{n}", domain=n, host=f"hv-{n}") for n in range(2))), by="test"
    )
    await start_campaign(fleet, campaign_spec())
    await advance_to(fleet, FAILED_AT)
    await fleet.campaigns.abort("kernel", by="bob", why="the release is withdrawn")
    await fleet.time.advance(MINUTE)
    assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTING


async def test_skip_gives_up_stuck_impacts_and_ends_the_aborted_campaign() -> None:
    clock = ManualClock(TEN)
    async with run_fleet(clock=clock, platform=failing(clock)) as fleet:
        await abort_with_failed_work(fleet)
        explain = (await fleet.campaigns.status(CAMPAIGN_ID)).explain
        assert any("retry it or skip it" in said for said in explain)
        await fleet.campaigns.skip("kernel", "web", by="bob", why="web-0 is broken")
        await fleet.time.advance(MINUTE)
        assert fleet.replica.scope("web").events == ()
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED
        assert (await fleet.campaigns.status(CAMPAIGN_ID)).explain == ()
        campaign = fleet.campaigns.find(CAMPAIGN_ID)
    (web,) = campaign.scopes
    assert [campaign.effective_state(wave) for wave in web.waves] == [WaveState.SKIPPED, WaveState.LEFT]


async def test_skip_interrupted_by_a_crash_is_completed() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    async with run_fleet(store=store, clock=clock, platform=failing(clock)) as fleet:
        await abort_with_failed_work(fleet)
        await fleet.campaigns.skip("kernel", "web", by="bob", why="web-0 is broken")
    async with run_fleet(store=store, clock=clock, platform=DurablePlatform(clock)) as fleet:
        await fleet.time.advance(MINUTE)
        assert fleet.replica.scope("web").events == ()
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED


async def test_retry_repeats_the_work_and_begins_nothing_else() -> None:
    clock = ManualClock(TEN)
    platform = failing(clock)
    async with run_fleet(clock=clock, platform=platform) as fleet:
        await abort_with_failed_work(fleet)
        await fleet.campaigns.retry("kernel", "web", by="bob")
        await fleet.time.advance(60 * MINUTE)
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTED
    assert list(platform.done) == ["web/web-0"]


async def test_started_or_ended_wave_cannot_be_skipped() -> None:
    clock = ManualClock(TEN)
    platform = failing(clock)
    async with run_fleet(clock=clock, platform=platform) as fleet:
        await abort_with_failed_work(fleet)
        (event,) = fleet.replica.scope("web").events
        await fleet.campaigns.retry("kernel", "web", by="bob")
        with pytest.raises(InvalidCampaignState, match="wave 1 of scope web is in progress: it cannot be skipped"):
            await fleet.campaigns.skip("kernel", "web", by="bob", why="x")
        await fleet.time.advance(10 * MINUTE)
        assert fleet.replica.scope("web").find_event(event.id) is None
        with pytest.raises(InvalidCampaignState, match="campaign kernel is Aborted"):
            await fleet.campaigns.skip("kernel", "web", by="bob", why="x")
