"""The host store on a real NATS server: it follows some scopes, and what it yields is on disk."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import host_store
from forewarn.store.nats.host_store import HostStore
from forewarn.store.nats.record_cache import RecordCache
from forewarn.store.nats.store import NatsStore
from forewarn.store.nats.stream import CELL_KEY
from forewarn.store.port import (
    Deleted,
    Reached,
    Record,
    RecordKey,
    RecordKind,
    SnapshotEnd,
    StoreRestored,
    StoreUnavailable,
    WatchItem,
)
from tests.fleet.host.clusters import until
from tests.support.disks import fill_disk, mount_disk
from tests.support.nats_servers import GUARD_SECONDS, NatsCluster

pytestmark = pytest.mark.process

WEB, DB = RecordKey(RecordKind.SCOPE, "web"), RecordKey(RecordKind.SCOPE, "db")
HOLD, CAMPAIGN = RecordKey(RecordKind.FLEET, "hold"), RecordKey(RecordKind.CAMPAIGN, "c1")


@pytest.fixture
async def settings(nats_server: NatsCluster) -> NatsSettings:
    return await nats_server.create_cell()


@pytest.fixture
async def control(settings: NatsSettings, tmp_path: Path) -> AsyncIterator[NatsStore]:
    store = await NatsStore.open(settings, tmp_path / "control")
    yield store
    await store.aclose()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "host"
    path.mkdir()
    return path


async def take(watch: AsyncIterator[WatchItem], count: int) -> list[WatchItem]:
    """Return the next items of a watch, except those that only tell how far it has reached."""
    taken: list[WatchItem] = []
    async with asyncio.timeout(GUARD_SECONDS):
        while len(taken) < count:
            if not isinstance(item := await anext(watch), Reached):
                taken.append(item)
    return taken


async def test_host_yields_only_what_it_follows(control: NatsStore, settings: NatsSettings, directory: Path) -> None:
    hold = await control.save(HOLD, b"h", (), expected=None)
    web = await control.save(WEB, b"w", (), expected=None)
    await control.save(DB, b"d", (), expected=None)
    await control.save(CAMPAIGN, b"c", (), expected=None)
    store = await HostStore.open(settings, "hv-0", directory)
    async with store.watch() as watch:
        assert await take(watch, 1) == [SnapshotEnd()]
        store.follow(["web"])
        assert set(await take(watch, 2)) == {Record(HOLD, b"h", hold), Record(WEB, b"w", web)}
        changed = await control.save(WEB, b"w2", (), expected=web)
        assert await take(watch, 1) == [Record(WEB, b"w2", changed)]
        store.follow([])
        assert await take(watch, 1) == [Deleted(WEB, changed + 1)]
    await store.aclose()


async def test_everything_that_was_yielded_is_on_disk(
    control: NatsStore, settings: NatsSettings, directory: Path
) -> None:
    revision = await control.save(WEB, b"w0", (), expected=None)
    store = await HostStore.open(settings, "hv-0", directory)
    store.follow(["web"])
    async with store.watch() as watch:
        await take(watch, 2)
        for number in range(1, 20):
            revision = await control.save(WEB, f"w{number}".encode(), (), expected=revision)
            (item,) = await take(watch, 1)
            cache, state = await RecordCache.open(directory)
            await cache.aclose()
            assert state.records == [item]
    await store.aclose()


async def test_newest_change_is_yielded_when_the_disk_has_room_again(
    control: NatsStore, settings: NatsSettings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mount_disk(tmp_path / "disk", "4m"):
        web = await control.save(WEB, b"w", (), expected=None)
        store = await HostStore.open(settings, "hv-0", tmp_path / "disk")
        store.follow(["web"])
        async with store.watch() as watch:
            assert await take(watch, 2) == [SnapshotEnd(), Record(WEB, b"w", web)]
            ballast = fill_disk(tmp_path / "disk")
            large = bytes(500_000)
            changed = await control.save(WEB, large, (), expected=web)
            await until(lambda: store.disk_problem is not None)
            synced_at = store.synced_at
            await store.on_idle()
            assert store.synced_at == synced_at, "the newest records are not shown"
            newest = changed
            for value in (b"w2", b"w3", b"w4"):
                newest = await control.save(WEB, value, (), expected=newest)
            await until(lambda: store._revisions[WEB] == newest)
            assert len(store._waiting) == 1, "older changes of a record need no room"
            ballast.unlink()
            assert await take(watch, 2) == [Record(WEB, large, changed), Record(WEB, b"w4", newest)]
            await until(lambda: store.disk_problem is None)
        await store.aclose()
    assert [record.levelname for record in caplog.records if "disk" in record.getMessage()] == ["ERROR", "WARNING"]


@pytest.mark.parametrize("has_marker", [True, False])
async def test_host_starts_from_disk_and_learns_of_a_deletion(
    control: NatsStore, settings: NatsSettings, directory: Path, *, has_marker: bool
) -> None:
    """Also if it was away for so long that the marker of the deletion has ended."""
    web = await control.save(WEB, b"w", (), expected=None)
    store = await HostStore.open(settings, "hv-0", directory)
    store.follow(["web"])
    async with store.watch() as watch:
        await take(watch, 2)
    await store.aclose()
    await control.save(WEB, None, (), expected=web)
    if not has_marker:
        stream = control._stream
        await stream.connection.call(f"STREAM.PURGE.{stream.name}", {"filter": stream.subjects.of(WEB)})
    store = await HostStore.open(settings, "hv-0", directory)
    async with store.watch() as watch:
        first, second, deleted = await take(watch, 3)
        assert (first, second) == (Record(WEB, b"w", web), SnapshotEnd())
        assert isinstance(deleted, Deleted)
    await store.aclose()


async def test_records_of_another_cell_are_dropped(control: NatsStore, settings: NatsSettings, directory: Path) -> None:
    web = await control.save(WEB, b"w", (), expected=None)
    cache, _ = await RecordCache.open(directory)
    await cache.write([Record(WEB, b"old", web)], cell_id="another")
    await cache.aclose()
    store = await HostStore.open(settings, "hv-0", directory)
    async with store.watch() as watch:
        with pytest.raises(StoreRestored):
            await take(watch, 10)
    await store.aclose()
    cache, state = await RecordCache.open(directory)
    await cache.aclose()
    assert state.records == []


async def test_newer_record_on_disk_stays_until_the_cell_has_a_new_id(
    control: NatsStore, settings: NatsSettings, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restore of an older backup, or while the server of the consumer does not keep up with the leader."""
    web = await control.save(WEB, b"older", (), expected=None)
    cache, _ = await RecordCache.open(directory)
    await cache.write([Record(WEB, b"newer", web + 100)], cell_id=control.cell_id)
    await cache.aclose()
    store = await HostStore.open(settings, "hv-0", directory)
    async with store.watch() as watch:
        assert await take(watch, 2) == [Record(WEB, b"newer", web + 100), SnapshotEnd()]
        await until(lambda: "an older state of scope/web" in caplog.text)
        assert store.synced_at is None, "the host does not know the newest state"
        web = await control.save(WEB, b"also older", (), expected=web)
        hold = await control.save(HOLD, b"h", (), expected=None)
        assert await take(watch, 1) == [Record(HOLD, b"h", hold)]
        await control.renew()
        with pytest.raises(StoreRestored):
            await take(watch, 1)
    await store.aclose()
    cache, state = await RecordCache.open(directory)
    await cache.aclose()
    assert state.records == []


