"""The record cache of a host: what was written is there after a restart, and a damaged file is replaced."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from forewarn.store.nats.record_cache import FILE_NAME, RecordCache
from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, StoreFailed

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
