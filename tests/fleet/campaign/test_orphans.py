"""Scheduled events that no campaign owns any more: they are canceled, because nothing else would start them."""

from datetime import datetime, timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core.campaign.record import CampaignState, decode, encode
from forewarn.core.event import State
from forewarn.core.journal import EntryKind
from forewarn.core.scope import ScopeKind
from forewarn.fleet import retry
from forewarn.fleet.campaign.orphans import OrphanEvents
from forewarn.fleet.errors import CampaignNotFound
from forewarn.store.memory import MemoryStore
from forewarn.store.port import RecordKey, RecordKind
from tests.core.sample_scopes import TEN, scope, vm, web_scope
from tests.fleet.campaign.campaigns import CAMPAIGN_ID, DurablePlatform, advance_to, campaign_spec, start_campaign
from tests.fleet.fleets import FailingStore, read_journal, run_fleet, until

HOUR = timedelta(hours=1)


def ten(hours: int, minutes: int = 0) -> datetime:
    return TEN.replace(hour=hours, minute=minutes)


async def test_event_of_an_unknown_campaign_is_canceled() -> None:
    """The data of campaigns may be lost, or older than that of scopes: such an event would never start."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
    record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
    assert record is not None
    await store.save(record.key, None, (), expected=record.revision)
    async with run_fleet(store=store, clock=ManualClock(ten(10, 10))) as fleet:
        await fleet.time.advance(timedelta(0))
        assert fleet.replica.scope("web").events == ()
    (canceled,) = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.CANCELED]
    assert (canceled.by, canceled.why) == ("campaigns", "its campaign is over")


async def test_event_whose_campaign_is_over_by_its_record_is_canceled() -> None:
    """A backup of scopes may be older than that of campaigns."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
    record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
    assert record is not None
    over = msgspec.structs.replace(decode(record.value), state=CampaignState.ABORTED)
    await store.save(record.key, encode(over), (), expected=record.revision)
    async with run_fleet(store=store, clock=ManualClock(ten(10, 10))) as fleet:
        await fleet.time.advance(timedelta(0))
        assert fleet.replica.scope("web").events == ()
    (canceled,) = [row.entry for row in await read_journal(store) if row.entry.kind is EntryKind.CANCELED]
    assert (canceled.by, canceled.why) == ("campaigns", "its campaign is over")


async def test_campaign_whose_record_is_deleted_ends_at_once_and_its_events_are_canceled() -> None:
    store, clock = MemoryStore(), ManualClock(TEN)
    platform = DurablePlatform(clock)
    alone = scope("db-1", vm("db-1", host="hv-db-1"), kind=ScopeKind.STANDALONE)
    async with run_fleet(web_scope(), alone, store=store, clock=clock, platform=platform) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
        await fleet.events.approve("web", "web-0", [event.id for event in fleet.replica.scope("web").events])
        await fleet.time.advance(timedelta(0))
        record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
        assert record is not None
        await store.save(record.key, None, (), expected=record.revision)
        await until(lambda: fleet.replica.scope("db-1").events == ())
        assert [event.state for event in fleet.replica.scope("web").events] == [State.STARTED]
        with pytest.raises(CampaignNotFound):
            await fleet.campaigns.pause("kernel", by="bob")
        await fleet.time.advance(3 * HOUR)
        assert (fleet.campaigns.all(), fleet.campaigns.duty.busy, fleet.campaigns.duty.waiting) == ((), 0, 0)
        await start_campaign(fleet, campaign_spec(), id_=CAMPAIGN_ID.replace("0F", "1F"))
        await fleet.time.advance(3 * HOUR)
    assert {vm: len(done) for vm, done in platform.done.items()} == {
        "db-1/db-1": 1,
        **{f"web/web-{n}": 2 if n % 3 == 0 else 1 for n in range(6)},
    }


async def test_event_is_kept_where_the_store_has_its_campaign_open() -> None:
    """What is in memory may lag behind the store."""
    store = MemoryStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
        before = fleet.replica.scope("web")
        fleet.campaigns._records._values.clear()
        orphans = OrphanEvents(fleet.scopes, fleet.campaigns._loop, fleet._main_loop)
        orphans.cancel_in(before)
        orphans.cancel_in(before)
        assert orphans.busy == len(before.events) == 1
        await until(lambda: orphans.busy == 0)
        assert fleet.replica.scope("web").events == before.events
        assert [campaign.id for campaign in fleet.campaigns.all()] == [CAMPAIGN_ID]


async def test_cancellation_is_retried_until_the_disk_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)
    store = FailingStore()
    async with run_fleet(web_scope(), store=store) as fleet:
        await start_campaign(fleet, campaign_spec())
        await advance_to(fleet, ten(10, 5))
        record = await store.load(RecordKey(RecordKind.CAMPAIGN, CAMPAIGN_ID))
        assert record is not None
        await store.save(record.key, None, (), expected=record.revision)
        store.full = True
        await until(lambda: store.refused >= 2)
        assert len(fleet.replica.scope("web").events) == 1
        store.full = False
        await until(lambda: fleet.replica.scope("web").events == ())
