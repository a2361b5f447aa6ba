"""Migration from and into a data directory with a SQLite store."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from forewarn.files import check_links, prepare_directory
from forewarn.store.migration import (
    MIGRATION,
    PAGE_ITEMS,
    MigrationCursor,
    MigrationPage,
    MigrationState,
    TargetUsed,
    decode_state,
    encode_state,
    is_migrated,
)
from forewarn.store.port import (
    MAX_NUMBER,
    Extent,
    JournalQuery,
    Record,
    RevisionConflict,
    StoreCorrupt,
    StoreError,
    StoreFailed,
)
from forewarn.store.sqlite.backup import copy_database
from forewarn.store.sqlite.database import (
    DATABASE_FILE,
    SUFFIXES,
    check_database,
    is_current,
    open_for_reading,
    open_for_writing,
    open_unused,
    prepare_database,
)
from forewarn.store.sqlite.directory import lock_directory, wrap_os_errors
from forewarn.store.sqlite.reader import Reader
from forewarn.store.sqlite.restore import READY_PREFIX
from forewarn.store.sqlite.store import STORE_FILES
from forewarn.store.sqlite.writer import Save, Writer, encode_entries


class SqliteSource:
    """A data directory whose service is stopped. It is locked until `close`."""

    def __init__(self, directory: Path) -> None:
        self.name = str(directory)
        database = directory / DATABASE_FILE
        check_links(directory, STORE_FILES)
        if any(directory.glob(f"{READY_PREFIX}*")):
            raise StoreFailed(directory, "a restore is not complete; start and stop its service once")
        with wrap_os_errors(directory):
            self._lock = lock_directory(directory)
        self._copy: TemporaryDirectory[str] | None = None
        try:
            check_database(database)
            if not is_current(database):
                # A schema of an older version is migrated in a copy: the source stays as it is.
                self._copy = TemporaryDirectory(prefix="forewarn-migrate-")
                database = _copy_current(database, Path(self._copy.name) / DATABASE_FILE)
            self._reader = Reader(database, open_unused)
            self._counts = _read_counts(database)
        except BaseException:
            self._release()
            raise

    async def read_state(self) -> str:
        """Return the counters of the database: each change increases one of them."""
        return self._counts[0]

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        return await asyncio.to_thread(self._reader.extent, None)

    async def size(self) -> int:
        """Return how many records and journal rows there are."""
        return self._counts[1]

    async def pages(self, after: MigrationCursor) -> AsyncGenerator[MigrationPage, None]:
        """Yield the journal, then the records."""
        steps = _pages(self._reader, after)
        while (page := await asyncio.to_thread(next, steps, None)) is not None:
            yield page

    def close(self) -> None:
        """Release the directory."""
        self._reader.close()
        self._release()

    def _release(self) -> None:
        self._lock.release()
        if self._copy is not None:
            self._copy.cleanup()


class SqliteTarget:
    """A data directory without a database, or with that of an unfinished migration. It is locked until `close`."""

    def __init__(self, directory: Path) -> None:
        self.name = str(directory)
        self._path = directory / DATABASE_FILE
        with wrap_os_errors(directory):
            prepare_directory(directory, STORE_FILES)
            self._lock = lock_directory(directory)
        self._writer: Writer | None = None
        self._state: MigrationState | None = None
        self._extent = Extent(0, 0)

    async def begin(self, state: MigrationState, extent: Extent) -> MigrationState:
        """Create the database; positions of the journal stay as they are."""
        self._extent = extent
        self._state = await asyncio.to_thread(self._begin, state)
        return self._state

    def _begin(self, state: MigrationState) -> MigrationState:
        found = self._read_marker()
        if found is None and not self._is_empty():
            raise TargetUsed(self.name, f"it has {DATABASE_FILE}")
        prepare_database(self._path)
        self._writer = Writer(self._path)
        if found is None:
            self._commit([Save(MIGRATION, encode_state(state), (), None)])
        return found or state

    async def write(self, page: MigrationPage) -> None:
        """Save the rows that are not there yet, then the records together with the cursor."""
        await asyncio.to_thread(self._write, page)

    def _write(self, page: MigrationPage) -> None:
        writer, state = self._open_writer()
        last = self._read_extent().last
        rows = [
            (row.position, row.key, line)
            for row in page.rows
            if row.position > last
            for line in encode_entries([row.entry])
        ]
        if rows or last < self._extent.pruned:
            writer.append(rows, revision=writer.revision, pruned=self._extent.pruned)
        state = replace(state, cursor=page.cursor, change=token_hex(12))
        saves = [Save(record.key, record.value, (), None) for record in page.records]
        marker = self._load_marker()
        self._commit([*saves, Save(MIGRATION, encode_state(state), (), marker.revision)])
        self._state = state

    async def clear(self) -> None:
        """Remove the files of an unfinished migration."""
        await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        if not self._path.exists():
            return
        if self._read_marker() is None:
            raise TargetUsed(self.name, "what it has is not an unfinished migration")
        for suffix in reversed(SUFFIXES):  # the database last: without it, its log would be an error
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    async def pages(self) -> AsyncGenerator[MigrationPage, None]:
        """Yield everything that was written."""
        reader = Reader(self._path, open_unused if self._writer is None else open_for_reading)
        try:
            steps = _pages(reader, MigrationCursor())
            while (page := await asyncio.to_thread(next, steps, None)) is not None:
                yield page
        finally:
            reader.close()

    async def finish(self) -> None:
        """Remove the marker."""
        await asyncio.to_thread(
            lambda: self._commit([Save(MIGRATION, None, (), self._load_marker().revision)]),
        )

    def close(self) -> None:
        """Release the directory."""
        if self._writer is not None:
            self._writer.close()
        self._lock.release()

    def _commit(self, saves: list[Save]) -> None:
        writer = self._writer
        assert writer is not None  # noqa: S101 - `begin` comes first
        for save, result in zip(saves, writer.commit(saves), strict=True):
            if isinstance(result, RevisionConflict) and self._has(save):
                continue  # written before the process was killed
            if isinstance(result, StoreError):
                raise result

    def _has(self, save: Save) -> bool:
        with closing(Reader(self._path)) as reader:
            found = reader.load(save.key)
        return found is not None and found.value == save.value

    def _open_writer(self) -> tuple[Writer, MigrationState]:
        assert self._writer is not None and self._state is not None  # noqa: S101, PT018 - `begin` comes first
        return self._writer, self._state

    def _load_marker(self) -> Record:
        with closing(Reader(self._path)) as reader:
            marker = reader.load(MIGRATION)
        if marker is None:
            raise StoreCorrupt(self._path, f"{MIGRATION} is missing")
        return marker

    def _read_marker(self) -> MigrationState | None:
        if not self._path.exists():
            return None
        check_database(self._path)
        if not is_current(self._path):
            raise TargetUsed(self.name, f"{DATABASE_FILE} is of an older version")
        with closing(Reader(self._path, open_unused)) as reader:
            marker = reader.load(MIGRATION)
        return None if marker is None else decode_state(marker.value)

    def _is_empty(self) -> bool:
        """Return whether nothing was ever saved, as after a kill before the first save."""
        if not self._path.exists():
            return True
        with closing(Reader(self._path, open_unused)) as reader:
            return not reader.page(0, 1).records and reader.extent(None) == (0, 0)

    def _read_extent(self) -> Extent:
        with closing(Reader(self._path)) as reader:
            return reader.extent(None)


def _pages(reader: Reader, after: MigrationCursor) -> Iterator[MigrationPage]:
    """Yield the journal from a position on, then the records from a number on."""
    journal = after.journal
    while rows := reader.journal(JournalQuery(after=journal, limit=PAGE_ITEMS)):
        journal = rows[-1].position
        yield MigrationPage(rows, (), MigrationCursor(journal, after.records))
    number: int | None = after.records
    while number is not None and number < MAX_NUMBER:
        page = reader.page(number, PAGE_ITEMS)
        number = page.next
        records = [record for record in page.records if is_migrated(record.key)]
        yield MigrationPage((), records, MigrationCursor(journal, MAX_NUMBER if number is None else number))


def _copy_current(database: Path, copy: Path) -> Path:
    copy.touch(mode=0o600)
    with closing(open_unused(database)) as original:
        copy_database(original, database, copy, lambda _done, _total: None)
    open_for_writing(copy).close()
    return copy


def _read_counts(database: Path) -> tuple[str, int]:
    with closing(open_unused(database)) as connection:
        counters = connection.execute("SELECT revision, position, journal_rows, pruned FROM counters").fetchone()
        records = connection.execute("SELECT count(*) FROM records").fetchone()[0]
    return "/".join(map(str, counters)), records + counters[2]
