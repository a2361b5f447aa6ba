"""The writer: commits, compare-and-swap, guards and pruning, in one thread."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

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
    SaveUnknown,
    StoreError,
    StoreFailed,
)
from forewarn.store.sqlite import database
from forewarn.store.sqlite import writer as sqlite_writer
from forewarn.store.sqlite.database import DATABASE_FILE, prepare_database
from forewarn.store.sqlite.store import SqliteStore
from forewarn.store.sqlite.writer import READ_REVISIONS, ROWS_PER_STATEMENT, EncodedEntry, Save, Writer, encode_entries
from tests.store.contract import (
    BATCH,
    HOLD,
    NOON,
    WEB,
    entries,
)
from tests.store.sqlite.data_directories import writer_of

MOST_ROWS = max(ROWS_PER_STATEMENT)


async def test_batch_waits_once_for_a_lock_of_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no save's fault, so none is tried again alone: 64 of them would keep the writer busy for minutes."""
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.01)
    store = await SqliteStore.open(tmp_path)
    statements: list[str] = []
    writer_of(store)._connection.set_trace_callback(statements.append)
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


@pytest.mark.parametrize("count", [1, 3, 4, 21, MOST_ROWS - 1, MOST_ROWS, MOST_ROWS + 1, 3 * MOST_ROWS])
def test_all_entries_of_a_batch_are_stored_in_order(writer: Writer, count: int) -> None:
    encoded = encode_entries(entries(count))
    writer.commit([Save(WEB, b"value", encoded[:1], None), Save(BATCH, b"value", encoded[1:], None)])
    rows = writer._connection.execute(
        "SELECT position, kind, id, at, entry, event, did, author, request FROM journal ORDER BY position"
    ).fetchall()
    keys = [WEB] + [BATCH] * (count - 1)
    assert rows == [
        (n, key.kind.value, key.id, *row) for n, (key, row) in enumerate(zip(keys, encoded, strict=True), 1)
    ]


def test_each_save_of_a_large_batch_is_compared_by_itself(writer: Writer) -> None:
    keys = [RecordKey(RecordKind.SCOPE, f"scope-{n}") for n in range(2 * MOST_ROWS + 7)]
    created = writer.commit([Save(key, b"first", (), None) for key in keys])
    revisions = [outcome.revision for outcome in created if isinstance(outcome, Record)]
    last = revisions[-1]
    assert revisions == list(range(1, len(keys) + 1))
    results = writer.commit(
        [
            Save(keys[0], b"second", (), 1),
            Save(keys[1], b"second", (), 7),
            Save(keys[2], b"second", (), 3, {keys[0]: 1}),
            Save(keys[0], b"third", (), last + 1),
            Save(keys[3], None, (), 4),
            Save(keys[3], b"again", (), None),
            *(Save(key, b"second", (), revision) for key, revision in zip(keys[4:], revisions[4:], strict=True)),
        ]
    )
    conflicts = [(type(each), each.key, each.actual) for each in results if isinstance(each, RevisionConflict)]
    assert conflicts == [(RevisionConflict, keys[1], 2), (GuardConflict, keys[0], last + 1)]
    assert [results[0], *results[3:6]] == [
        Record(keys[0], b"second", last + 1),
        Record(keys[0], b"third", last + 2),
        Deleted(keys[3], last + 3),
        Record(keys[3], b"again", last + 4),
    ]
    assert results[6:] == [Record(key, b"second", last + 5 + n) for n, key in enumerate(keys[4:])]
    stored = writer._connection.execute("SELECT id, value, revision FROM records ORDER BY number").fetchall()
    assert stored == [
        (keys[0].id, b"third", last + 2),
        (keys[1].id, b"first", 2),
        (keys[2].id, b"first", 3),
        *((key.id, b"second", last + 5 + n) for n, key in enumerate(keys[4:])),
        (keys[3].id, b"again", last + 4),
    ]


def test_revisions_are_looked_up_without_reading_all_records(writer: Writer) -> None:
    statement = READ_REVISIONS.format(rows="(?, ?, ?), (?, ?, ?)")
    rows = (0, "scope", "web", 1, "scope", "batch")
    plan = writer._connection.execute(f"EXPLAIN QUERY PLAN {statement}", rows).fetchall()
    assert [step[-1] for step in plan if "records" in step[-1]] == [
        "SEARCH records USING INDEX sqlite_autoindex_records_1 (kind=? AND id=?)"
    ]


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


class FailingCommits:
    """A connection whose next commits fail; those that are `done` all the same were written before."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.failures = 0
        self.done = False

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.failures:
            self.failures -= 1
            if self.done:
                self._connection.execute(statement)
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.fixture
def commits(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> FailingCommits:
    """Let commits fail whose frames are complete in the log, as far as the writer can see."""
    monkeypatch.setattr(sqlite_writer, "has_uncommitted_end", lambda _: True)
    commits = FailingCommits(writer._connection)
    writer._connection = commits  # type: ignore[assignment]  # it is used like one
    return commits


def test_failed_commit_is_refused_after_another_commit_has_replaced_it(writer: Writer, commits: FailingCommits) -> None:
    commits.failures = 1
    (refused,) = writer.commit([a_save(WEB)])
    assert isinstance(refused, StoreFailed)
    assert writer.commit([a_save(WEB)]) == [Record(WEB, b"value", 1)]


def test_commit_that_was_done_all_the_same_is_reported_as_saved(writer: Writer, commits: FailingCommits) -> None:
    commits.failures, commits.done = 1, True
    assert writer.commit([a_save(WEB)]) == [Record(WEB, b"value", 1)]
    assert writer.commit([a_save(BATCH)]) == [Record(BATCH, b"value", 2)]


@pytest.mark.parametrize("done", [False, True])
def test_outcome_is_unknown_and_nothing_is_saved_until_it_is_settled(
    writer: Writer, commits: FailingCommits, *, done: bool
) -> None:
    commits.failures, commits.done = 2, done
    (unknown,) = writer.commit([a_save(WEB)])
    assert isinstance(unknown, SaveUnknown)
    commits.failures = 0
    for change in (lambda: writer.commit([a_save(BATCH)])[0], writer.check, lambda: writer.prune(Retention(), NOON)):
        assert isinstance(error_of(change), StoreFailed)
    (settled,) = writer.settle()
    assert settled == Record(WEB, b"value", 1) if done else isinstance(settled, StoreFailed)
    assert writer.settle() == []
    writer.check()
    assert writer.commit([a_save(BATCH)]) == [Record(BATCH, b"value", 2 if done else 1)]


def error_of(change: Callable[[], object]) -> object:
    try:
        return change()
    except StoreError as error:
        return error
