"""In-memory store for tests and for ephemeral services: all data is lost when the process ends."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import islice
from operator import attrgetter

from forewarn.core.journal import REQUEST_KEY, Entry
from forewarn.store.port import (
    NO_GUARDS,
    PRUNE_BATCH,
    Deleted,
    Extent,
    GuardConflict,
    Guards,
    JournalQuery,
    JournalRow,
    Record,
    RecordKey,
    Retention,
    RevisionConflict,
    StoreClosed,
    WatchItem,
    check_save,
)
from forewarn.store.watch import SnapshotPage, Watchers


class MemoryStore:
    """Records and journal in this process alone."""

    cell_id: str | None = None

    def __init__(self) -> None:
        self._records: dict[RecordKey, Record] = {}
        self._rows: list[JournalRow] = []
        self._revision = 0
        self._position = 0
        self._pruned = 0
        self._watchers = Watchers()
        self._closed = False

    async def load(self, key: RecordKey) -> Record | None:
        """Return the newest saved value, or None if the record does not exist."""
        await self._yield_to_loop()
        return self._records.get(key)

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save value and entries in one step and return the new revision."""
        check_save(key, value, entries, expected=expected, guards=guards)
        await self._yield_to_loop()
        for guard, revision in guards.items():
            if (present := self._revision_of(guard)) != revision:
                raise GuardConflict(guard, expected=revision, actual=present)
        if (actual := self._revision_of(key)) != expected:
            raise RevisionConflict(key, expected=expected, actual=actual)
        return self._write(key, value, entries)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[WatchItem]]:
        """Yield the newest value of each key, SnapshotEnd, then changes."""
        await self._yield_to_loop()
        with self._watchers.subscribe(self._read_page) as watcher:
            yield watcher

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows in order of position, or the newest first, at most `query.limit`."""
        await self._yield_to_loop()
        first = bisect_right(self._rows, query.after, key=attrgetter("position"))
        last = len(self._rows)
        if query.before is not None:
            last = bisect_left(self._rows, query.before, key=attrgetter("position"))
        rows = self._rows[first:last]
        matching = (row for row in (reversed(rows) if query.newest_first else rows) if _matches(row, query))
        return list(islice(matching, query.limit))

    async def extent(self) -> Extent:
        """Return the extent of the journal."""
        await self._yield_to_loop()
        return Extent(self._pruned, self._position)

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows beyond the retention; return the number of removed rows."""
        await self._yield_to_loop()
        expired = [row.position for row in self._rows if _is_expired(row, retention, now)]
        kept = [row.position for row in self._rows if not _is_expired(row, retention, now)]
        surplus = 0 if retention.rows is None else max(0, len(kept) - retention.rows)
        batch = set((expired + kept[:surplus])[:PRUNE_BATCH])
        self._rows = [row for row in self._rows if row.position not in batch]
        self._pruned = max(batch | {self._pruned})
        return len(batch)

    async def check(self, size: int = 0) -> None:
        """Do nothing: writing to memory always works."""
        del size
        await self._yield_to_loop()

    async def aclose(self) -> None:
        """Refuse all further calls. A second call does nothing."""
        self._closed = True
        self._watchers.on_store_closed()

    async def _yield_to_loop(self) -> None:
        """Let other tasks run first, as they do while a store with a disk is working."""
        if self._closed:
            raise StoreClosed
        await asyncio.sleep(0)

    def _revision_of(self, key: RecordKey) -> int | None:
        record = self._records.get(key)
        return None if record is None else record.revision

    def _write(self, key: RecordKey, value: bytes | None, entries: Sequence[Entry]) -> int:
        self._revision += 1
        change: Record | Deleted
        if value is None:
            del self._records[key]
            change = Deleted(key, self._revision)
        else:
            change = self._records[key] = Record(key, value, self._revision)
        for entry in entries:
            self._position += 1
            self._rows.append(JournalRow(self._position, key, entry))
        self._watchers.publish(change)
        return self._revision

    async def _read_page(self, _: int) -> SnapshotPage:
        return SnapshotPage(list(self._records.values()), as_of=self._revision, next=None)


def _matches(row: JournalRow, query: JournalQuery) -> bool:
    return (
        (query.key is None or row.key == query.key)
        and (query.event is None or row.entry.event == query.event)
        and (query.vm is None or _concerns(row, query.vm))
        and (not query.kinds or row.entry.kind in query.kinds)
        and (query.by is None or row.entry.by == query.by)
        and (query.request is None or row.entry.facts.get(REQUEST_KEY) == query.request)
        and (query.since is None or row.entry.at >= query.since)
        and (query.until is None or row.entry.at < query.until)
    )


def _concerns(row: JournalRow, vm: str) -> bool:
    names = row.entry.vms
    return not names or vm.lower() in (name.lower() for name in names)


def _is_expired(row: JournalRow, retention: Retention, now: datetime) -> bool:
    return retention.age is not None and row.entry.at < now - retention.age
