"""The reading side of the embedded store: blocking calls, for one thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from forewarn.core.journal import Entry
from forewarn.store.database import errors_named, open_for_reading
from forewarn.store.port import JournalQuery, JournalRow, Key, Kind, Record, StoreDamaged
from forewarn.store.schema import microseconds
from forewarn.store.watching import Page

PAGE_BYTES = 1 << 20
"""How much of the snapshot is read at a time."""

_decode_entry = msgspec.json.Decoder(Entry).decode


class Reader:
    """A connection that only reads, beside the writer's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = open_for_reading(path)

    def load(self, key: Key) -> Record | None:
        """Return the newest saved value, or None where there is no such record."""
        with self._errors_named():
            row = self._connection.execute(
                "SELECT value, revision FROM records WHERE kind = ? AND id = ?", (key.kind.value, key.id)
            ).fetchone()
        return None if row is None else Record(key, *row)

    def page(self, number: int) -> Page:
        """Return the records from a number on, and the revision that the store had at that moment."""
        with self._errors_named(), self._one_moment():
            as_of = self._connection.execute("SELECT revision FROM counters").fetchone()[0]
            rows = self._connection.execute(
                "SELECT number, kind, id, value, revision FROM records WHERE number >= ? ORDER BY number", (number,)
            )
            records: list[Record] = []
            size = 0
            for number, kind, record_id, value, revision in rows:
                if size >= PAGE_BYTES:
                    rows.close()
                    return Page(records, as_of, next=number)
                records.append(Record(Key(Kind(kind), record_id), value, revision))
                size += len(value)
        return Page(records, as_of, next=None)

    def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, at most `query.limit`."""
        statement, parameters = _journal_statement(query)
        with self._errors_named():
            return [
                JournalRow(position, Key(Kind(kind), record_id), _decode_entry(entry))
                for position, kind, record_id, entry in self._connection.execute(statement, parameters)
            ]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _one_moment(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:  # SQLite ends it by itself after some errors
                self._connection.execute("ROLLBACK")

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            with errors_named(self._path):
                yield
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreDamaged(self._path, str(error)) from error


def _journal_statement(query: JournalQuery) -> tuple[str, list[str | int]]:
    """Choose the rows by the index that fits, then fetch them: without statistics SQLite might read the whole table."""
    conditions: dict[str, str | int] = {"position > ?": query.after}
    index = "NOT INDEXED"
    if query.since is not None:
        conditions["at >= ?"] = microseconds(query.since)
        index = "INDEXED BY journal_by_time"
    if query.until is not None:
        conditions["at < ?"] = microseconds(query.until)
        index = "INDEXED BY journal_by_time"
    if query.key is not None:
        conditions |= {"kind = ?": query.key.kind.value, "id = ?": query.key.id}
        index = "INDEXED BY journal_by_record"
    where = " AND ".join(conditions)
    statement = f"""
        SELECT position, kind, id, entry FROM journal WHERE position IN (
            SELECT position FROM journal {index} WHERE {where} ORDER BY position LIMIT ?
        ) ORDER BY position
    """  # noqa: S608 - made of the constants above; what the caller gives is bound
    return statement, [*conditions.values(), query.limit]
