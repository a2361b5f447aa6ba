"""Journal index: the journal of a cell in a local SQLite file, so that it can be searched.

The file contains nothing that the stream does not have. It can be deleted at any time while the service is stopped, and
is filled again. Its name contains the id of the cell, so the index of another cell is never used.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from forewarn.files import read_file, write_file
from forewarn.store.nats.follower import FollowStart
from forewarn.store.nats.message import POSITIONS_PER_MESSAGE, StoredMessage, read_lines
from forewarn.store.nats.stream import CellStream, StreamState
from forewarn.store.port import (
    Extent,
    JournalQuery,
    JournalRow,
    RecordKey,
    Retention,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    StoreRestored,
    StoreReverted,
    StoreTooNew,
    StoreUnavailable,
)
from forewarn.store.sqlite.database import SUFFIXES, prepare_database
from forewarn.store.sqlite.reader import Reader
from forewarn.store.sqlite.writer import EncodedEntry, Writer, encode_entries

log = logging.getLogger(__name__)

FILE_PREFIX = "journal-"
REVERTED_FILE = "reverted"
"""The file with the id of a cell whose stream is older than what this process has read of it, and the reason."""

MAX_WAITING_ROWS = 5_000
"""How many rows may wait to be written. The stream waits too, while there are as many."""

CATCH_UP_SECONDS = 10.0
"""How long a query waits until the index has the newest row that this process knows of."""

T = TypeVar("T")


class _Purged(NamedTuple):
    """Rows that were removed from the stream: those before the position; `pruned` is the highest removed one."""

    before: int
    pruned: int


class JournalIndex:
    """The index of one process. It handles the messages of a follower."""

    def __init__(self, stream: CellStream, path: Path, cell_id: str, writer: Writer, reader: Reader) -> None:
        self._stream = stream
        self._path = path
        self._cell_id = cell_id
        self._writer = writer
        self._reader = reader
        self._writing_thread = ThreadPoolExecutor(1, "forewarn-index-writer")
        self._reading_thread = ThreadPoolExecutor(1, "forewarn-index-reader")
        self._rows: list[tuple[int, RecordKey, EncodedEntry]] = []
        self._purged: _Purged | None = None
        self._received = writer.revision
        """The sequence of the last message that was received."""
        self._written = writer.revision
        """The sequence up to which all rows are in the file."""
        self._newest = 0
        """The sequence of the newest journal message that this process knows of."""
        self._purged_before = 0
        self._changed = asyncio.Condition()
        self._error: StoreError | None = None

    @classmethod
    async def open(cls, stream: CellStream, directory: Path, state: StreamState) -> "JournalIndex":
        """Open the index in a directory, or create an empty one if it is missing, damaged or of another stream."""
        newest = await stream.read_last(stream.subjects.journal)
        path = directory / f"{FILE_PREFIX}{state.cell_id}.db"
        writer, reader = await asyncio.to_thread(_open_file, path)
        reverted = await _find_reverted(stream, state.last, writer, reader)
        if reverted is not None:
            log.warning("building the journal index again: %s", reverted)
            await asyncio.to_thread(note_reverted, directory, state.cell_id, reverted)
            writer, reader = await asyncio.to_thread(_replace_file, path, writer, reader)
        index = cls(stream, path, state.cell_id, writer, reader)
        if newest is not None:
            index.expect(newest.sequence)
        return index

    def expect(self, sequence: int) -> None:
        """Note that the stream has a journal message of this sequence; later queries wait for it."""
        self._newest = max(self._newest, sequence)

    async def on_start(self, state: StreamState) -> FollowStart:
        """Continue after the last message that was received."""
        if state.cell_id != self._cell_id:
            raise StoreRestored(self._stream.name, f"its id is {state.cell_id}, not {self._cell_id}")
        if state.last < self._received:
            await self._stream.check_end(self._received)
        return FollowStart(self._received + 1)

    async def on_message(self, message: StoredMessage, pending: int) -> None:
        """Take journal lines, or the note that some were removed."""
        del pending
        if message.subject == self._stream.subjects.pruned:
            content = json.loads(message.data)
            self._purged = _Purged(int(content["before"]), int(content["pruned"]))
        else:
            key, entries = read_lines(message, self._stream.newest_format)
            first = message.sequence * POSITIONS_PER_MESSAGE
            lines = encode_entries(entries)
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._rows) < MAX_WAITING_ROWS)
                self._rows += ((first + number, key, line) for number, line in enumerate(lines))
        self.expect(message.sequence if message.subject == self._stream.subjects.journal else 0)
        async with self._changed:
            self._received = message.sequence
            self._changed.notify_all()

    async def on_idle(self) -> None:
        """Do nothing: a query waits for a message that exists."""

    async def write(self) -> None:
        """Write received rows into the file, without end."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._received > self._written)
                rows, purged, received = self._rows, self._purged, self._received
                self._rows, self._purged = [], None
            await self._run(self._writing_thread, lambda: self._write_batch(rows, purged, received))  # noqa: B023 - awaited here
            async with self._changed:
                self._written = received
                self._changed.notify_all()

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows, among them all that this process knows of."""
        await self._catch_up()
        return await self._run(self._reading_thread, lambda: self._reader.journal(query))

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        await self._catch_up()
        return await self._run(self._reading_thread, lambda: self._reader.extent(None))

    async def prune(self, retention: Retention, now: datetime) -> int:
        """Remove one small batch of rows beyond the retention, also from the stream; return how many."""
        await self._catch_up()
        removed = await self._run(self._writing_thread, lambda: self._writer.prune(retention, now))
        first = await self._run(self._writing_thread, self._writer.first_position)
        # Only the beginning of the journal is removed from the stream. A row that has expired behind one that is kept
        # comes back if the index is built again, until it is pruned again.
        before = self._written + 1 if first is None else first // POSITIONS_PER_MESSAGE
        if removed or before > self._purged_before:
            extent = await self._run(self._reading_thread, lambda: self._reader.extent(None))
            if extent.pruned:
                await self._stream.purge_journal(before, extent.pruned)
            self._purged_before = before
        return removed

    async def fail(self, error: StoreError) -> None:
        """Raise an error from every query, also from those that wait."""
        self._error = error
        async with self._changed:
            self._changed.notify_all()

    async def aclose(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._release)

    def _release(self) -> None:
        self._writing_thread.shutdown()
        self._reading_thread.shutdown()
        self._reader.close()
        self._writer.close()

    def _write_batch(
        self, rows: list[tuple[int, RecordKey, EncodedEntry]], purged: _Purged | None, received: int
    ) -> None:
        self._writer.append(rows, revision=received, pruned=purged.pruned if purged else 0)
        if purged:
            self._writer.remove_before(purged.before * POSITIONS_PER_MESSAGE)

    async def _catch_up(self) -> None:
        newest = self._newest
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS), self._changed:
                await self._changed.wait_for(lambda: self._written >= newest or self._error is not None)
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the journal of {self._stream.name}", f"the index is at {self._written} and does not reach {newest}"
            ) from error
        if self._error is not None:
            raise self._error

    async def _run(self, thread: ThreadPoolExecutor, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, function)


def index_names(directory: Path) -> list[str]:
    """Return the names of all files of indexes in a directory, and of the note that a stream is older."""
    return [REVERTED_FILE, *(path.name for path in directory.glob(f"{FILE_PREFIX}*"))]


def note_reverted(directory: Path, cell_id: str, reason: str) -> None:
    """Note that the stream of a cell is older than what this process has read of it."""
    file = directory / REVERTED_FILE
    try:
        write_file(file, f"{cell_id} {reason}\n".encode())
    except OSError as error:
        raise StoreFailed(file, error.strerror or str(error)) from error


def read_reverted(directory: Path, cell_id: str) -> str | None:
    """Return the reason that was noted for a cell; remove the note if the cell has another id since."""
    file = directory / REVERTED_FILE
    if not file.exists():
        return None
    noted, _, reason = read_file(file).decode().strip().partition(" ")
    if noted == cell_id:
        return reason
    file.unlink()
    return None


def _open_file(path: Path) -> tuple[Writer, Reader]:
    """Open the file, or a new one if it is damaged; remove the files of other cells."""
    for other in path.parent.glob(f"{FILE_PREFIX}*.db"):
        if other != path:
            log.warning("removing %s: it is the index of another cell", other)
            _remove(other)
    try:
        return _open_existing(path)
    except (StoreCorrupt, StoreTooNew) as error:
        log.warning("building the journal index again: %s", error)
        _remove(path)
        return _open_existing(path)


def _replace_file(path: Path, writer: Writer, reader: Reader) -> tuple[Writer, Reader]:
    reader.close()
    writer.close()
    _remove(path)
    return _open_existing(path)


async def _find_reverted(stream: CellStream, last: int, writer: Writer, reader: Reader) -> str | None:
    """Return why a stream that ends at `last` is older than the index; None if it is not.

    A stream that was restored from a backup may have grown beyond the end of the index again, with other rows.
    """
    if writer.revision > last:
        try:
            await stream.check_end(writer.revision)
        except StoreReverted as error:
            return error.reason
    rows = await asyncio.to_thread(reader.journal, JournalQuery(newest_first=True, limit=1))
    if not rows or await _has_row(stream, rows[0]):
        return None
    await stream.test_write(0)  # a former leader that is cut off cannot do that, but it answers
    if await _has_row(stream, rows[0]):
        return None
    return f"its row {rows[0].position} is not in the stream any more"


async def _has_row(stream: CellStream, row: JournalRow) -> bool:
    """Return whether the stream has a row, or it was purged."""
    sequence, number = divmod(row.position, POSITIONS_PER_MESSAGE)
    message = await stream.read_at(sequence)
    if message is None:
        pruned = await stream.read_last(stream.subjects.pruned)
        return pruned is not None and sequence < int(json.loads(pruned.data)["before"])
    if message.subject != stream.subjects.journal:
        return False
    key, entries = read_lines(message, stream.newest_format)
    return key == row.key and number < len(entries) and entries[number] == row.entry


def _open_existing(path: Path) -> tuple[Writer, Reader]:
    prepare_database(path)
    writer = Writer(path)
    try:
        return writer, Reader(path)
    except BaseException:
        writer.close()
        raise


def _remove(path: Path) -> None:
    for suffix in SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
