"""SQLite writer: blocking commits, compare-and-swap and journal pruning, for one thread.

An error at COMMIT leaves a question: SQLite regards the transaction as rolled back, but if its frames are complete in
the log, recovery after a crash finds and applies them. So before the writer reports an error, it makes sure that they
cannot come back: it commits another transaction over them. While that fails too, the outcome of the saves is unknown
and every further save is refused, until `settle` succeeds.
"""

import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from forewarn.core.journal import REQUEST_KEY, Entry
from forewarn.files import check_room
from forewarn.store.port import (
    NO_GUARDS,
    PRUNE_BATCH,
    Deleted,
    GuardConflict,
    Guards,
    Record,
    RecordKey,
    Retention,
    RevisionConflict,
    SaveUnknown,
    StoreError,
    StoreFailed,
)
from forewarn.store.sqlite.database import BUSY_TIMEOUT, open_for_writing, to_store_error, wrap_sqlite_errors
from forewarn.store.sqlite.directory import wrap_os_errors
from forewarn.store.sqlite.schema import to_microseconds, transaction
from forewarn.store.sqlite.wal import has_uncommitted_end, log_path


class EncodedEntry(NamedTuple):
    """An entry as a row of the journal table."""

    at: int
    entry: str
    event: str | None
    did: str
    author: str
    request: str | None


class Save(msgspec.Struct, frozen=True, gc=False):
    """One save, encoded and validated, so that only the store itself can still fail."""

    key: RecordKey
    value: bytes | None
    entries: tuple[EncodedEntry, ...]
    expected: int | None
    guards: Guards = NO_GUARDS

    def at_revision(self, revision: int) -> Record | Deleted:
        """Return this save as a change with its revision."""
        return Deleted(self.key, revision) if self.value is None else Record(self.key, self.value, revision)


_encode = msgspec.json.Encoder().encode


def encode_entries(entries: Sequence[Entry]) -> tuple[EncodedEntry, ...]:
    """Encode entries for the journal."""
    return tuple([_encode_entry(entry) for entry in entries])


def _encode_entry(entry: Entry) -> EncodedEntry:
    return EncodedEntry(
        at=to_microseconds(entry.at),
        entry=_encode(entry).decode(),
        event=entry.event,
        did=entry.kind.value,
        author=entry.by,
        request=entry.facts.get(REQUEST_KEY),
    )


SaveResult = Record | Deleted | StoreError

PER_SAVE_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_NOMEM})
"""Errors that the content of one save can cause. Any other error would occur again for each save of the batch, and a
lock of another process only after its whole timeout."""


ROWS_PER_STATEMENT = (64, 16, 4, 1)
"""How many rows one statement reads or writes. The writer thread waits for its turn after each statement while the
event loop computes, so fewer statements mean faster commits; few different ones stay prepared."""

READ_REVISIONS = """
    WITH wanted (place, kind, id) AS (VALUES {rows})
    SELECT group_concat(place || ' ' || revision) FROM wanted CROSS JOIN records USING (kind, id)"""
"""CROSS JOIN makes SQLite look up the wanted rows, instead of reading all records. The result is one row, because the
writer thread waits for its turn after each row, too."""

WRITE_RECORDS = """
    INSERT INTO records (kind, id, revision, value) VALUES {rows}
    ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision, value = excluded.value"""

INSERT_ENTRIES = "INSERT INTO journal (position, kind, id, at, entry, event, did, author, request) VALUES {rows}"


ROOM_FILE = "forewarn.room"
"""The name of the file that is written to find out how much room there is, and removed at once."""

ROOM_FACTOR, MIN_ROOM = 2, 1 << 18
"""How much room a save may need in log and database, from the size of its value."""

TEST_WRITE = "UPDATE counters SET checks = checks + 1"
"""A change without meaning."""


