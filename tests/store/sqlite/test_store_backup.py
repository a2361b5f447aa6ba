"""A backup made while a service saves is complete and consistent, and the restored store continues from it."""

import asyncio
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.fleet.errors import PositionNotFound
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.journal import Journal
from forewarn.store.port import JournalQuery, Record, RecordKey, RecordKind, RevisionConflict
from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import entries, whole_journal

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[3] / "docs/howto/back-up-and-restore.md"
KEYS = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(8)]


def documented() -> str:
    """Return the program that the page tells to use where there is no sqlite3."""
    [program] = re.findall(
        r"^python3 -c '(.+)' \"\$DATA/forewarn.db\" \"\$BACKUP/forewarn.db\"$", PAGE.read_text(), re.MULTILINE
    )
    return str(program)


def back_up(data: Path, backup: Path) -> None:
    backup.mkdir()
    command = [sys.executable, "-c", documented(), str(data / DATABASE_FILE), str(backup / DATABASE_FILE)]
    subprocess.run(command, check=True)


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
