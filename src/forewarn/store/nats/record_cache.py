"""Record cache: the records that a host follows, in a local SQLite file, so that it can start without the servers.

A changed record is on disk before anybody sees it: what guests have seen is never older after a restart.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from forewarn.store.port import Deleted, Record, RecordKey, RecordKind, StoreError
from forewarn.store.sqlite.database import is_unwritable, open_unused, to_store_error, wrap_sqlite_errors
from forewarn.store.sqlite.directory import wrap_os_errors

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

    def __init__(self, path: Path, connection: sqlite3.Connection | None, problem: str | None = None) -> None:
        self._path = path
        self._connection = connection
        """None until the disk can be written."""
        self.problem = problem
        """Why the last changes are not on disk; None if they are."""
        self._thread = ThreadPoolExecutor(1, "forewarn-record-cache")

    @classmethod
    async def open(cls, directory: Path) -> tuple["RecordCache", CachedState]:
        """Open the file, or a new one if it is missing or damaged, and return its content.

        If the disk is full or read-only, the content is returned all the same.
        """
        path = directory / FILE_NAME
        try:
            connection, state = await asyncio.to_thread(_open, path)
        except StoreError as error:
            if not is_unwritable(error) or not path.exists():
                raise
            state = await asyncio.to_thread(_read_unwritable, path)
            log.error("%s; guests get what is on disk until it can be written", error)  # noqa: TRY400 - the message has the reason
            return cls(path, None, str(error)), state
        except (sqlite3.DatabaseError, ValueError) as error:
            log.warning("%s is damaged (%s); it is filled again from the NATS servers", path, error)
            await asyncio.to_thread(_remove, path)
            connection, state = await asyncio.to_thread(_open, path)
        return cls(path, connection), state

    async def write(
        self, changes: Sequence[Record | Deleted], *, cell_id: str | None = None, synced_at: datetime | None = None
    ) -> None:
        """Write changes in one transaction; on return they are on disk. A StoreError is also in `problem`."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, changes, cell_id, synced_at)
        except StoreError as error:
            self.problem = str(error)
            raise
        self.problem = None

    async def clear(self) -> None:
        """Remove everything: the records are of another cell."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._clear)

    async def aclose(self) -> None:
        """Close the file. A second call does nothing."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()

    def _write(self, changes: Sequence[Record | Deleted], cell_id: str | None, synced_at: datetime | None) -> None:
        with self._transaction() as connection:
            for change in changes:
                kind, id_ = change.key
                if isinstance(change, Record):
                    row = (kind.value, id_, change.revision, change.value)
                    connection.execute("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", row)
                else:
                    connection.execute("DELETE FROM record WHERE kind = ? AND id = ?", (kind.value, id_))
            facts = {CELL: cell_id, SYNCED_AT: None if synced_at is None else synced_at.isoformat()}
            for name, text in facts.items():
                if text is not None:
                    connection.execute("INSERT OR REPLACE INTO fact VALUES (?, ?)", (name, text))

    def _clear(self) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM record")
            connection.execute("DELETE FROM fact")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._connection is None:
            self._connection, _ = _open(self._path)
        with wrap_sqlite_errors(self._path), self._connection:
            yield self._connection


def _open(path: Path) -> tuple[sqlite3.Connection, CachedState]:
    """Open the file for writing and return its content; raise StoreError, or another error if it is damaged."""
    try:
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            with wrap_os_errors(path):
                path.chmod(0o600)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(SCHEMA)
            return connection, _read_state(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        raise to_store_error(error, path) from error


def _read_unwritable(path: Path) -> CachedState:
    """Return the content of a file on a disk that cannot be written."""
    with wrap_sqlite_errors(path), closing(open_unused(path)) as connection:
        return _read_state(connection)


def _read_state(connection: sqlite3.Connection) -> CachedState:
    facts = dict(connection.execute("SELECT name, value FROM fact"))
    records = [
        Record(RecordKey(RecordKind(kind), id_), value, revision)
        for kind, id_, revision, value in connection.execute("SELECT kind, id, revision, value FROM record")
    ]
    synced = facts.get(SYNCED_AT)
    synced_at = None if synced is None else datetime.fromisoformat(synced).astimezone(UTC)
    return CachedState(facts.get(CELL), synced_at, records)


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
