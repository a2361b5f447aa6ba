"""The writer: commits, compare-and-swap, guards and pruning, in one thread."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from forewarn.core.journal import Entry, EntryKind
from forewarn.store.port import (
    NO_GUARDS,
    PRUNE_BATCH,
    Deleted,
    GuardConflict,
    Guards,
    Record,
    RecordKey,
    RecordKind,
    Retention,
    RevisionConflict,
    StoreFailed,
)
from forewarn.store.sqlite import database
from forewarn.store.sqlite.database import DATABASE_FILE, prepare_database
from forewarn.store.sqlite.store import SqliteStore
from forewarn.store.sqlite.writer import EncodedEntry, Save, Writer, encode_entries
from tests.store.contract import (
    BATCH,
    HOLD,
    NOON,
    WEB,
    entries,
)


async def test_batch_waits_once_for_a_lock_of_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no save's fault, so none is tried again alone: 64 of them would keep the writer busy for minutes."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    store = await SqliteStore.open(tmp_path)
    statements: list[str] = []
    store._database.writer._connection.set_trace_callback(statements.append)
    saves = [Save(RecordKey(RecordKind.SCOPE, f"scope-{n}"), b"value", (), None) for n in range(64)]
    with closing(sqlite3.connect(tmp_path / "forewarn.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        outcomes = store._database.writer.commit(saves)
        other.execute("ROLLBACK")
    assert [getattr(outcome, "reason", None) for outcome in outcomes] == ["database is locked"] * 64
    assert len(statements) <= 1, statements
    await store.aclose()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    path = tmp_path / DATABASE_FILE
    prepare_database(path)
    with closing(Writer(path)) as writer:
        yield writer


def a_save(
    key: RecordKey, value: bytes | None = b"value", *, expected: int | None = None, guards: Guards = NO_GUARDS
) -> Save:
    return Save(key, value, encode_entries(entries(1)), expected, guards)


def test_saves_of_a_commit_are_applied_in_turn(writer: Writer) -> None:
    assert writer.commit([a_save(WEB), a_save(WEB, b"newer", expected=1), a_save(BATCH)]) == [
        Record(WEB, b"value", 1),
        Record(WEB, b"newer", 2),
        Record(BATCH, b"value", 3),
    ]
    assert writer.commit([a_save(WEB, None, expected=2)]) == [Deleted(WEB, 4)]


def test_save_at_another_revision_is_refused_alone(writer: Writer) -> None:
    conflict, saved, missing = writer.commit([a_save(WEB, expected=7), a_save(WEB), a_save(BATCH, None, expected=1)])
    assert saved == Record(WEB, b"value", 1)
    for result, key, expected, actual in ((conflict, WEB, 7, None), (missing, BATCH, 1, None)):
        assert isinstance(result, RevisionConflict)
        assert (result.key, result.expected, result.actual) == (key, expected, actual)
    (existing,) = writer.commit([a_save(WEB)])
    assert isinstance(existing, RevisionConflict)
    assert (existing.expected, existing.actual) == (None, 1)
    assert positions(writer) == [1], "what is refused has no journal"


def positions(writer: Writer) -> list[int]:
    return [position for (position,) in writer._connection.execute("SELECT position FROM journal ORDER BY position")]


def test_guard_is_checked_as_the_commit_has_left_it(writer: Writer) -> None:
    writer.commit([a_save(HOLD)])
    stale, _, fresh, gone = writer.commit(
        [
            a_save(WEB, guards={HOLD: None}),
            a_save(HOLD, b"newer", expected=1),
            a_save(WEB, guards={HOLD: 2}),
            a_save(BATCH, guards={HOLD: 1}),
        ]
    )
    assert fresh == Record(WEB, b"value", 3)
    for result, expected, actual in ((stale, None, 1), (gone, 1, 2)):
        assert isinstance(result, GuardConflict)
        assert (result.key, result.expected, result.actual) == (HOLD, expected, actual)


def test_entry_is_stored_with_what_it_is_found_by() -> None:
    entry = Entry(
        n=1, at=NOON, kind=EntryKind.SCOPE_CREATED, by="ann", event="E1", facts={"key": "request", "kind": "x"}
    )
    (encoded,) = encode_entries([entry])
    assert encoded._replace(entry="") == EncodedEntry(
        at=int(NOON.timestamp() * 1_000_000),
        entry="",
        event="E1",
        did="scope-created",
        author="ann",
        request="request",
    )
    assert msgspec.json.decode(encoded.entry, type=Entry) == entry


def test_journal_is_pruned_by_age_then_by_number_in_small_batches(writer: Writer) -> None:
    old = Save(WEB, b"value", encode_entries(entries(PRUNE_BATCH - 1, at=NOON - timedelta(days=2))), None)
    new = Save(BATCH, b"value", encode_entries(entries(5)), None)
    writer.commit([old, new])
    retention = Retention(age=timedelta(days=1), rows=2)
    assert writer.prune(retention, NOON) == PRUNE_BATCH
    assert positions(writer) == list(range(PRUNE_BATCH + 1, PRUNE_BATCH + 5))
    assert writer.prune(retention, NOON) == 2
    assert writer.prune(retention, NOON) == 0
    assert writer.prune(Retention(), NOON) == 0
    counters = writer._connection.execute("SELECT position, journal_rows, pruned FROM counters").fetchone()
    assert counters == (PRUNE_BATCH + 4, 2, PRUNE_BATCH + 2)


def test_writer_continues_from_the_counters_of_the_file(writer: Writer, tmp_path: Path) -> None:
    writer.commit([a_save(WEB)])
    writer.close()
    with closing(Writer(tmp_path / DATABASE_FILE)) as again:
        assert again.commit([a_save(BATCH)]) == [Record(BATCH, b"value", 2)]
        assert positions(again) == [1, 2]
        again.check()


def test_check_of_a_file_that_cannot_be_written_is_refused(writer: Writer) -> None:
    writer._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreFailed):
        writer.check()
