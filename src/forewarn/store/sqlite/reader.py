"""SQLite reader: blocking queries of records, snapshot pages and journal, for one thread."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TypeVar

import msgspec

from forewarn.core.journal import Entry
from forewarn.store.port import Extent, JournalQuery, JournalRow, Record, RecordKey, RecordKind, StoreCorrupt
from forewarn.store.sqlite.database import open_for_reading, open_unused, wrap_sqlite_errors
from forewarn.store.sqlite.schema import to_microseconds
from forewarn.store.watch import SnapshotPage

W = TypeVar("W")

PAGE_BYTES = 1 << 20
"""How many bytes of the snapshot are read at a time."""

_decode_entry = msgspec.json.Decoder(Entry).decode


class Reader:
    """A read-only connection, next to the writer's."""

    def __init__(self, path: Path, connect: Callable[[Path], sqlite3.Connection] = open_for_reading) -> None:
        self._path = path
        self._connection = connect(path)
        self.lock = Lock()
        """Held during each read."""

    def open_beside(self, open_writer: Callable[[], W]) -> W:
        """Close a file that nothing writes, open its writer, and open the file again beside the writer.

        Both at once are not possible: all connections of a process share the log's index, which is read-only then.
        """
        self._connection.close()
        connect = open_unused
        try:
            writer = open_writer()
            connect = open_for_reading
        finally:
            self._connection = connect(self._path)
        return writer

    def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value, or None if the record does not exist."""
        with self._wrap_errors():
            row = self._connection.execute(
                "SELECT value, revision FROM records WHERE kind = ? AND id = ?", (key.kind.value, key.id)
            ).fetchone()
        return None if row is None else Record(key, *row)

    def page(self, number: int, items: int | None = None) -> SnapshotPage:
        """Return the records from a number on, at most `items`, and the store's revision at that time."""
        with self._wrap_errors(), self._read_transaction():
            as_of = self._connection.execute("SELECT revision FROM counters").fetchone()[0]
            rows = self._connection.execute(
                "SELECT number, kind, id, value, revision FROM records WHERE number >= ? ORDER BY number", (number,)
            )
            records: list[Record] = []
            size = 0
            for number, kind, record_id, value, revision in rows:
                if size >= PAGE_BYTES or len(records) == items:
                    rows.close()
                    return SnapshotPage(records, as_of, next=number)
                records.append(Record(RecordKey(RecordKind(kind), record_id), value, revision))
                size += len(value)
        return SnapshotPage(records, as_of, next=None)

    def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`."""
        statement, parameters = _journal_statement(query)
        with self._wrap_errors():
            return [
                JournalRow(position, RecordKey(RecordKind(kind), record_id), _decode_entry(entry))
                for position, kind, record_id, entry in self._connection.execute(statement, parameters)
            ]

    def records(self) -> Iterator[Record]:
        """Yield all records, of a file that no service changes meanwhile."""
        number: int | None = 0
        while number is not None:
            page = self.page(number)
            yield from page.records
            number = page.next

    def extent(self, _: None) -> Extent:
        """Return the extent of the journal."""
        with self._wrap_errors():
            return Extent(*self._connection.execute("SELECT pruned, position FROM counters").fetchone())

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _read_transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:  # SQLite itself ends it after some errors
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        try:
            with self.lock, wrap_sqlite_errors(self._path):
                yield
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreCorrupt(self._path, str(error)) from error


def _journal_statement(query: JournalQuery) -> tuple[str, list[str | int]]:
    """Select the rows by a suitable index, then fetch them: without statistics SQLite might scan the whole table."""
    conditions = list(_conditions(query))
    where = " AND ".join(condition for condition, _ in conditions)
    order = "DESC" if query.newest_first else "ASC"
    statement = f"""
        SELECT position, kind, id, entry FROM journal WHERE position IN (
            SELECT position FROM {_indexed_table(query)} WHERE {where} ORDER BY position {order} LIMIT ?
        ) ORDER BY position {order}
    """  # noqa: S608 - built from constants in this module; values of the caller are bound
    return statement, [*(value for _, values in conditions for value in values), query.limit]


def _indexed_table(query: JournalQuery) -> str:
    """Return the table with the most selective index for the query."""
    if query.request is not None:
        return "journal INDEXED BY journal_by_request"
    if query.event is not None:
        return "journal INDEXED BY journal_by_event"
    if query.key is not None:
        return "journal INDEXED BY journal_by_record"
    if query.by is not None:
        return "journal INDEXED BY journal_by_author"
    if query.kinds:
        return "journal INDEXED BY journal_by_did"
    if query.since is not None or query.until is not None:
        return "journal INDEXED BY journal_by_time"
    return "journal NOT INDEXED"


def _conditions(query: JournalQuery) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield SQL conditions with their values."""
    yield "position > ?", (query.after,)
    if query.before is not None:
        yield "position < ?", (query.before,)
    if query.key is not None:
        yield "kind = ? AND id = ?", (query.key.kind.value, query.key.id)
    if query.event is not None:
        yield "event = ?", (query.event,)
    if query.vm is not None:
        name = msgspec.json.encode(query.vm.lower()).decode()
        yield _CONCERNS, (name, query.vm.lower())
    if query.by is not None:
        yield "author = ?", (query.by,)
    if query.request is not None:
        yield "request = ?", (query.request,)
    if query.kinds:
        yield f"did IN ({', '.join('?' * len(query.kinds))})", tuple(did.value for did in query.kinds)
    if query.since is not None:
        yield "at >= ?", (to_microseconds(query.since),)
    if query.until is not None:
        yield "at < ?", (to_microseconds(query.until),)


_CONCERNS = """CASE
    WHEN instr(entry, '"vms":[') = 0 THEN TRUE
    WHEN instr(lower(entry), ?) = 0 THEN FALSE
    ELSE EXISTS (SELECT 1 FROM json_each(entry, '$.vms') WHERE lower(value) = ?)
END"""
"""Whether an entry names a VM, or names none. A text search decides most; only the others are parsed."""
