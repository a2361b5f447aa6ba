"""Backup of a database: a consistent copy of a file that a service may be writing to, verified before it is used."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import msgspec

from forewarn.store.port import RecordKind, StoreCorrupt
from forewarn.store.sqlite.database import (
    check_database,
    open_unused,
    to_store_error,
    wrap_sqlite_errors,
)

PAGES_PER_STEP = 1024
"""How many pages are copied between two reports of progress, 4096 bytes each."""

CopyProgress = Callable[[int, int], None]
"""Gets how many bytes of the copy are written, and how many it will have."""


class BackupSource(msgspec.Struct, frozen=True, kw_only=True):
    """When and of what a backup was made; it is stored in the backup."""

    made_at: datetime
    version: str
    preset: str
    """The preset of the service, as its data directory names it; empty if it names none."""


class DatabaseContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a database contains, to compare a copy with its original."""

    revision: int
    position: int
    records: dict[str, int]
    journal_rows: int

    def count(self, kind: RecordKind) -> int:
        """Return the number of records of a kind."""
        return self.records.get(kind.value, 0)


def copy_database(original: sqlite3.Connection, source: Path, target: Path, on_progress: CopyProgress) -> None:
    """Copy a database into an empty file; raise StoreError if the copy does not contain what the original does."""
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        with wrap_sqlite_errors(source):
            # In one read transaction, saves of the service meanwhile neither appear in the copy nor restart it.
            original.execute("BEGIN")
            expected = _read_content(original)
            page_bytes: int = original.execute("PRAGMA page_size").fetchone()[0]
        try:
            original.backup(
                copy,
                pages=PAGES_PER_STEP,
                progress=lambda _, left, total: on_progress((total - left) * page_bytes, total * page_bytes),
            )
        except sqlite3.Error as error:
            is_source_damaged = isinstance(to_store_error(error, source), StoreCorrupt)
            raise to_store_error(error, source if is_source_damaged else target) from error
        with wrap_sqlite_errors(target):
            if (copied := _read_content(copy)) != expected:
                raise StoreCorrupt(target, f"the copy has {copied} instead of {expected}")


def finish_backup(copy: Path, origin: BackupSource) -> DatabaseContent:
    """Write its origin into a copy, and return what it contains; raise StoreError if it is not sound."""
    with wrap_sqlite_errors(copy), closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        # A single file, which can be read from a read-only disk; the store switches it back.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("CREATE TABLE backup (origin TEXT NOT NULL)")
        connection.execute("INSERT INTO backup VALUES (?)", (msgspec.json.encode(origin).decode(),))
        return _check_integrity(connection, copy)


def check_backup(file: Path) -> BackupSource | None:
    """Return the origin of a backup, None for another copy of a database; raise StoreError if it is not sound."""
    check_database(file)
    with wrap_sqlite_errors(file), closing(open_unused(file)) as connection:
        _check_integrity(connection, file)
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'backup'").fetchone() is None:
            return None
        try:
            return msgspec.json.decode(connection.execute("SELECT origin FROM backup").fetchone()[0], type=BackupSource)
        except (msgspec.MsgspecError, TypeError) as error:
            raise StoreCorrupt(file, "its origin cannot be read") from error


def forget_origin(path: Path) -> None:
    """Make a copied backup an ordinary database again."""
    with wrap_sqlite_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TABLE IF EXISTS backup")


def _read_content(connection: sqlite3.Connection) -> DatabaseContent:
    revision, position = connection.execute("SELECT revision, position FROM counters").fetchone()
    return DatabaseContent(
        revision=revision,
        position=position,
        records=dict(connection.execute("SELECT kind, count(*) FROM records GROUP BY kind ORDER BY kind")),
        journal_rows=connection.execute("SELECT count(*) FROM journal").fetchone()[0],
    )


def _check_integrity(connection: sqlite3.Connection, path: Path) -> DatabaseContent:
    if (found := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
        raise StoreCorrupt(path, found)
    return _read_content(connection)
