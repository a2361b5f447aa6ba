"""The embedded store: one SQLite file in a data directory that belongs to one process.

Nothing here blocks the event loop: one thread writes, another one reads.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from forewarn.core.journal import Entry
from forewarn.store.database import DATABASE_FILE, prepare_database
from forewarn.store.directory import DirectoryLock, os_errors_named, prepare_directory
from forewarn.store.group_commit import GroupCommit
from forewarn.store.port import (
    Extent,
    JournalQuery,
    JournalRow,
    Key,
    Record,
    Retention,
    StoreClosed,
    StoreError,
    Watched,
    check_save,
)
from forewarn.store.reading import Reader
from forewarn.store.watching import Page, Watchers
from forewarn.store.writing import Save, Writer, prepare_lines

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class _Parts(NamedTuple):
    """What an open store holds, and how to let go of it."""

    writer: Writer
    reader: Reader
    release: ExitStack

    @classmethod
    def open(cls, directory: Path) -> "_Parts":
        with ExitStack() as undo:
            with os_errors_named(directory):
                prepare_directory(directory)
                lock = DirectoryLock.acquire(directory)
            undo.callback(lock.release)
            path = directory / DATABASE_FILE
            prepare_database(path)
            writer = Writer(path)
            undo.callback(writer.close)
            reader = Reader(path)
            undo.callback(reader.close)
            return cls(writer, reader, undo.pop_all())


class SqliteStore:
    """Records and journal in one file. To be opened with `open`, and used on the event loop that opened it."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._writing_thread = ThreadPoolExecutor(1, "forewarn-store-writer")
        self._reading_thread = ThreadPoolExecutor(1, "forewarn-store-reader")
        self._watchers = Watchers()
        self._group = GroupCommit(self._writing_thread, parts.writer.commit, self._watchers.publish)
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, directory: Path) -> "SqliteStore":
        """Open the store in a data directory; make both where they are missing."""
        opening = asyncio.get_running_loop().run_in_executor(None, _Parts.open, directory)
        try:
            return cls(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_let_go)
            raise

    async def load(self, key: Key) -> Record | None:
        """Return the newest saved value, or None where there is no such record."""
        return await self._read(self._parts.reader.load, key)

    async def save(self, key: Key, value: bytes | None, entries: Sequence[Entry], *, expected: int | None) -> int:
        """Save value and entries in one step and return the new revision, once both are durable."""
        check_save(key, value, entries, expected=expected)
        self._refuse_if_closed()
        return await self._group.save(Save(key, value, prepare_lines(entries), expected))

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[Watched]]:
        """Give the newest value of each key, SnapshotEnd, then changes."""
        self._refuse_if_closed()
        with self._watchers.join(self._read_page) as watcher:
            yield watcher

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`."""
        return await self._read(self._parts.reader.journal, query)

    async def extent(self) -> Extent:
        """Return how far the journal reaches."""
        return await self._read(self._parts.reader.extent, None)

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows beyond the retention; return how many."""
        self._refuse_if_closed()
        return await self._loop.run_in_executor(self._writing_thread, self._parts.writer.prune, retention, now)

    async def check(self) -> None:
        """Write something that changes nothing, durably."""
        self._refuse_if_closed()
        await self._loop.run_in_executor(self._writing_thread, self._parts.writer.check)

    async def aclose(self) -> None:
        """Finish what was accepted and release everything. A second call does nothing."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._group.drain()
        self._watchers.store_closed()
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._reading_thread.shutdown()
        self._writing_thread.shutdown()
        self._parts.release.close()

    async def _read_page(self, number: int) -> Page:
        return await self._read(self._parts.reader.page, number)

    async def _read(self, read: Callable[[Asked], Answer], asked: Asked) -> Answer:
        self._refuse_if_closed()
        return await self._loop.run_in_executor(self._reading_thread, read, asked)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise StoreClosed


def _let_go(opening: asyncio.Future[_Parts]) -> None:
    """Close a store that was opened for someone who no longer waits for it."""
    with suppress(StoreError):
        opening.result().release.close()
