"""The SQLite store keeps the contract, and is sound where its surroundings are not."""

import asyncio
import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from forewarn.store.port import JournalQuery, Record, RecordKey, RecordKind, StoreFailed, StoreFull, StoreInUse
from forewarn.store.sqlite import database
from forewarn.store.sqlite import store as sqlite_store
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import (
    GUARD_SECONDS,
    WEB,
    DurableStoreContract,
    OpenStore,
    entries,
    read_items,
    read_snapshot,
    whole_journal,
)
from tests.store.sqlite.data_directories import writer_of
from tests.support.disks import fill_disk, mount_disk


class TestSqliteStore(DurableStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore.open(tmp_path / "data")


def make_room(store: SqliteStore) -> None:
    writer_of(store)._connection.execute("PRAGMA max_page_count = 1000000")


def assert_sound(directory: Path) -> None:
    with closing(sqlite3.connect(directory / database.DATABASE_FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = connection.execute("SELECT count(*) FROM journal").fetchone()
        assert connection.execute("SELECT journal_rows FROM counters").fetchone() == counted


async def test_full_file_refuses_saves_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database.PRAGMAS, "max_page_count", "60")
    store = await SqliteStore.open(tmp_path)
    revision = await store.save(WEB, b"before", entries(1), expected=None)
    with pytest.raises(StoreFull) as refusal:
        await store.save(WEB, bytes(300_000), entries(1, first=2), expected=revision)
    assert refusal.value.path == tmp_path / "forewarn.db"
    assert await store.load(WEB) == Record(WEB, b"before", revision)
    assert len(await whole_journal(store)) == 1
    make_room(store)
    again = await store.save(WEB, bytes(300_000), entries(1, first=2), expected=revision)
    assert again > revision
    await store.aclose()
    assert_sound(tmp_path)


async def test_save_that_does_not_fit_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database.PRAGMAS, "max_page_count", "60")
    store = await SqliteStore.open(tmp_path)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(5)]
    values = [b"small", b"small", bytes(300_000), b"small", b"small"]
    async with store.watch() as changes:
        await read_snapshot(changes)
        results = await asyncio.gather(
            *(store.save(key, value, entries(1), expected=None) for key, value in zip(keys, values, strict=True)),
            return_exceptions=True,
        )
        assert isinstance(results.pop(2), StoreFull)
        saved = [keys[0], keys[1], keys[3], keys[4]]
        kept = [await store.load(key) for key in saved]
        assert [(record.key, record.value, record.revision) for record in kept if record] == [
            (key, b"small", revision) for key, revision in zip(saved, results, strict=True)
        ]
        assert await read_items(changes, 4) == kept
    assert [row.key for row in await whole_journal(store)] == saved
    await store.aclose()
    assert_sound(tmp_path)


async def check_often(store: SqliteStore) -> None:
    """The log may have some room left in its last pages."""
    for _ in range(5_000):
        await store.check()


@pytest.mark.process
async def test_check_detects_a_full_disk_and_its_recovery(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mount_disk(disk, "2m"):
        store = await SqliteStore.open(disk / "data")
        try:
            await store.check()
            ballast = fill_disk(disk)
            with pytest.raises(StoreFull):
                await check_often(store)
            ballast.unlink()
            await store.check()
        finally:
            await store.aclose()


@pytest.mark.process
async def test_full_disk_loses_nothing_and_saves_continue_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mount_disk(disk, "4m"):
        store = await SqliteStore.open(disk / "data")
        keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(10)]
        revisions = {key: await store.save(key, b"before", entries(1), expected=None) for key in keys}
        ballast = fill_disk(disk)
        async with store.watch() as changes:
            await read_snapshot(changes)
            results = await asyncio.gather(
                *(store.save(key, bytes(50_000), entries(1), expected=revisions[key]) for key in keys),
                return_exceptions=True,
            )
            assert [type(result) for result in results] == [StoreFull] * 10
            assert [await store.load(key) for key in keys] == [Record(key, b"before", revisions[key]) for key in keys]
            assert len(await whole_journal(store)) == 10
            ballast.unlink()
            again = await store.save(keys[0], bytes(50_000), entries(1, first=2), expected=revisions[keys[0]])
            assert await read_items(changes, 1) == [Record(keys[0], bytes(50_000), again)]
        await store.aclose()
        assert_sound(disk / "data")


