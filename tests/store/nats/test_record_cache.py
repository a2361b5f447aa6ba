"""The record cache of a host: what was written is there after a restart, and a damaged file is replaced."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.store.nats.record_cache import FILE_NAME, RecordCache
from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, StoreError, StoreFailed
from tests.support.disks import fill_disk, make_full, make_read_only, mount_disk

WEB, DB = RecordKey(RecordKind.SCOPE, "web"), RecordKey(RecordKind.SCOPE, "db")
NOON = datetime(2030, 1, 7, 12, tzinfo=UTC)


async def test_records_are_there_after_a_restart(tmp_path: Path) -> None:
    cache, state = await RecordCache.open(tmp_path)
    assert state == (None, None, [])
    await cache.write([Record(WEB, b"1", 1), Record(DB, b"2", 2)], cell_id="c1", synced_at=NOON)
    await cache.write([Record(WEB, b"3", 3), Deleted(DB, 4)])
    await cache.aclose()
    again, state = await RecordCache.open(tmp_path)
    assert state == ("c1", NOON, [Record(WEB, b"3", 3)])
    await again.clear()
    await again.aclose()
    empty, state = await RecordCache.open(tmp_path)
    assert state == (None, None, [])
    await empty.aclose()


async def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    cache, _ = await RecordCache.open(tmp_path)
    await cache.aclose()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0


async def test_damaged_file_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"no database" * 1000)
    cache, state = await RecordCache.open(tmp_path)
    await cache.write([Record(WEB, b"1", 1)])
    await cache.aclose()
    assert state == (None, None, [])
    assert "is damaged" in caplog.text


async def test_missing_directory_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed):
        await RecordCache.open(tmp_path / "missing")


@pytest.mark.process
@pytest.mark.parametrize("make_unwritable", [make_full, make_read_only])
async def test_disk_that_cannot_be_written_is_read_until_it_can(
    tmp_path: Path, make_unwritable: Callable[[Path], Callable[[], None]]
) -> None:
    """Also what a process that was killed has only in the log."""
    disk = tmp_path / "disk"
    with mount_disk(disk, "4m"):
        killed, _ = await RecordCache.open(tmp_path)
        await killed.write([Record(WEB, b"1", 1)], cell_id="c1", synced_at=NOON)
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(tmp_path / f"{FILE_NAME}{suffix}", disk)
        await killed.aclose()
        make_writable = make_unwritable(disk)
        cache, state = await RecordCache.open(disk)
        assert state == ("c1", NOON, [Record(WEB, b"1", 1)])
        with pytest.raises(StoreError):
            await cache.write([Record(WEB, bytes(1 << 20), 2)])
        problem = cache.problem
        assert problem is not None
        make_writable()
        await cache.write([Record(WEB, b"3", 3)])
        assert cache.problem is None
        await cache.aclose()
        again, state = await RecordCache.open(disk)
        await again.aclose()
    assert state == ("c1", NOON, [Record(WEB, b"3", 3)])


@pytest.mark.process
async def test_disk_that_is_full_before_the_first_record_is_an_error_of_the_store(tmp_path: Path) -> None:
    with mount_disk(tmp_path / "disk", "4m"):
        fill_disk(tmp_path / "disk")
        with pytest.raises(StoreError):
            await RecordCache.open(tmp_path / "disk")
