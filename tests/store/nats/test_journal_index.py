"""The journal index: it can be deleted and damaged, and follows what other processes save and prune."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import PRUNE_BATCH, Extent, JournalQuery, RecordKey, RecordKind, Retention
from tests.store.contract import BATCH, NOON, WEB, entries, entry, prune_all, whole_journal
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


def index_file(directory: Path) -> Path:
    [file] = directory.glob("journal-*.db")
    return file


async def journal_lines(store: NatsStore) -> int:
    """Return how many journal messages the stream has."""
    stream = store._stream
    details = await stream.connection.call(f"STREAM.INFO.{stream.name}", {"subjects_filter": stream.subjects.journal})
    counts: dict[str, int] = details["state"].get("subjects") or {}
    return sum(counts.values())


async def test_deleted_index_is_built_again(store: NatsStore, settings: NatsSettings, tmp_path: Path) -> None:
    await store.save(WEB, b"", entries(700), expected=None)
    await store.save(BATCH, b"", entries(3), expected=None)
    await store.prune(Retention(rows=600), now=NOON)
    before = await whole_journal(store), await store.extent()
    assert len(before[0]) == 600
    await store.aclose()
    index_file(tmp_path / "one").unlink()
    again = await NatsStore.open(settings, tmp_path / "one")
    rows, extent = await whole_journal(again), await again.extent()
    # The first message was only in part beyond the retention, so the stream has kept it whole.
    assert rows[-600:] == before[0]
    assert extent == before[1]
    await prune_all(again, Retention(rows=600))
    assert await whole_journal(again) == before[0]
    await again.aclose()


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(4096)])
async def test_damaged_index_is_built_again(
    store: NatsStore, settings: NatsSettings, tmp_path: Path, content: bytes
) -> None:
    await store.save(WEB, b"", entries(3), expected=None)
    rows = await whole_journal(store)
    await store.aclose()
    index_file(tmp_path / "one").write_bytes(content)
    again = await NatsStore.open(settings, tmp_path / "one")
    assert await whole_journal(again) == rows
    await again.aclose()


async def test_index_of_another_cell_is_removed(store: NatsStore, nats_server: NatsCluster, tmp_path: Path) -> None:
    await store.save(WEB, b"", entries(3), expected=None)
    assert len(await whole_journal(store)) == 3
    await store.aclose()
    before = index_file(tmp_path / "one")
    other = await NatsStore.open(await nats_server.create_cell(), tmp_path / "one")
    assert await whole_journal(other) == []
    assert index_file(tmp_path / "one") != before
    await other.aclose()


async def test_index_ahead_of_a_restored_stream_is_built_again(
    store: NatsStore, settings: NatsSettings, tmp_path: Path
) -> None:
    """As after the restore of an older backup: the same cell, but the stream ends earlier."""
    revision = await store.save(WEB, b"", entries(1), expected=None)
    await store.save(WEB, b"", entries(1), expected=revision)
    assert len(await whole_journal(store)) == 2
    cell_id, stream = store._cell_id, store._stream
    await stream.connection.call(f"STREAM.DELETE.{stream.name}")
    await stream.create(1, cell_id)
    await store.aclose()
    again = await NatsStore.open(settings, tmp_path / "one")
    assert again.reverted is not None
    assert await whole_journal(again) == []
    await again.save(WEB, b"", entries(1, first=7), expected=None)
    assert [row.entry.n for row in await whole_journal(again)] == [7]
    await again.aclose()


async def test_index_of_a_restored_stream_that_has_grown_since_is_built_again(
    store: NatsStore, settings: NatsSettings, tmp_path: Path
) -> None:
    """Another process has saved more after the restore than this one had read before it."""
    revision = await store.save(WEB, b"", entries(1), expected=None)
    await store.save(WEB, b"", entries(1, first=2), expected=revision)
    assert len(await whole_journal(store)) == 2
    cell_id, stream = store._cell_id, store._stream
    await stream.connection.call(f"STREAM.DELETE.{stream.name}")
    await stream.create(1, cell_id)
    await store.aclose()
    other = await NatsStore.open(settings, tmp_path / "two")
    await other.save(WEB, b"", entries(1_900, first=7), expected=None)
    after = await whole_journal(other)
    await other.aclose()
    again = await NatsStore.open(settings, tmp_path / "one")
    assert await whole_journal(again) == after
    assert again.reverted is not None
    await again.aclose()
    once_more = await NatsStore.open(settings, tmp_path / "one")
    assert once_more.reverted is not None, "until new epochs have begun"
    await once_more.aclose()


async def test_journal_that_another_process_has_pruned_is_not_an_older_one(
    store: NatsStore, settings: NatsSettings, tmp_path: Path
) -> None:
    """The last row of this process is gone, but it was pruned."""
    await store.save(WEB, b"", entries(1), expected=None)
    assert len(await whole_journal(store)) == 1
    await store.aclose()
    other = await NatsStore.open(settings, tmp_path / "two")
    await other.save(BATCH, b"", entries(1), expected=None)
    await prune_all(other, Retention(rows=0))
    await other.aclose()
    again = await NatsStore.open(settings, tmp_path / "one")
    assert again.reverted is None
    await again.aclose()


async def test_new_process_sees_the_whole_journal_at_once(
    store: NatsStore, settings: NatsSettings, tmp_path: Path
) -> None:
    await store.save(WEB, b"", entries(2_000), expected=None)
    other = await NatsStore.open(settings, tmp_path / "two")
    assert await whole_journal(other) == await whole_journal(store)
    await other.aclose()


async def test_pruned_rows_leave_the_stream_and_other_indexes(
    store: NatsStore, settings: NatsSettings, tmp_path: Path
) -> None:
    other = await NatsStore.open(settings, tmp_path / "two")
    revision = None
    for n in range(1, 7):
        revision = await store.save(WEB, b"", [entry(n)], expected=revision)
    assert len(await whole_journal(other)) == 6
    await prune_all(store, Retention(rows=2))
    assert await journal_lines(store) == 2
    await store.save(BATCH, b"", entries(1), expected=None)
    assert await other.load(BATCH) is not None  # it names its journal line, for which the next query waits
    assert [row.entry.n for row in await whole_journal(other)] == [5, 6, 1]
    assert await other.extent() == await store.extent()
    await prune_all(store, Retention(age=timedelta(0)))
    assert await store.prune(Retention(rows=0), now=NOON) in (0, 3)
    extent = await store.extent()
    assert extent == Extent(pruned=extent.last, last=extent.last)
    assert await journal_lines(store) == 0
    third = await NatsStore.open(settings, tmp_path / "three")
    await third.save(RecordKey(RecordKind.SCOPE, "third"), b"", entries(1), expected=None)
    assert len(await whole_journal(third)) == 1
    assert (await third.extent()).pruned == extent.pruned
    await third.aclose()
    await other.aclose()


async def test_no_line_is_lost_when_the_journal_is_pruned_under_load(store: NatsStore) -> None:
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(6)]
    await store.save(WEB, b"", entries(3 * PRUNE_BATCH), expected=None)
    done = asyncio.Event()

    async def write(key: RecordKey) -> None:
        revision = None
        for step in range(1, 31):
            revision = await store.save(key, b"", [entry(step)], expected=revision)

    async def prune() -> None:
        while not done.is_set():
            await store.prune(Retention(rows=180), now=NOON)

    async with asyncio.TaskGroup() as tasks:
        pruning = tasks.create_task(prune())
        await asyncio.gather(*(write(key) for key in keys))
        done.set()
        await pruning
    await prune_all(store, Retention(rows=180))
    rows = await store.journal(JournalQuery(after=0))
    assert sorted((row.key.id, row.entry.n) for row in rows) == sorted(
        (key.id, n) for key in keys for n in range(1, 31)
    )
