"""The database file: created whole, checked before use, and left alone when it cannot be used."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.store.port import (
    Record,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreTooNew,
)
from forewarn.store.sqlite.database import DATABASE_FILE, open_for_reading, prepare_database, wrap_sqlite_errors
from forewarn.store.sqlite.directory import LOCK_FILE
from forewarn.store.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION, read_version
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import WEB, entries
from tests.store.sqlite.data_directories import fill, fingerprints, mode_of, names_in, writer_of


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


async def test_file_that_is_readable_by_others_is_made_private(tmp_path: Path) -> None:
    await fill(tmp_path, records=1)
    (tmp_path / DATABASE_FILE).chmod(0o644)
    await (await SqliteStore.open(tmp_path)).aclose()
    assert mode_of(tmp_path / DATABASE_FILE) == 0o600


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


async def test_undamaged_copy_of_an_open_store_has_everything_that_was_saved(tmp_path: Path) -> None:
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
    await assert_damaged(crashed, "the file is missing, but its log forewarn.db-wal")


async def test_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    for name in ("forewarn.db.new", "forewarn.db.new-wal", "forewarn.db.new-shm", "forewarn.db.new-journal"):
        (tmp_path / name).write_bytes(b"half written")
    store = await SqliteStore.open(tmp_path)
    await store.save(WEB, b"value", entries(1), expected=None)
    await store.aclose()
    assert names_in(tmp_path) == [DATABASE_FILE, LOCK_FILE]


async def test_file_is_written_as_promised(store: SqliteStore) -> None:
    connection = writer_of(store)._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"


async def test_reading_connection_cannot_write(store: SqliteStore) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        store._database.reader._connection.execute("DELETE FROM records")


def test_new_file_is_whole_private_and_of_the_newest_version(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    prepare_database(path)
    assert (names_in(tmp_path), mode_of(path)) == ([DATABASE_FILE], 0o600)
    with closing(open_for_reading(path)) as connection:
        assert read_version(connection) == SCHEMA_VERSION
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    before = path.read_bytes()
    prepare_database(path)
    assert path.read_bytes() == before


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("the reason")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_IOERR_SHMSIZE, StoreFull),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreCorrupt),
        (sqlite3.SQLITE_NOTADB, StoreCorrupt),
        (sqlite3.SQLITE_BUSY, StoreFailed),
        (sqlite3.SQLITE_IOERR_WRITE, StoreFailed),
        (sqlite3.SQLITE_READONLY, StoreFailed),
    ],
)
def test_error_of_sqlite_becomes_one_of_the_store(tmp_path: Path, code: int, kind: type[StoreError]) -> None:
    error = sqlite_error(code)
    with pytest.raises(kind) as raised, wrap_sqlite_errors(tmp_path):
        raise error
    assert raised.value.__cause__ is error
    assert str(tmp_path) in str(raised.value)
