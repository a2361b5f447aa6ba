"""SQLite store: one database file in a data directory that belongs to one process.

Nothing here blocks the event loop: one thread writes, another one reads.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from forewarn.core.journal import Entry
from forewarn.files import prepare_directory
from forewarn.store.port import (
    NO_GUARDS,
    Extent,
    Guards,
    JournalQuery,
    JournalRow,
    Record,
    RecordKey,
    Retention,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreFull,
    WatchItem,
    check_save,
)
from forewarn.store.sqlite.database import (
    DATABASE_FILE,
    SUFFIXES,
    is_current,
    is_unwritable,
    open_unused,
    prepare_database,
)
from forewarn.store.sqlite.directory import LOCK_FILE, lock_directory, wrap_os_errors
from forewarn.store.sqlite.group_commit import GroupCommit
from forewarn.store.sqlite.pending_writer import PendingWriter
from forewarn.store.sqlite.reader import Reader
from forewarn.store.sqlite.restore import finish_restore
from forewarn.store.sqlite.writer import Save, Writer, encode_entries
from forewarn.store.watch import SnapshotPage, Watchers

log = logging.getLogger(__name__)

STORE_FILES = (LOCK_FILE, *(f"{DATABASE_FILE}{suffix}" for suffix in SUFFIXES))
"""The files of the store. SQLite follows symbolic links, so they are checked before it opens them."""

T = TypeVar("T")
R = TypeVar("R")


class _OpenDatabase(NamedTuple):
    """The resources of an open store, and how to release them."""

    writer: Writer | PendingWriter
    reader: Reader
    reading_thread: ThreadPoolExecutor
    cleanup: ExitStack

    @classmethod
    def open(cls, directory: Path) -> "_OpenDatabase":
        with ExitStack() as undo:
            with wrap_os_errors(directory):
                if warning := prepare_directory(directory, STORE_FILES):
                    log.warning("%s", warning)
                lock = lock_directory(directory)
            undo.callback(lock.release)
            finish_restore(directory)
            path = directory / DATABASE_FILE
            prepare_database(path)
            reading_thread = ThreadPoolExecutor(1, "forewarn-store-reader")
            writer, reader = _open_connections(path, reading_thread)
            undo.callback(writer.close)
            undo.callback(reader.close)
            undo.callback(reading_thread.shutdown)
            return cls(writer, reader, reading_thread, undo.pop_all())


def _open_connections(path: Path, reading_thread: ThreadPoolExecutor) -> tuple[Writer | PendingWriter, Reader]:
    """Open a file for reading and writing, or only for reading if its disk cannot be written."""
    try:
        writer = Writer(path)
    except (StoreFull, StoreFailed) as error:
        if not is_unwritable(error) or not is_current(path):
            raise
        log.error("changes are refused until %s can be written, everything else is served: %s", path, error)  # noqa: TRY400 - the message has the reason
        reader = Reader(path, open_unused)

        def open_writer() -> Writer:
            """Open the file in the reading thread, between two reads."""
            writer = reading_thread.submit(reader.open_beside, partial(Writer, path)).result()
            writer.read_lock = reader.lock
            return writer

        return PendingWriter(path, error, open_writer), reader
    reader = Reader(path)
    writer.read_lock = reader.lock
    return writer, reader


class SqliteStore:
    """Records and journal in one file. Create it with `open`, and use it on the event loop that opened it."""

    cell_id: str | None = None

    def __init__(self, database: _OpenDatabase) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._writing_thread = ThreadPoolExecutor(1, "forewarn-store-writer")
        self._reading_thread = database.reading_thread
        self._watchers = Watchers()
        self._group = GroupCommit(
            self._writing_thread, database.writer.commit, database.writer.settle, self._watchers.publish
        )
        self._close_task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, directory: Path) -> "SqliteStore":
        """Open the store in a data directory; create both if they are missing."""
        opening = asyncio.get_running_loop().run_in_executor(None, _OpenDatabase.open, directory)
        try:
            return cls(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_abandoned)
            raise

    async def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value, or None if the record does not exist."""
        return await self._read(self._database.reader.load, key)

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save value and entries in one step and return the new revision, once both are durable."""
        check_save(key, value, entries, expected=expected, guards=guards)
        self._check_open()
        return await self._group.save(Save(key, value, encode_entries(entries), expected, dict(guards)))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[WatchItem]]:
        """Yield the newest value of each key, SnapshotEnd, then changes."""
        self._check_open()
        with self._watchers.subscribe(self._read_page) as watcher:
            yield watcher

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`."""
        return await self._read(self._database.reader.journal, query)

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        return await self._read(self._database.reader.extent, None)

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows beyond the retention; return the number of removed rows."""
        self._check_open()
        return await self._loop.run_in_executor(self._writing_thread, self._database.writer.prune, retention, now)

    async def check(self, size: int = 0) -> None:
        """Make a durable test write without effect."""
        self._check_open()
        await self._loop.run_in_executor(self._writing_thread, self._database.writer.check, size)

    async def aclose(self) -> None:
        """Finish accepted saves and release everything. A second call does nothing."""
        if self._close_task is None:
            self._close_task = self._loop.create_task(self._close())
        await asyncio.shield(self._close_task)

    async def _close(self) -> None:
        await self._group.drain()
        self._watchers.on_store_closed()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._writing_thread.shutdown()
        self._reading_thread.shutdown()
        self._database.cleanup.close()

    async def _read_page(self, number: int) -> SnapshotPage:
        return await self._read(self._database.reader.page, number)

    async def _read(self, read: Callable[[T], R], argument: T) -> R:
        self._check_open()
        return await self._loop.run_in_executor(self._reading_thread, read, argument)

    def _check_open(self) -> None:
        if self._close_task is not None:
            raise StoreClosed


def _close_abandoned(opening: asyncio.Future[_OpenDatabase]) -> None:
    """Close a store whose opener was cancelled."""
    with suppress(StoreError):
        opening.result().cleanup.close()
