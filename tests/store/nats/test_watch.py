"""The watch of a cell: what it yields after a gap, and when the stream is another one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats import watch as record_watch
from forewarn.store.nats.connection import cancel_tasks
from forewarn.store.nats.follower import Follower, FollowLost
from forewarn.store.nats.store import NatsStore
from forewarn.store.nats.stream import CellStream
from forewarn.store.nats.watch import MAX_IDLE_ROUNDS, MAX_PAGES, RecordWatch
from forewarn.store.port import Deleted, JournalQuery, Record, RecordKey, RecordKind, StoreRestored, StoreReverted
from tests.store.contract import BATCH, GUARD_SECONDS, WEB, entries, read_items, read_snapshot
from tests.support.nats_servers import NatsCluster

pytestmark = pytest.mark.process


@pytest.fixture
async def settings(nats_server: NatsCluster) -> NatsSettings:
    return await nats_server.create_cell()


@pytest.fixture
async def store(settings: NatsSettings, tmp_path: Path) -> AsyncIterator[NatsStore]:
    store = await NatsStore.open(settings, tmp_path / "one")
    yield store
    await store.aclose()


@pytest.fixture
async def other(settings: NatsSettings, tmp_path: Path) -> AsyncIterator[NatsStore]:
    """A second process."""
    store = await NatsStore.open(settings, tmp_path / "two")
    yield store
    await store.aclose()


def stream_of(store: NatsStore) -> CellStream:
    return store._stream


async def remove_consumers(store: NatsStore) -> None:
    """Remove all consumers of a stream, as the death of their server does."""
    stream = stream_of(store)
    for name in (await stream.connection.call(f"CONSUMER.NAMES.{stream.name}"))["consumers"]:
        await stream.connection.call(f"CONSUMER.DELETE.{stream.name}.{name}")


async def test_changes_of_another_process_are_yielded(store: NatsStore, other: NatsStore) -> None:
    async with store.watch() as changes:
        assert await read_snapshot(changes) == []
        revision = await other.save(WEB, b"one", entries(1), expected=None)
        assert await read_items(changes, 1) == [Record(WEB, b"one", revision)]
        assert len(await store.journal(JournalQuery())) == 1
        deleted = await other.save(WEB, None, [], expected=revision)
        assert await read_items(changes, 1) == [Deleted(WEB, deleted)]


async def test_everything_missed_in_a_gap_is_yielded_once(store: NatsStore, other: NatsStore) -> None:
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(4)]
    revisions = [await other.save(key, b"old", [], expected=None) for key in keys]
    async with store.watch() as changes:
        await read_snapshot(changes)
        await remove_consumers(store)
        changed = await other.save(keys[0], b"new", [], expected=revisions[0])
        deleted = await other.save(keys[1], None, [], expected=revisions[1])
        forgotten = await other.save(keys[2], None, [], expected=revisions[2])
        stream = stream_of(other)
        # The marker's time has ended before anybody has read it.
        await stream.connection.call(f"STREAM.PURGE.{stream.name}", {"filter": stream.subjects.of(keys[2])})
        created = await other.save(WEB, b"created", [], expected=None)
        items = await read_items(changes, 4)
        assert Record(keys[0], b"new", changed) in items
        assert Deleted(keys[1], deleted) in items
        assert Record(WEB, b"created", created) in items
        [gone] = [item for item in items if isinstance(item, Deleted) and item.key == keys[2]]
        assert revisions[2] < gone.revision
        assert gone.revision >= forgotten
        last = await other.save(BATCH, b"last", [], expected=None)
        assert await read_items(changes, 1) == [Record(BATCH, b"last", last)]


async def test_overflow_of_the_buffer_leads_to_a_new_snapshot(store: NatsStore, other: NatsStore) -> None:
    """The client drops messages; the watch still yields the newest value of each record."""
    async with store.watch() as changes:
        await read_snapshot(changes)
        connection = stream_of(store).connection
        *_, subscription = connection._slow  # the watch began after the index
        subscription._pending_queue = asyncio.Queue(2)  # room for two messages
        newest: dict[RecordKey, Record] = {}
        for step in range(5):
            for key in (RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(30)):
                value = str(step).encode()
                expected = newest[key].revision if key in newest else None
                newest[key] = Record(key, value, await other.save(key, value, [], expected=expected))
        seen: dict[RecordKey, Record] = {}
        async with asyncio.timeout(GUARD_SECONDS):
            while seen != newest:
                [item] = await read_items(changes, 1)
                assert isinstance(item, Record)
                seen[item.key] = item
        assert subscription not in connection._slow  # it was given up


@pytest.mark.parametrize("has_same_id", [False, True])
async def test_recreated_stream_ends_the_watch(
    store: NatsStore, nats_server: NatsCluster, settings: NatsSettings, *, has_same_id: bool
) -> None:
    for _ in range(3):
        revision = await store.save(BATCH, b"value", entries(1), expected=None)
        await store.save(BATCH, None, [], expected=revision)
    async with store.watch() as changes:
        await read_snapshot(changes)
        stream = stream_of(store)
        await stream.connection.call(f"STREAM.DELETE.{stream.name}")
        await stream.create(1, store._cell_id if has_same_id else "another")
        with pytest.raises(StoreRestored):
            await read_items(changes, 1)
    with pytest.raises(StoreRestored):
        await store.save(WEB, b"value", [], expected=None)
    with pytest.raises(StoreRestored):
        await store.load(WEB)


async def test_record_that_has_become_older_ends_the_watch(
    store: NatsStore, other: NatsStore, settings: NatsSettings, tmp_path: Path
) -> None:
    """A stream was restored from a backup, and has grown beyond what this process had read of it."""
    revision = await other.save(WEB, b"old", entries(1), expected=None)
    for _ in range(20):
        revision = await other.save(WEB, b"new", entries(1), expected=revision)
    async with store.watch() as changes:
        await read_snapshot(changes)
        stream = stream_of(other)
        await stream.connection.call(f"STREAM.DELETE.{stream.name}")
        await stream.create(1, store.cell_id)
        await other._queue.save(WEB, b"old", entries(1), None, {})  # `other` may have noticed the restore
        for _ in range(100):
            await stream.test_write(0)
        with pytest.raises(StoreReverted):
            await read_items(changes, 1)
    await store.aclose()
    again = await NatsStore.open(settings, tmp_path / "one")
    assert again.reverted is not None
    await again.renew()
    await again.aclose()
    renewed = await NatsStore.open(settings, tmp_path / "one")
    assert renewed.cell_id != again.cell_id
    assert renewed.reverted is None
    await renewed.aclose()


async def test_snapshot_of_a_server_that_lags_behind_is_not_complete(store: NatsStore, other: NatsStore) -> None:
    """The consumer is idle, although the leader has a newer record than it has sent."""
    revision = await other.save(WEB, b"one", [], expected=None)
    async with store.watch() as changes:
        await read_snapshot(changes)
        [watch] = store._watches
        await watch.on_start(await stream_of(store).read_state())
        watch._snapshot_end = revision
        for _ in range(MAX_IDLE_ROUNDS - 1):
            await watch.on_idle()
        assert watch._in_snapshot is not None
        with pytest.raises(FollowLost):
            await watch.on_idle()


async def test_large_snapshot_comes_in_pages(store: NatsStore, other: NatsStore) -> None:
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(12)]
    value = bytes(600 * 1024)
    expected = [Record(key, value, await store.save(key, value, [], expected=None)) for key in keys]
    async with other.watch() as changes:
        assert await read_snapshot(changes) == expected


async def test_page_that_waits_when_the_follower_starts_again_is_not_lost(
    store: NatsStore, other: NatsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next snapshot brings its records again, but they are known by then."""
    monkeypatch.setattr(record_watch, "PAGE_BYTES", 1)  # each record is a page
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(MAX_PAGES + 2)]
    expected = [Record(key, b"value", await other.save(key, b"value", [], expected=None)) for key in keys]
    stream = stream_of(store)
    watch = RecordWatch(stream, store.cell_id, on_seen=lambda _: None)
    follower = Follower(stream, [stream.subjects.records], "test", watch)
    first = asyncio.create_task(follower.run())
    async with asyncio.timeout(GUARD_SECONDS):
        while len(watch._revisions) <= MAX_PAGES:  # noqa: ASYNC110 - a page that waits raises no event
            await asyncio.sleep(0.001)
    await cancel_tasks({first})
    second = asyncio.create_task(follower.run())
    assert await read_snapshot(watch.watcher) == expected
    await cancel_tasks({second})