@pytest.mark.process
async def test_full_disk_refuses_a_new_store_and_leaves_room_for_a_later_one(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with mount_disk(disk, "4m"):
        (disk / "data").mkdir()
        ballast = fill_disk(disk)
        with pytest.raises(StoreFull):
            await SqliteStore.open(disk / "data")
        ballast.unlink()
        store = await SqliteStore.open(disk / "data")
        await store.aclose()


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_error_of_the_system_is_reported_and_nothing_is_lost(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    revision = await store.save(WEB, b"before", entries(1), expected=None)
    with files_limited_to(100_000), pytest.raises(StoreFailed) as refusal:
        await store.save(WEB, bytes(300_000), entries(1, first=2), expected=revision)
    assert (refusal.value.path, refusal.value.reason) == (tmp_path / "forewarn.db", "disk I/O error")
    assert await store.load(WEB) == Record(WEB, b"before", revision)
    await store.save(WEB, bytes(300_000), entries(1, first=2), expected=revision)
    await store.aclose()
    assert_sound(tmp_path)


async def test_commit_that_fails_saves_nothing_of_its_group(tmp_path: Path) -> None:
    """The first few would have fitted alone, but what the disk has of a failed commit is unknown."""
    store = await SqliteStore.open(tmp_path)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(10)]
    with files_limited_to(300_000):
        results = await asyncio.gather(
            *(store.save(key, bytes(50_000), entries(1), expected=None) for key in keys), return_exceptions=True
        )
    assert [type(result) for result in results] == [StoreFailed] * 10
    assert [await store.load(key) for key in keys] == [None] * 10
    assert await whole_journal(store) == []
    await asyncio.gather(*(store.save(key, bytes(50_000), entries(1), expected=None) for key in keys))
    await store.aclose()
    assert_sound(tmp_path)


async def test_lock_of_another_program_delays_only_the_save(store: SqliteStore, tmp_path: Path) -> None:
    revision = await store.save(WEB, b"before", entries(1), expected=None)
    with closing(sqlite3.connect(tmp_path / "data" / "forewarn.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        saving = asyncio.create_task(store.save(WEB, b"after", entries(1, first=2), expected=revision))
        assert await store.load(WEB) == Record(WEB, b"before", revision)
        assert len(await store.journal(JournalQuery())) == 1
        assert not saving.done()
        other.execute("ROLLBACK")
        assert await saving > revision


async def test_permanent_lock_of_another_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    store = await SqliteStore.open(tmp_path)
    with closing(sqlite3.connect(tmp_path / "forewarn.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed) as refusal:
            await store.save(WEB, b"value", entries(1), expected=None)
        assert refusal.value.reason == "database is locked"
        other.execute("ROLLBACK")
    await store.save(WEB, b"value", entries(1), expected=None)
    await store.aclose()


async def test_closing_waits_for_saves_whose_transaction_has_not_begun(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(10)]
    with closing(sqlite3.connect(tmp_path / "forewarn.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        saves: list[asyncio.Task[int]] = []
        for wave in (keys[:1], keys[1:]):
            saves += [asyncio.create_task(store.save(key, b"value", entries(1), expected=None)) for key in wave]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        ending = asyncio.create_task(store.aclose())
        for _ in range(20):
            await asyncio.to_thread(lambda: None)
        assert not ending.done()
        other.execute("ROLLBACK")
    async with asyncio.timeout(GUARD_SECONDS):
        await asyncio.gather(*saves)
        await ending
    assert_sound(tmp_path)


async def test_cancelled_opening_leaves_the_directory_unlocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()
    open_parts = sqlite_store._OpenDatabase.open

    def open_and_tell(directory: Path) -> sqlite_store._OpenDatabase:
        try:
            return open_parts(directory)
        finally:
            opened.set()

    monkeypatch.setattr(sqlite_store._OpenDatabase, "open", open_and_tell)
    opening = asyncio.create_task(SqliteStore.open(tmp_path))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.to_thread(opened.wait)
    async with asyncio.timeout(GUARD_SECONDS):
        store = await open_when_free(tmp_path)
    await store.aclose()


async def open_when_free(directory: Path) -> SqliteStore:
    while True:
        try:
            return await SqliteStore.open(directory)
        except StoreInUse:
            await asyncio.sleep(0)


@pytest.mark.parametrize("path", ["", "with space", "with%percent", "with?question#hash", "é"])
async def test_directory_may_have_any_name(tmp_path: Path, path: str) -> None:
    store = await SqliteStore.open(tmp_path / path)
    await store.save(WEB, b"value", entries(1), expected=None)
    await store.aclose()
    assert_sound(tmp_path / path)


async def test_backup_of_a_running_store_is_a_store(store: SqliteStore, tmp_path: Path) -> None:
    """The command of docs/reference/data-directory.md."""
    revision = await store.save(WEB, b"value", entries(2), expected=None)
    rows = await store.journal(JournalQuery())
    with closing(sqlite3.connect(tmp_path / "data" / "forewarn.db")) as other:
        other.execute("VACUUM INTO ?", (str(tmp_path / "forewarn.db"),))
    await store.save(WEB, b"later", entries(1, first=3), expected=revision)

    backup = await SqliteStore.open(tmp_path)
    assert await backup.load(WEB) == Record(WEB, b"value", revision)
    assert await backup.journal(JournalQuery()) == rows
    await backup.aclose()


async def test_log_stays_small_while_saves_and_reads_never_pause(store: SqliteStore, tmp_path: Path) -> None:
    """Reads keep SQLite from restarting the log; then the writer waits for them."""
    log, largest, saves = tmp_path / "data/forewarn.db-wal", 0, 60
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(8)]
    writing = True

    async def read() -> None:
        while writing:
            async with store.watch() as changes:
                await read_snapshot(changes)
            await store.journal(JournalQuery(limit=10_000))

    async def write(key: RecordKey) -> None:
        nonlocal largest
        revision = None
        for number in range(saves):
            value = bytes([number]) * 100_000
            revision = await store.save(key, value, entries(20, first=20 * number + 1), expected=revision)
            largest = max(largest, log.stat().st_size)

    reading = [asyncio.create_task(read()) for _ in range(4)]
    await asyncio.gather(*map(write, keys))
    writing = False
    await asyncio.gather(*reading)
    assert 4 << 20 < largest < 14 << 20


async def test_log_that_another_program_keeps_is_emptied_when_that_ends(store: SqliteStore, tmp_path: Path) -> None:
    log, revision = tmp_path / "data/forewarn.db-wal", None
    revision = await store.save(WEB, b"value", entries(1), expected=None)
    with closing(sqlite3.connect(tmp_path / "data/forewarn.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM records").fetchall()
        for number in range(15):
            revision = await store.save(WEB, bytes([number]) * 700_000, [], expected=revision)
        assert log.stat().st_size > 10_000_000
        other.execute("ROLLBACK")
    for number in range(3):
        revision = await store.save(WEB, bytes([number]) * 700_000, [], expected=revision)
    assert log.stat().st_size < 4 << 20


@pytest.mark.process
async def test_check_notices_that_a_large_save_has_no_room(tmp_path: Path) -> None:
    """The log may have room for a small write on a full disk."""
    disk = tmp_path / "disk"
    with mount_disk(disk, "4m"):
        store = await SqliteStore.open(disk / "data")
        try:
            ballast = fill_disk(disk)
            os.truncate(ballast, ballast.stat().st_size - 200_000)
            await store.check()
            with pytest.raises(StoreFull):
                await store.check(700_000)
            ballast.unlink()
            await store.check(700_000)
            assert not (disk / "data/forewarn.room").exists()
        finally:
            await store.aclose()