async def test_age_of_records_on_disk_ignores_a_step_of_the_clock(
    settings: NatsSettings, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = timedelta(hours=1)
    cache, _ = await RecordCache.open(directory)
    await cache.write([Record(WEB, b"1", 1)], cell_id="c1", synced_at=datetime.now(UTC) - hour)
    await cache.aclose()
    store = await HostStore.open(replace(settings, servers=("nats://127.0.0.1:1",)), "hv-0", directory)
    monkeypatch.setattr(host_store, "datetime", Mock(now=lambda zone: datetime.now(zone) - 2 * hour))
    assert store.age is not None
    assert hour <= store.age < 2 * hour
    await store.aclose()


async def test_host_is_current_when_the_servers_have_caught_up(
    control: NatsStore, settings: NatsSettings, directory: Path
) -> None:
    web = await control.save(WEB, b"older", (), expected=None)
    cache, _ = await RecordCache.open(directory)
    await cache.write([Record(WEB, b"newer", web + 1)], cell_id=control.cell_id)
    await cache.aclose()
    store = await HostStore.open(settings, "hv-0", directory)
    async with store.watch() as watch:
        await take(watch, 2)
        assert await control.save(WEB, b"newer", (), expected=web) == web + 1
        await until(lambda: store.synced_at is not None)
        newest = await control.save(WEB, b"newest", (), expected=web + 1)
        assert await take(watch, 1) == [Record(WEB, b"newest", newest)]
    await store.aclose()


async def test_host_saves_nothing(settings: NatsSettings, directory: Path) -> None:
    store = await HostStore.open(settings, "hv-0", directory)
    with pytest.raises(StoreUnavailable):
        await store.save(WEB, b"w", (), expected=None)
    with pytest.raises(StoreUnavailable):
        await store.load(CELL_KEY)
    await store.check()
    await store.aclose()
    await store.aclose()


async def test_command_without_a_server_has_no_effect(directory: Path) -> None:
    store = await HostStore.open(NatsSettings(servers=("nats://127.0.0.1:9",), cell=token_hex(4)), "hv-0", directory)
    with pytest.raises(StoreUnavailable):
        await store.request("approve", b"")
    assert not store.is_connected
    await store.aclose()
