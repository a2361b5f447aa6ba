"""Seen records: polls of enabled scopes are saved in few records, under the clock lease, and count after a restart."""

from datetime import datetime, timedelta

import msgspec
import pytest

from forewarn.clock import ManualClock
from forewarn.core.policy import PRODUCTION
from forewarn.core.scope import Scope
from forewarn.fleet import seen_record
from forewarn.fleet.errors import LeaseLost
from forewarn.fleet.seen_record import RECORDS, SeenTimes, record_of
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import Guards, RecordKey, RecordKind
from tests.core.sample_scopes import TEN, web_scope
from tests.fleet.fleets import run_fleet, until

HOUR = timedelta(hours=1)
KEY = RecordKey(RecordKind.SEEN, record_of("web"))


def enabled_scope() -> Scope:
    return msgspec.structs.replace(web_scope(), enabled=True, was_enabled=True, seen_at=TEN)


async def saved_times(store: MemoryStore) -> dict[str, datetime] | None:
    record = await store.load(KEY)
    return None if record is None else msgspec.json.decode(record.value, type=SeenTimes).scopes


async def test_time_is_saved_in_the_record_of_the_scope_and_the_scope_is_not() -> None:
    store = MemoryStore()
    async with run_fleet(enabled_scope(), store=store) as fleet:
        view = fleet.replica.view("web")
        revision, view.seen_at = view.revision, TEN + HOUR
        for number in range(RECORDS):
            await fleet.duties.seen_writer.save(str(number))
        assert await saved_times(store) == {"web": TEN + HOUR}
        assert view.revision == revision
        assert fleet.last_seen.of(view) == TEN + HOUR
        before = await store.load(KEY)
        await fleet.duties.seen_writer.save(record_of("web"))
        assert await store.load(KEY) == before, "an unchanged record is not written"


async def test_time_that_the_scope_has_itself_is_not_repeated() -> None:
    store = MemoryStore()
    async with run_fleet(enabled_scope(), store=store) as fleet:
        fleet.replica.view("web").seen_at = TEN
        await fleet.duties.seen_writer.save(record_of("web"))
        assert await saved_times(store) is None


async def test_saved_time_counts_for_the_next_process() -> None:
    """Without it, the scope would have been idle for a day."""
    store, policy = MemoryStore(), PRODUCTION
    async with run_fleet(enabled_scope(), store=store, policy=policy) as fleet:
        fleet.replica.view("web").seen_at = TEN + 20 * HOUR
        await fleet.duties.seen_writer.save(record_of("web"))
    async with run_fleet(store=store, clock=ManualClock(TEN), policy=policy) as fleet:
        credited = fleet.replica.view("web").alive_at
        assert credited is not None
        assert credited >= TEN + 20 * HOUR


async def test_former_holder_saves_no_times() -> None:
    store = MemoryStore()

    def lost() -> Guards:
        raise LeaseLost("another process has it")

    async with run_fleet(enabled_scope(), store=store) as fleet:
        fleet.replica.view("web").seen_at = TEN + HOUR
        fleet.duties.seen_writer._guards = lost
        with pytest.raises(LeaseLost):
            await fleet.duties.seen_writer.save(record_of("web"))
        assert await saved_times(store) is None


async def test_every_record_is_written_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HOUR.total_seconds() == seen_record.PAUSE_SECONDS * RECORDS
    monkeypatch.setattr(seen_record, "PAUSE_SECONDS", 0.0)
    store, clock = MemoryStore(), ManualClock(TEN)
    async with Fleet.run(
        store=store, platform=SimulatedPlatform(clock), clock=clock, policy=PRODUCTION, has_hosts=True
    ) as fleet:
        await fleet.inventory.add_scope(enabled_scope(), by="test")
        fleet.replica.view("web").seen_at = TEN + HOUR
        await until(lambda: fleet.duties.seen_writer._records.find("web") == TEN + HOUR)
        await fleet.duties.stop()