MAX_LOG_BYTES = 8 << 20
"""The size of the log at which the writer waits for readers, in order to empty it; if that fails, it tries again after
every further `LOG_STEP_BYTES`. Without long reads of other programs the log stays below twice this size."""

LOG_STEP_BYTES = 1 << 20

CHECKPOINT_WAIT_MS = 200
"""How long the writer waits for other programs then, in milliseconds."""


class _Counters(NamedTuple):
    revision: int
    position: int
    journal_rows: int
    pruned: int


class _FailedCommit(NamedTuple):
    """A commit that ended with an error, what it would have saved, and the counters that it would have left."""

    error: StoreError
    results: list[SaveResult]
    counters: _Counters


class Writer:
    """The only writing connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsettled: _FailedCommit | None = None
        self._log = str(log_path(path))
        self._log_limit = MAX_LOG_BYTES
        self.read_lock = Lock()
        """Held by the store's own reads."""
        self._connection = open_for_writing(path)
        with wrap_sqlite_errors(path):
            self._counters = self._read_counters()

    def commit(self, saves: Sequence[Save]) -> list[SaveResult]:
        """Write the saves in one transaction, in order; each has its own result. On return everything is durable."""
        results: list[SaveResult] = []
        counters = self._counters
        try:
            self._check_settled()
            with transaction(self._connection):
                results, counters = self._compare_and_swap(saves)
        except StoreError as refusal:
            return [refusal] * len(saves)
        except sqlite3.Error as error:
            if results:
                return self._after_failed_commit(_FailedCommit(self._to_store_error(error), results, counters))
            # There is only one save, or the error does not depend on a single save.
            if len(saves) == 1 or getattr(error, "sqlite_errorcode", None) not in PER_SAVE_ERRORS:
                return [self._to_store_error(error) for _ in saves]
            # One save may be the cause, such as a large one on a nearly full disk: retry one by one, so it fails alone.
            return [outcome for save in saves for outcome in self.commit([save])]
        self._counters = counters
        self._limit_log()
        return results

    def append(self, rows: Sequence[tuple[int, RecordKey, EncodedEntry]], *, revision: int, pruned: int) -> None:
        """Add journal rows at positions of another store, and note the revision up to which its rows are here."""
        with wrap_sqlite_errors(self._path), transaction(self._connection):
            self._insert([(position, *_name(key), *line) for position, key, line in rows])
            last = max(self._counters.position, pruned, *(position for position, _, _ in rows))
            counters = self._counters._replace(
                revision=revision,
                position=last,
                journal_rows=self._counters.journal_rows + len(rows),
                pruned=max(self._counters.pruned, pruned),
            )
            self._save_counters(counters)
        self._counters = counters

    def remove_before(self, position: int) -> None:
        """Remove the journal rows before a position, which another store has removed."""
        with wrap_sqlite_errors(self._path), transaction(self._connection):
            removed = self._connection.execute("DELETE FROM journal WHERE position < ?", (position,)).rowcount
            counters = self._counters._replace(journal_rows=self._counters.journal_rows - removed)
            self._save_counters(counters)
        self._counters = counters

    def first_position(self) -> int | None:
        """Return the position of the first journal row; None if there is none."""
        with wrap_sqlite_errors(self._path):
            first: int | None = self._connection.execute("SELECT min(position) FROM journal").fetchone()[0]
        return first

    @property
    def revision(self) -> int:
        """The last revision that was given."""
        return self._counters.revision

    def settle(self) -> list[SaveResult]:
        """Find out what became of the saves whose outcome is unknown; return their results.

        Raises a StoreError while that is not possible. Without such saves the result is empty.
        """
        if self._unsettled is None:
            return []
        failed = self._unsettled
        # This commit overwrites the frames of the failed one, and syncs the log: they can never come back. If SQLite
        # regards the failed commit as done after all, this one follows it.
        with wrap_sqlite_errors(self._path), transaction(self._connection):
            self._connection.execute(TEST_WRITE)
            counters = self._read_counters()
        self._counters = counters
        self._unsettled = None
        return failed.results if counters == failed.counters else [failed.error] * len(failed.results)

    def prune(self, retention: Retention, now: datetime) -> int:
        """Remove one batch of journal rows beyond the retention, in a separate transaction."""
        self._check_settled()
        with wrap_sqlite_errors(self._path), transaction(self._connection):
            removed = self._remove_expired(retention, now)
            removed += self._remove_surplus(retention, already_removed=len(removed))
            counters = self._counters._replace(
                journal_rows=self._counters.journal_rows - len(removed),
                pruned=max([self._counters.pruned, *removed]),
            )
            self._save_counters(counters)
        self._counters = counters
        return len(removed)

    def check(self, size: int = 0) -> None:
        """Make a test write, to find out whether that is possible; also whether a save of this size has room."""
        self._check_settled()
        with wrap_sqlite_errors(self._path), transaction(self._connection):
            self._connection.execute(TEST_WRITE)
        if size:  # the log may have room for a small write on a full disk
            with wrap_os_errors(self._path):
                check_room(self._path.with_name(ROOM_FILE), ROOM_FACTOR * size + MIN_ROOM)

    def close(self) -> None:
        """Checkpoint the log into the file, and close it."""
        with suppress(StoreError):
            self.settle()
        with wrap_sqlite_errors(self._path):
            self._connection.close()

    def _after_failed_commit(self, failed: _FailedCommit) -> list[SaveResult]:
        """Return the results of a failed commit: refused, if nothing can come back after a crash; else unknown."""
        if not has_uncommitted_end(self._path):
            return [failed.error] * len(failed.results)
        self._unsettled = failed
        try:
            return self.settle()
        except StoreError:
            return [SaveUnknown(self._path, str(failed.error.__cause__)) for _ in failed.results]

    def _limit_log(self) -> None:
        """Empty the log if it has grown although SQLite copies it into the file: then readers were in the way."""
        if self._log_size() < self._log_limit:
            return
        with self.read_lock, suppress(sqlite3.Error):  # everything is saved; the next attempt may succeed
            self._connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_WAIT_MS}")
            try:
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {int(1_000 * BUSY_TIMEOUT)}")
        self._log_limit = max(MAX_LOG_BYTES, self._log_size() + LOG_STEP_BYTES)

    def _log_size(self) -> int:
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0

    def _check_settled(self) -> None:
        if self._unsettled is not None:
            raise StoreFailed(
                self._path, f"after {self._unsettled.error.__cause__}, nothing is saved until the log can be written"
            )

    def _read_counters(self) -> _Counters:
        return _Counters(
            *self._connection.execute("SELECT revision, position, journal_rows, pruned FROM counters").fetchone()
        )

    def _compare_and_swap(self, saves: Sequence[Save]) -> tuple[list[SaveResult], _Counters]:
        """Write each save whose record and guards are at the expected revisions."""
        revision = self._counters.revision
        results: list[SaveResult] = []
        entries: list[tuple[RecordKey, EncodedEntry]] = []
        known = self._read_revisions(saves)  # as this transaction sees them, with the saves before
        written: dict[RecordKey, Save] = {}
        for save in saves:
            if (conflict := _find_conflict(save, known)) is not None:
                results.append(conflict)
                continue
            revision += 1
            results.append(save.at_revision(revision))
            entries += ((save.key, line) for line in save.entries)
            if save.value is None:
                self._write_records(written, known)
                self._connection.execute("DELETE FROM records WHERE kind = ? AND id = ?", _name(save.key))
                known[save.key] = None
            else:
                known[save.key] = revision
                written[save.key] = save
        self._write_records(written, known)
        self._write_entries(entries)
        counters = self._counters._replace(
            revision=revision,
            position=self._counters.position + len(entries),
            journal_rows=self._counters.journal_rows + len(entries),
        )
        self._save_counters(counters)
        return results, counters

    def _read_revisions(self, saves: Sequence[Save]) -> dict[RecordKey, int | None]:
        """Return the revisions of all records that the saves name, also as guards; None: there is no such record."""
        known: dict[RecordKey, int | None] = dict.fromkeys(key for save in saves for key in (save.key, *save.guards))
        keys = tuple(known)
        rows = [(number, *_name(key)) for number, key in enumerate(keys)]
        for (found,) in self._execute(READ_REVISIONS, rows):
            for pair in found.split(",") if found else ():
                number, revision = pair.split()
                known[keys[int(number)]] = int(revision)
        return known

    def _write_records(self, saves: dict[RecordKey, Save], revisions: dict[RecordKey, int | None]) -> None:
        """Write the values of records, the last one of each, and forget them."""
        self._execute(WRITE_RECORDS, [(*_name(key), revisions[key], save.value) for key, save in saves.items()])
        saves.clear()

    def _write_entries(self, entries: Sequence[tuple[RecordKey, EncodedEntry]]) -> None:
        first = self._counters.position + 1
        self._insert([(position, *_name(key), *line) for position, (key, line) in enumerate(entries, first)])

    def _insert(self, rows: Sequence[tuple[int | str | None, ...]]) -> None:
        self._execute(INSERT_ENTRIES, rows)

    def _execute(self, statement: str, rows: Sequence[tuple[int | str | bytes | None, ...]]) -> list[tuple[Any, ...]]:
        """Execute a statement with these rows, in as few steps as possible; return what it has read."""
        found: list[tuple[Any, ...]] = []
        start = 0
        for size in ROWS_PER_STATEMENT:
            while len(rows) - start >= size:
                several = rows[start : start + size]
                placeholders = f"({', '.join('?' * len(several[0]))})"
                parameters = tuple(chain.from_iterable(several))
                filled = statement.format(rows=", ".join([placeholders] * size))
                found += self._connection.execute(filled, parameters).fetchall()
                start += size
        return found

    def _remove_expired(self, retention: Retention, now: datetime) -> list[int]:
        if retention.age is None:
            return []
        oldest = to_microseconds(now - retention.age)
        return self._remove("at < ? ORDER BY at LIMIT ?", oldest, PRUNE_BATCH)

    def _remove_surplus(self, retention: Retention, *, already_removed: int) -> list[int]:
        if retention.rows is None:
            return []
        surplus = self._counters.journal_rows - already_removed - retention.rows
        return self._remove("TRUE ORDER BY position LIMIT ?", max(0, min(surplus, PRUNE_BATCH - already_removed)))

    def _remove(self, which: str, *parameters: int) -> list[int]:
        """Remove rows of the journal and return their positions."""
        removed = self._connection.execute(f"SELECT position FROM journal WHERE {which}", parameters).fetchall()  # noqa: S608 - one of the constants above
        self._connection.executemany("DELETE FROM journal WHERE position = ?", removed)
        return [position for (position,) in removed]

    def _save_counters(self, counters: _Counters) -> None:
        if counters != self._counters:
            self._connection.execute(
                "UPDATE counters SET revision = ?, position = ?, journal_rows = ?, pruned = ?", counters
            )

    def _to_store_error(self, error: sqlite3.Error) -> StoreError:
        failure = to_store_error(error, self._path)
        failure.__cause__ = error
        return failure


def _name(key: RecordKey) -> tuple[str, str]:
    return key.kind.value, key.id


def _find_conflict(save: Save, known: Mapping[RecordKey, int | None]) -> RevisionConflict | None:
    """Return the first guard that is not at its revision, or the record itself; None if the save is possible."""
    for guard, expected in save.guards.items():
        if known[guard] != expected:
            return GuardConflict(guard, expected=expected, actual=known[guard])
    if known[save.key] != save.expected:
        return RevisionConflict(save.key, expected=save.expected, actual=known[save.key])
    return None
