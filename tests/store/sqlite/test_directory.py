"""A data directory is private, has one owner at a time, and is left alone when it cannot be used."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from forewarn.store.port import (
    JournalQuery,
    RecordKey,
    RecordKind,
    StoreCorrupt,
    StoreFailed,
    StoreInUse,
)
from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.directory import LOCK_FILE
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import GUARD_SECONDS, WEB, entries
from tests.store.sqlite.data_directories import fill, fingerprints, mode_of, names_in

HOLDER = """
import asyncio, sys
from pathlib import Path
from forewarn.store.sqlite.store import SqliteStore

async def hold() -> None:
    await SqliteStore.open(Path(sys.argv[1]))
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(hold())
"""


@contextmanager
def held_by_another_process(directory: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(directory)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


async def test_directory_and_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    inherited = os.umask(0)
    try:
        store = await SqliteStore.open(tmp_path / "new" / "data")
        await store.save(WEB, b"value", entries(1), expected=None)
    finally:
        os.umask(inherited)
    assert mode_of(tmp_path / "new" / "data") == 0o700
    modes = {path.name: oct(mode_of(path)) for path in (tmp_path / "new" / "data").iterdir()}
    names = ["forewarn.db", "forewarn.db-shm", "forewarn.db-wal", "forewarn.lock"]
    assert modes == dict.fromkeys(names, oct(0o600))
    await store.aclose()


async def test_empty_directory_is_made_private(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    await (await SqliteStore.open(directory)).aclose()
    assert mode_of(directory) == 0o700


async def test_directory_with_other_files_keeps_its_mode(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    (directory / "notes.txt").write_text("mine")
    await (await SqliteStore.open(directory)).aclose()
    assert mode_of(directory) == 0o755
    assert mode_of(directory / DATABASE_FILE) == 0o600


async def test_closed_store_leaves_one_file_and_the_empty_lock(tmp_path: Path) -> None:
    await fill(tmp_path, records=1)
    assert names_in(tmp_path) == [DATABASE_FILE, LOCK_FILE]
    assert (tmp_path / LOCK_FILE).read_bytes() == b""


@pytest.mark.process
async def test_directory_in_use_by_another_process_is_refused_with_its_pid(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as holder:
        before = fingerprints(tmp_path)
        with pytest.raises(StoreInUse, match=f"process {holder.pid}: stop it") as refusal:
            await SqliteStore.open(tmp_path)
        assert (refusal.value.directory, refusal.value.pid) == (tmp_path, holder.pid)
        assert fingerprints(tmp_path) == before


@pytest.mark.process
async def test_directory_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with held_by_another_process(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait(GUARD_SECONDS)
        await (await SqliteStore.open(tmp_path)).aclose()


async def test_directory_in_use_by_this_process_is_refused(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    with pytest.raises(StoreInUse) as refusal:
        await SqliteStore.open(tmp_path)
    assert refusal.value.pid == os.getpid()
    await store.save(WEB, b"value", entries(1), expected=None)
    await store.aclose()
    await (await SqliteStore.open(tmp_path)).aclose()


async def test_lock_without_a_readable_pid_is_still_a_lock(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    (tmp_path / LOCK_FILE).write_bytes(b"")
    with pytest.raises(StoreInUse, match="in use by another process") as refusal:
        await SqliteStore.open(tmp_path)
    assert refusal.value.pid is None
    await store.aclose()


async def test_damage_in_the_journal_shows_when_it_is_read(tmp_path: Path) -> None:
    await fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE journal SET entry = '{' WHERE position = 7")
    store = await SqliteStore.open(tmp_path)
    assert await store.load(RecordKey(RecordKind.SCOPE, "scope-7")) is not None
    assert len(await store.journal(JournalQuery(limit=6))) == 6
    with pytest.raises(StoreCorrupt):
        await store.journal(JournalQuery())
    await store.save(WEB, b"value", entries(1), expected=None)
    await store.aclose()


async def test_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StoreFailed, match="check its disk, owner and permissions") as refusal:
            await SqliteStore.open(path)
        assert refusal.value.path == path
    assert (tmp_path / "file").read_text() == "mine"
