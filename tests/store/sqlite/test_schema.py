"""A file of an older version becomes one of this version, as a whole or not at all."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from forewarn.core.journal import Entry, EntryKind
from forewarn.store.port import Extent, JournalQuery, JournalRow, Record, RecordKey, RecordKind, Retention, StoreFailed
from forewarn.store.sqlite import database
from forewarn.store.sqlite.schema import MIGRATIONS, SCHEMA_VERSION, Migration, migrate, read_version
from forewarn.store.sqlite.store import SqliteStore
from tests.store.contract import BATCH, NOON, WEB, entries

OLD_FILES = Path(__file__).parent / "old_files"
LEDGER = RecordKey(RecordKind.FLEET, "ledger")

BY_SIZE: Migration = (
    "ALTER TABLE records ADD COLUMN size INTEGER NOT NULL DEFAULT 0",
    "UPDATE records SET size = length(value)",
)
HALF_WRONG: Migration = (*BY_SIZE, "CREATE TABLE labels (name TEXT)", "INSERT INTO nowhere VALUES (1)")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file of version 1 with a record in it."""
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection, MIGRATIONS[:1])
        connection.execute("INSERT INTO records VALUES (1, 'scope', 'web', 5, x'616263')")
        yield connection


def tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def test_new_file_has_the_newest_version(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as connection:
        assert read_version(connection) == 0
        migrate(connection)
        assert read_version(connection) == SCHEMA_VERSION == len(MIGRATIONS)


def test_older_file_is_migrated_with_its_data(connection: sqlite3.Connection) -> None:
    migrate(connection, (*MIGRATIONS[:1], BY_SIZE))
    assert read_version(connection) == 2
    assert connection.execute("SELECT id, revision, value, size FROM records").fetchall() == [("web", 5, b"abc", 3)]


def test_file_of_this_version_is_not_touched(connection: sqlite3.Connection) -> None:
    before = connection.execute("PRAGMA data_version").fetchone(), connection.total_changes
    migrate(connection, MIGRATIONS[:1])
    assert (connection.execute("PRAGMA data_version").fetchone(), connection.total_changes) == before


def test_failed_migration_step_leaves_the_older_file(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, (*MIGRATIONS[:1], HALF_WRONG))
    assert read_version(connection) == 1
    assert "labels" not in tables(connection)
    assert columns(connection, "records") == ["number", "kind", "id", "revision", "value"]
    migrate(connection, (*MIGRATIONS[:1], BY_SIZE))
    assert read_version(connection) == 2


def test_failed_migration_step_keeps_the_steps_before_it(connection: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, (*MIGRATIONS[:1], BY_SIZE, ("INSERT INTO nowhere VALUES (1)",)))
    assert read_version(connection) == 2


def test_crash_during_a_migration_leaves_the_older_file(connection: sqlite3.Connection, tmp_path: Path) -> None:
    connection.execute("PRAGMA cache_size = 1")  # so that the half that was done is in the log already
    connection.execute("BEGIN IMMEDIATE")
    for statement in BY_SIZE:
        connection.execute(statement)
    connection.execute("CREATE TABLE filler (bytes BLOB)")
    connection.execute("INSERT INTO filler VALUES (zeroblob(1000000))")
    (tmp_path / "crashed").mkdir()
    for path in tmp_path.glob("store.db*"):
        shutil.copy(path, tmp_path / "crashed")
    connection.execute("ROLLBACK")
    assert (tmp_path / "crashed" / "store.db-wal").stat().st_size > 1_000_000
    with closing(sqlite3.connect(tmp_path / "crashed" / "store.db", isolation_level=None)) as crashed:
        assert read_version(crashed) == 1
        assert "filler" not in tables(crashed)
        migrate(crashed, (*MIGRATIONS[:1], BY_SIZE))
        assert crashed.execute("SELECT size FROM records").fetchall() == [(3,)]


async def test_store_migrates_an_older_file_when_it_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(tmp_path)
    revision = await store.save(WEB, b"value", entries(2), expected=None)
    rows = await store.journal(JournalQuery())
    await store.aclose()

    monkeypatch.setattr(database, "migrate", partial(migrate, migrations=(*MIGRATIONS, BY_SIZE)))
    monkeypatch.setattr(database, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    for _ in range(2):
        store = await SqliteStore.open(tmp_path)
        assert await store.load(WEB) == Record(WEB, b"value", revision)
        assert await store.journal(JournalQuery()) == rows
        await store.aclose()
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        assert read_version(connection) == SCHEMA_VERSION + 1


async def test_store_whose_migration_fails_is_unlocked_and_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(tmp_path)
    revision = await store.save(WEB, b"value", entries(2), expected=None)
    await store.aclose()

    with monkeypatch.context() as patch:
        patch.setattr(database, "migrate", partial(migrate, migrations=(*MIGRATIONS, HALF_WRONG)))
        with pytest.raises(StoreFailed, match="nowhere"):
            await SqliteStore.open(tmp_path)

    store = await SqliteStore.open(tmp_path)
    assert await store.load(WEB) == Record(WEB, b"value", revision)
    await store.aclose()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_file_of_every_released_version_opens(tmp_path: Path, version: int) -> None:
    """The files are kept as text; a version that changes the tables adds one, and touches none of the others."""
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        connection.executescript((OLD_FILES / f"version-{version}.sql").read_text(encoding="utf-8"))
        assert read_version(connection) == version

    store = await SqliteStore.open(tmp_path)
    assert await store.load(WEB) == Record(WEB, b"web, second value", 3)
    assert await store.load(BATCH) is None
    approved = Entry(
        n=2,
        at=NOON,
        kind=EntryKind.APPROVED,
        by="web-0",
        event="602D9444-D2CD-49C7-8624-8643E7171297",
        vms=("web-0",),
        incarnation=2,
        facts={"via": "guest"},
    )
    assert await store.journal(JournalQuery()) == [
        JournalRow(2, BATCH, Entry(n=1, at=NOON, kind=EntryKind.SCOPE_CREATED, by="operator")),
        JournalRow(3, WEB, approved),
        JournalRow(4, BATCH, Entry(n=2, at=NOON, kind=EntryKind.SCOPE_REMOVED, by="operator", why="empty")),
    ]
    assert await store.save(RecordKey(RecordKind.SCOPE, "new"), b"new", entries(1), expected=None) == 5
    assert (await store.journal(JournalQuery(after=4)))[0].position == 5
    await store.aclose()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_migration_of_a_released_version_is_never_changed(version: int) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as kept,
        closing(sqlite3.connect(":memory:", isolation_level=None)) as made,
    ):
        kept.executescript((OLD_FILES / f"version-{version}.sql").read_text(encoding="utf-8"))
        migrate(made, MIGRATIONS[:version])
        assert schema(made) == schema(kept)


def schema(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: " ".join(sql.split()) for name, sql in rows}


async def test_unreadable_entry_does_not_prevent_a_migration(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        connection.executescript((OLD_FILES / "version-1.sql").read_text(encoding="utf-8"))
        connection.execute("UPDATE journal SET entry = '{\"n\":' WHERE position = 2")
        connection.commit()
    store = await SqliteStore.open(tmp_path)
    assert [row.position for row in await store.journal(JournalQuery(after=2))] == [3, 4]
    assert await store.prune(Retention(rows=2), now=NOON) == 1
    await store.aclose()


async def test_migrated_file_knows_what_was_pruned(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        connection.executescript((OLD_FILES / "version-1.sql").read_text(encoding="utf-8"))
    store = await SqliteStore.open(tmp_path)
    assert await store.extent() == Extent(pruned=1, last=4)
    assert [row.position for row in await store.journal(JournalQuery(kinds=(EntryKind.APPROVED,), by="web-0"))] == [3]
    await store.aclose()


async def test_hold_of_an_older_file_gets_a_separate_record(tmp_path: Path) -> None:
    """With the keys of the requests that made it; both records have revisions that no record had before."""
    hold = b'{"held":{"by":"ann","at":"2026-03-01T12:00:00Z","reason":"\xc3\xa9 \\"x\\""},"answered":[{"key":"k1"}]}'
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        connection.executescript((OLD_FILES / "version-3.sql").read_text(encoding="utf-8"))
        state = b'{"entries":14,"filled":true,"alive_at":"2026-03-01T12:00:00Z","ports":{"web/web-0":8180}}'
        value = state[:-1] + b"," + hold[1:]
        connection.execute("INSERT INTO records VALUES (2, 'fleet', 'ledger', 4, ?)", (value,))
        connection.commit()
    store = await SqliteStore.open(tmp_path)
    assert await store.load(RecordKey(RecordKind.FLEET, "hold")) == Record(RecordKey(RecordKind.FLEET, "hold"), hold, 5)
    assert await store.load(LEDGER) == Record(LEDGER, state, 6)
    assert await store.save(RecordKey(RecordKind.SCOPE, "new"), b"new", entries(1), expected=None) == 7
    await store.aclose()


async def test_older_file_with_an_unreadable_fleet_state_is_migrated(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        connection.executescript((OLD_FILES / "version-3.sql").read_text(encoding="utf-8"))
        connection.execute("INSERT INTO records VALUES (2, 'fleet', 'ledger', 4, ?)", (b'{"held":',))
        connection.commit()
    store = await SqliteStore.open(tmp_path)
    assert await store.load(LEDGER) == Record(LEDGER, b'{"held":', 4)
    await store.aclose()


async def test_requests_of_an_older_file_are_found(tmp_path: Path) -> None:
    signed = Entry(n=2, at=NOON, kind=EntryKind.SCOPE_REMOVED, by="operator", facts={"key": "k1", "digest": "d1"})
    with closing(sqlite3.connect(tmp_path / "forewarn.db")) as connection:
        connection.executescript((OLD_FILES / "version-2.sql").read_text(encoding="utf-8"))
        connection.execute("UPDATE journal SET entry = ? WHERE position = 4", (msgspec.json.encode(signed).decode(),))
        connection.commit()
    store = await SqliteStore.open(tmp_path)
    assert await store.journal(JournalQuery(request="k1")) == [JournalRow(4, BATCH, signed)]
    await store.aclose()
