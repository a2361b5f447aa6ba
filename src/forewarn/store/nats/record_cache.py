"""Record cache: the records that a host follows, in a local SQLite file, so that it can start without the servers.

A changed record is on disk before anybody sees it: what guests have seen is never older after a restart.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, StoreFailed

log = logging.getLogger(__name__)

FILE_NAME = "records.db"
SUFFIXES = ("", "-wal", "-shm", "-journal")

SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    kind TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

CELL, SYNCED_AT = "cell", "synced_at"


class CachedState(NamedTuple):
    """The content of the file."""

    cell_id: str | None
    synced_at: datetime | None
    """When the records were last known to be the newest ones."""
    records: list[Record]


class RecordCache:
    """The file of one host. Create it with `open`; only one process may use it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "forewarn-record-cache")

    @classmethod
    async def open(cls, directory: Path) -> tuple["RecordCache", CachedState]:
        """Open the file, or a new one if it is missing or damaged, and return its content."""
        path = directory / FILE_NAME
        try:
            connection, state = await asyncio.to_thread(_open, path)
        except sqlite3.OperationalError as error:
            raise StoreFailed(path, str(error)) from error
        except (sqlite3.DatabaseError, ValueError) as error:
            log.warning("%s is damaged (%s); it is filled again from the NATS servers", path, error)
            await asyncio.to_thread(_remove, path)
            connection, state = await asyncio.to_thread(_open, path)
        return cls(path, connection), state

    async def write(
        self, changes: Sequence[Record | Deleted], *, cell_id: str | None = None, synced_at: datetime | None = None
    ) -> None:
        """Write changes in one transaction; on return they are on disk."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, changes, cell_id, synced_at)

    async def clear(self) -> None:
        """Remove everything: the records are of another cell."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._clear)

    async def aclose(self) -> None:
        """Close the file. A second call does nothing."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        self._connection.close()

    def _write(self, changes: Sequence[Record | Deleted], cell_id: str | None, synced_at: datetime | None) -> None:
        try:
            with self._connection:
                for change in changes:
                    kind, id_ = change.key
                    if isinstance(change, Record):
                        row = (kind.value, id_, change.revision, change.value)
                        self._connection.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", row)
                    else:
                        self._connection.execute("DELETE FROM record WHERE kind = ? AND id = ?", (kind.value, id_))
                facts = {CELL: cell_id, SYNCED_AT: None if synced_at is None else synced_at.isoformat()}
                for name, text in facts.items():
                    if text is not None:
                        self._connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, text))
        except sqlite3.Error as error:
            raise StoreFailed(self._path, str(error)) from error

    def _clear(self) -> None:
        with self._connection:
            self._connection.execute("DELETE FROM record")
            self._connection.execute("DELETE FROM fact")


def _open(path: Path) -> tuple[sqlite3.Connection, CachedState]:
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(SCHEMA)
        facts = dict(connection.execute("SELECT name, value FROM fact"))
        records = [
            Record(RecordKey(RecordKind(kind), id_), value, revision)
            for kind, id_, revision, value in connection.execute("SELECT kind, id, revision, value FROM record")
        ]
        synced = facts.get(SYNCED_AT)
        synced_at = None if synced is None else datetime.fromisoformat(synced).astimezone(UTC)
    except BaseException:
        connection.close()
        raise
    return connection, CachedState(facts.get(CELL), synced_at, records)


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
