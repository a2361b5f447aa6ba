"""The duty to run campaigns: taken, given back, and nothing left under way."""

import asyncio
from datetime import timedelta

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import TEN, web_scope
from tests.fleet.campaign.campaigns import (
    CAMPAIGN_ID,
    campaign_spec,
    read_campaign_journal,
    start_campaign,
)
from tests.fleet.fleets import CampaignGatedStore, GatedStore, run_fleet, until
from tests.fleet.test_duty import run_cluster

HOUR = timedelta(hours=1)


async def test_command_while_the_duty_stops_is_journaled_in_order() -> None:
    store, clock = CampaignGatedStore(), ManualClock(TEN)
    async with run_fleet(web_scope(), store=store, clock=clock) as fleet:
        await start_campaign(fleet, campaign_spec(start_at=TEN + HOUR))
        store.may_save_campaigns.clear()
        clock.set(TEN + HOUR)
        await until(lambda: store.waiting == 1)
        stopping = asyncio.create_task(fleet.campaigns.duty.stop())
        await asyncio.sleep(0)
        pausing = asyncio.create_task(fleet.campaigns.pause(CAMPAIGN_ID, by="bob"))
        await asyncio.sleep(0)
        store.may_save_campaigns.set()
        await asyncio.gather(stopping, pausing)
        await fleet.campaigns.abort(CAMPAIGN_ID, by="bob")
        entries = [row.entry for row in await read_campaign_journal(store)]
        assert [entry.n for entry in entries] == list(range(1, len(entries) + 1))
        assert len(entries) == fleet.campaigns.find(CAMPAIGN_ID).entries
        assert fleet.campaigns.find(CAMPAIGN_ID).state is CampaignState.ABORTING
        assert (fleet.campaigns.duty.busy, fleet.campaigns.duty.waiting) == (0, 0)


async def test_nothing_is_canceled_after_the_duty_was_stopped() -> None:
    store = GatedStore()
    async with run_cluster(web_scope(), store=store) as cluster:
        first, second = cluster.fleets
        await start_campaign(first, campaign_spec())
        await cluster.settle()
        await cluster.give_back()
        record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
        assert record is not None
        await store.save(record.key, None, (), expected=record.revision)
        await until(lambda: not second.campaigns.all())
        await second.campaigns.duty.start()
        assert second.campaigns.duty.busy == 1
        await second.campaigns.duty.stop()
        assert second.campaigns.duty.busy == 0
        assert len(second.replica.scope("web").events) == 1
