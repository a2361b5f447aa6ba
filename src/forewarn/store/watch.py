"""Watch: a snapshot read page by page, then changes, coalesced per key. Shared by all stores.

Everything here runs on the store's event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from forewarn.store.port import Deleted, Reached, Record, RecordKey, SnapshotEnd, StoreClosed, StoreError, WatchItem


class SnapshotPage(NamedTuple):
    """A part of the snapshot: records as of the store's revision `as_of`."""

    records: list[Record]
    as_of: int
    next: int | None
    """The start of the next page; None after the last one."""


ReadPage = Callable[[int], Awaitable[SnapshotPage]]


class Watcher:
    """The items of one watch, in the order in which they may be yielded.

    Changes are queued from the start, while the snapshot is still being read, so that none is missed between the two. A
    key has at most one place in the queue; a newer value replaces the older one.
    """

    def __init__(self, read_page: ReadPage) -> None:
        self._read_page = read_page
        self._next_page: int | None = 0
        self._due_before_page = (
            0  # items to yield before the next page is read: a busy writer must not delay the snapshot's end
        )
        self._snapshot_revision = self._reached = 0
        self._seen_revisions: dict[RecordKey, int] = {}
        self._pending: OrderedDict[RecordKey | type[SnapshotEnd | Reached], WatchItem] = OrderedDict()
        self._changed = asyncio.Event()
        self._is_closed = False
        self._error: StoreError | None = None

    def __aiter__(self) -> "Watcher":
        return self

    async def __anext__(self) -> WatchItem:
        while self._next_page is not None and not self._due_before_page and self._error is None:
            self._take_page(await self._read_page(self._next_page))
        while not self._pending:
            await self._wait()
        self._due_before_page -= 1
        return self._pending.popitem(last=False)[1]

    def offer(self, change: Record | Deleted) -> None:
        """Queue a change. Committed changes must be offered in the order of their revisions."""
        if change.revision <= self._seen_revisions.get(change.key, 0):
            return
        if self._next_page is not None:
            self._seen_revisions[change.key] = change.revision
        elif change.revision > self._snapshot_revision:
            # Every revision in the snapshot has been delivered by now, so no late change can follow.
            self._seen_revisions.clear()
        self._pending[change.key] = change
        self._changed.set()

    def reach(self, revision: int) -> None:
        """Note that every change up to a revision has been offered, by now or in the snapshot."""
        self._reached = max(self._reached, revision)
        if self._next_page is None:
            self._pending.pop(Reached, None)  # it comes after all that was offered before it
            self._pending[Reached] = Reached(self._reached)
            self._changed.set()

    def close(self) -> None:
        """End the iteration: the watch is over."""
        self._is_closed = True
        self._next_page = None
        self._pending.clear()
        self._changed.set()

    def fail(self, error: StoreError) -> None:
        """Raise an error from the iteration after all pending items."""
        self._error = error
        self._changed.set()

    def _take_page(self, page: SnapshotPage) -> None:
        if self._is_closed:
            return
        for record in page.records:
            self.offer(record)
        self._next_page = page.next
        self._due_before_page = len(self._pending)
        if page.next is None:
            self._snapshot_revision = page.as_of
            self._pending[SnapshotEnd] = SnapshotEnd()
            self.reach(page.as_of)

    async def _wait(self) -> None:
        if self._is_closed:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        self._changed.clear()
        await self._changed.wait()


class Watchers:
    """All watchers of a store."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    @contextmanager
    def subscribe(self, read_page: ReadPage) -> Iterator[Watcher]:
        """Create a watcher that receives every change from now on."""
        watcher = Watcher(read_page)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            watcher.close()

    def publish(self, change: Record | Deleted) -> None:
        """Publish a durable change to every watcher."""
        for watcher in self._watchers:
            watcher.offer(change)
            watcher.reach(change.revision)

    def on_store_closed(self) -> None:
        """Close every watcher, because no change will come any more."""
        for watcher in self._watchers:
            watcher.fail(StoreClosed())
