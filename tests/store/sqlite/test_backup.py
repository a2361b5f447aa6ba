"""A backup made while a service saves is complete and consistent, and the restored store continues from it."""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.fleet.errors import PositionNotFound
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.journal import Journal
from forewarn.store.port import (
    JournalQuery,
    Record,
    RecordKey,
    RecordKind,
    RevisionConflict,
    StoreCorrupt,
    StoreFull,
    StoreTooNew,
)
from forewarn.store.sqlite.backup import BackupSource, check_backup, copy_database, finish_backup, forget_origin
from forewarn.store.sqlite.database import DATABASE_FILE, open_for_reading
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import entries, whole_journal
from tests.support.disks import mount_disk

ORIGIN = BackupSource(made_at=datetime(2030, 1, 7, 10, tzinfo=UTC), version="1.0", preset="production")
KEYS = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(8)]


def back_up(data: Path, backup: Path) -> None:
    backup.mkdir()
    copy = backup / DATABASE_FILE
    with closing(open_for_reading(data / DATABASE_FILE)) as original:
        copy_database(original, data / DATABASE_FILE, copy, lambda *_: None)
    finish_backup(copy, ORIGIN)


class Writers:
    """Tasks that save all the time: each value says how many lines the record has."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.saves = 0
        self.enough = asyncio.Event()
        self.stopping = False

    async def write(self, key: RecordKey) -> None:
        revision: int | None = None
        number = 0
        while not self.stopping:
            number += 1
            revision = await self.store.save(key, str(number).encode(), entries(1, first=number), expected=revision)
            self.saves += 1
            if self.saves >= 200:
                self.enough.set()


async def made_under_load(data: Path, backup: Path) -> tuple[int, dict[RecordKey, Record | None]]:
    """Back up while everything is being written; return how far the journal was, and what there was, at the end."""
    store = await SqliteStore.open(data)
    writers = Writers(store)
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for key in KEYS:
            tasks.create_task(writers.write(key))
        await writers.enough.wait()
        await asyncio.to_thread(back_up, data, backup)
        writers.stopping = True
    last = (await store.extent()).last
    records = {key: await store.load(key) for key in KEYS}
    await store.aclose()
    return last, records


async def test_backup_during_writes_is_consistent(tmp_path: Path) -> None:
    last, records = await made_under_load(tmp_path / "data", tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup" / DATABASE_FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    restored = await SqliteStore.open(tmp_path / "backup")
    extent = await restored.extent()
    assert 200 <= extent.last <= last
    rows = await whole_journal(restored)
    assert [row.position for row in rows] == list(range(1, extent.last + 1))
    for key in KEYS:
        record = await restored.load(key)
        lines = [row.entry.n for row in rows if row.key == key]
        assert record is not None
        assert lines == list(range(1, int(record.value) + 1))
        newest = records[key]
        assert newest is not None
        assert record.revision <= newest.revision
    await restored.aclose()


async def test_restored_store_continues_from_the_backup(tmp_path: Path) -> None:
    await made_under_load(tmp_path / "data", tmp_path / "backup")
    restored = await SqliteStore.open(tmp_path / "backup")
    extent = await restored.extent()
    loaded = [await restored.load(key) for key in KEYS]
    records = [record for record in loaded if record is not None]
    assert len(records) == len(KEYS)
    record = records[0]
    with pytest.raises(RevisionConflict):
        await restored.save(record.key, b"late", [], expected=record.revision + 1)
    revision = await restored.save(record.key, b"new", entries(1), expected=record.revision)
    assert revision > max(each.revision for each in records)
    [row] = await restored.journal(JournalQuery(after=extent.last))
    assert row.position == extent.last + 1
    await restored.aclose()


async def test_stream_position_after_the_backup_is_refused(tmp_path: Path) -> None:
    await made_under_load(tmp_path / "data", tmp_path / "backup")
    restored = await SqliteStore.open(tmp_path / "backup")
    last = (await restored.extent()).last
    async with tasks_until_exit() as tasks:
        feeds = Journal(restored, tasks)
        assert await feeds.resolve_position(last) == last
        with pytest.raises(PositionNotFound):
            await feeds.resolve_position(last + 1)
    await restored.aclose()


async def a_database(data: Path) -> Path:
    store = await SqliteStore.open(data)
    for key in KEYS:
        await store.save(key, bytes(100_000), entries(1), expected=None)
    await store.aclose()
    return data / DATABASE_FILE


async def test_backup_is_one_file_that_names_its_origin(tmp_path: Path) -> None:
    await a_database(tmp_path / "data")
    back_up(tmp_path / "data", tmp_path / "backup")
    assert [file.name for file in (tmp_path / "backup").iterdir()] == [DATABASE_FILE]
    copy = tmp_path / "backup" / DATABASE_FILE
    assert check_backup(copy) == ORIGIN
    assert [file.name for file in (tmp_path / "backup").iterdir()] == [DATABASE_FILE], "reading leaves nothing behind"
    forget_origin(copy)
    assert check_backup(copy) is None


async def test_progress_is_reported_in_bytes(tmp_path: Path) -> None:
    source = await a_database(tmp_path / "data")
    reports: list[tuple[int, int]] = []
    (tmp_path / "copy").touch()
    with closing(open_for_reading(source)) as original:
        copy_database(original, source, tmp_path / "copy", lambda done, total: reports.append((done, total)))
    assert reports[-1] == (source.stat().st_size, source.stat().st_size)


async def test_incomplete_copy_is_refused(tmp_path: Path) -> None:
    """A copy that lacks a record of its original is sound for SQLite, but not a backup."""
    source = await a_database(tmp_path / "data")

    class Lossy(sqlite3.Connection):
        def backup(self, target: sqlite3.Connection, **options: object) -> None:
            super().backup(target)
            target.execute("DELETE FROM records WHERE id = 'scope-3'")

    connection = sqlite3.connect(source, factory=Lossy, isolation_level=None)
    with closing(connection) as original, pytest.raises(StoreCorrupt, match="the copy has"):
        copy_database(original, source, tmp_path / "copy", lambda *_: None)


@pytest.mark.process
async def test_full_disk_is_named(tmp_path: Path) -> None:
    source = await a_database(tmp_path / "data")
    with mount_disk(tmp_path / "disk", "256k"), closing(open_for_reading(source)) as original:
        copy = tmp_path / "disk/copy"
        with pytest.raises(StoreFull, match=str(copy)):
            copy_database(original, source, copy, lambda *_: None)


async def test_damaged_page_is_found(tmp_path: Path) -> None:
    await a_database(tmp_path / "data")
    back_up(tmp_path / "data", tmp_path / "backup")
    copy = tmp_path / "backup" / DATABASE_FILE
    with closing(sqlite3.connect(copy)) as connection:
        ((root,),) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'journal_by_time'").fetchall()
    with copy.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))
    with pytest.raises(StoreCorrupt):
        check_backup(copy)


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0 and no more"])
def test_other_file_is_not_a_backup(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StoreCorrupt):
        check_backup(tmp_path / "file")


async def test_backup_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    source = await a_database(tmp_path / "data")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew):
        check_backup(source)
