"""A data directory is private, has one owner at a time, and is left alone when it cannot be used."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE

import pytest

from forewarn.store.port import (
    JournalQuery,
    Record,
    RecordKey,
    RecordKind,
    StoreCorrupt,
    StoreFailed,
    StoreInUse,
    StoreTooNew,
)
from forewarn.store.sqlite.database import DATABASE_FILE
from forewarn.store.sqlite.directory import LOCK_FILE
from forewarn.store.sqlite.schema import SCHEMA_VERSION
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import GUARD_SECONDS, WEB, entries

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


def mode_of(path: Path) -> int:
    return S_IMODE(path.stat().st_mode)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def fingerprints(directory: Path) -> dict[str, str]:
    """Return what must not change when a store is refused: every file but the lock and SQLite's scratch memory."""
    return {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.name != LOCK_FILE and path.suffix != ".db-shm"
    }


async def fill(directory: Path, records: int = 200) -> None:
    store = await SqliteStore.open(directory)
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(records)]
    await asyncio.gather(*(store.save(key, bytes(100), entries(1), expected=None) for key in keys))
    await store.aclose()


async def copy_unclean(source: Path, target: Path) -> None:
    """Copy a store that is open: what a crash would leave, its log not yet in the file."""
    store = await SqliteStore.open(source)
    await store.save(WEB, bytes(100), entries(1), expected=None)
    shutil.copytree(source, target)
    await store.aclose()
    assert (target / "forewarn.db-wal").stat().st_size > 0


def root_page(path: Path, table: str) -> int:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        page: int = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        return page


def overwrite(path: Path, offset: int, garbage: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(garbage)


async def assert_damaged(directory: Path, reason: str = "is damaged") -> None:
    before = fingerprints(directory)
    for _ in range(2):  # a second time, because a refused directory is not kept locked
        with pytest.raises(StoreCorrupt, match=reason) as refusal:
            await SqliteStore.open(directory)
        assert refusal.value.path == directory / DATABASE_FILE
    assert fingerprints(directory) == before


async def test_directory_and_files_are_for_the_owner_alone(tmp_path: Path) -> None:
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


async def test_empty_directory_is_closed_to_others(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    await (await SqliteStore.open(directory)).aclose()
    assert mode_of(directory) == 0o700


async def test_directory_with_other_things_keeps_its_mode(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    (directory / "notes.txt").write_text("mine")
    await (await SqliteStore.open(directory)).aclose()
    assert mode_of(directory) == 0o755
    assert mode_of(directory / DATABASE_FILE) == 0o600


async def test_file_that_was_opened_to_others_is_closed_again(tmp_path: Path) -> None:
    await fill(tmp_path, records=1)
    (tmp_path / DATABASE_FILE).chmod(0o644)
    await (await SqliteStore.open(tmp_path)).aclose()
    assert mode_of(tmp_path / DATABASE_FILE) == 0o600


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


async def test_owner_without_a_legible_pid_is_still_an_owner(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    (tmp_path / LOCK_FILE).write_bytes(b"")
    with pytest.raises(StoreInUse, match="in use by another process") as refusal:
        await SqliteStore.open(tmp_path)
    assert refusal.value.pid is None
    await store.aclose()


async def test_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    await fill(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 3}")
    before = fingerprints(tmp_path)
    with pytest.raises(StoreTooNew, match="install the newer Forewarn") as refusal:
        await SqliteStore.open(tmp_path)
    assert (refusal.value.path, refusal.value.version, refusal.value.supported) == (
        tmp_path / DATABASE_FILE,
        SCHEMA_VERSION + 3,
        SCHEMA_VERSION,
    )
    assert fingerprints(tmp_path) == before


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda path: path.write_bytes(b""), "the file is empty", id="emptied"),
        pytest.param(lambda path: path.write_bytes(b"[fleet]\n"), "not a database", id="another kind of file"),
        pytest.param(lambda path: overwrite(path, 0, bytes(64)), "not a database", id="header lost"),
        pytest.param(lambda path: overwrite(path, 40, b"\xff" * 300), "is damaged", id="first page overwritten"),
        pytest.param(lambda path: os.truncate(path, path.stat().st_size // 3), "is damaged", id="truncated"),
        pytest.param(
            lambda path: overwrite(path, (root_page(path, "records") - 1) * 4096, b"\xff" * 4096),
            "is damaged",
            id="records",
        ),
        pytest.param(
            lambda path: overwrite(path, (root_page(path, "counters") - 1) * 4096, b"\xff" * 4096),
            "is damaged",
            id="counters",
        ),
    ],
)
async def test_damaged_file_is_refused_and_left_alone(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    await fill(tmp_path)
    damage(tmp_path / DATABASE_FILE)
    await assert_damaged(tmp_path, reason)


async def test_damaged_file_with_a_log_is_left_alone_with_its_log(tmp_path: Path) -> None:
    original, crashed = tmp_path / "original", tmp_path / "crashed"
    await fill(original)
    await copy_unclean(original, crashed)
    page = root_page(original / DATABASE_FILE, "sqlite_autoindex_records_1")
    overwrite(crashed / DATABASE_FILE, (page - 1) * 4096, b"\xff" * 4096)
    (crashed / "forewarn.db-shm").unlink()
    await assert_damaged(crashed)


async def test_unclean_copy_that_is_not_damaged_opens_with_all_that_was_saved(tmp_path: Path) -> None:
    original, crashed = tmp_path / "original", tmp_path / "crashed"
    await fill(original)
    await copy_unclean(original, crashed)
    store = await SqliteStore.open(crashed)
    record = await store.load(WEB)
    assert record is not None
    assert record == Record(WEB, bytes(100), record.revision)
    await store.aclose()


async def test_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    await assert_damaged(tmp_path, "not written by Forewarn")


async def test_log_without_its_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    original, crashed = tmp_path / "original", tmp_path / "crashed"
    await fill(original)
    await copy_unclean(original, crashed)
    (crashed / DATABASE_FILE).unlink()
    await assert_damaged(crashed, "the file is missing, but forewarn.db-wal")


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


async def test_creation_that_was_interrupted_is_begun_anew(tmp_path: Path) -> None:
    for name in ("forewarn.db.new", "forewarn.db.new-wal", "forewarn.db.new-shm", "forewarn.db.new-journal"):
        (tmp_path / name).write_bytes(b"half written")
    store = await SqliteStore.open(tmp_path)
    await store.save(WEB, b"value", entries(1), expected=None)
    await store.aclose()
    assert names_in(tmp_path) == [DATABASE_FILE, LOCK_FILE]


async def test_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(StoreFailed, match="check its disk, owner and permissions") as refusal:
            await SqliteStore.open(path)
        assert refusal.value.path == path
    assert (tmp_path / "file").read_text() == "mine"
