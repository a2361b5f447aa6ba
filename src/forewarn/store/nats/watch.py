"""Watch of a cell: a snapshot of its records, then changes; after a gap, a new snapshot that is compared with the old.

The port's watch yields one snapshot. Whatever differs in a later one is yielded as changes, and what it lacks as
deletions. A record that has become older ends the watch: the stream was restored from a backup.
"""

import asyncio
from collections.abc import Callable, Mapping

from forewarn.store.nats.follower import FollowLost, FollowStart
from forewarn.store.nats.message import StoredMessage
from forewarn.store.nats.stream import CELL_KEY, CellStream, StreamState
from forewarn.store.port import Deleted, Record, RecordKey, StoreError, StoreRestored, StoreReverted
from forewarn.store.watch import SnapshotPage, Watcher

PAGE_BYTES = 1 << 20
"""How many bytes of the snapshot are handed over at a time."""

MAX_PAGES = 4
"""How many pages may wait. The stream waits too, while there are as many."""

IDLE_ROUNDS = 2
"""After so many heartbeats without a message, the last record of the snapshot may have been removed."""

MAX_IDLE_ROUNDS = 20
"""After so many, the server of the consumer does not keep up with the leader, and another one is tried."""


class RecordWatch:
    """The records of a cell for one watcher. It handles the messages of a follower."""

    def __init__(self, stream: CellStream, cell_id: str, *, on_seen: Callable[[StoredMessage], None]) -> None:
        self.watcher = Watcher(self._read_page)
        self._stream = stream
        self._cell_id = cell_id
        self._on_seen = on_seen
        self._pages: asyncio.Queue[SnapshotPage | StoreError] = asyncio.Queue(MAX_PAGES)
        self._page: list[Record] = []
        self._page_size = 0
        self._has_snapshot = False
        self._revisions: dict[RecordKey, int] = {}
        """The newest revision of every record that exists, and of deletions that the stream has not brought yet."""
        self._position = 0
        self._complete = 0
        """Everything up to this sequence was received."""
        self._received = 0
        """The sequence of the last message; nothing older follows until the next start."""
        self._in_snapshot: dict[RecordKey, int] | None = None
        """The records that the current snapshot has brought so far, with their revisions."""
        self._snapshot_end = 0
        self._idle = 0

    async def on_start(self, state: StreamState) -> FollowStart:
        """Begin a snapshot."""
        self._check_cell(state.cell_id)
        if state.last < self._position:
            await self._stream.check_end(self._position)
        self._snapshot_end = await self._read_end()
        self._in_snapshot = {}
        self._idle = self._received = 0
        self._position = max(self._position, state.last)
        return FollowStart(None)

    def _check_cell(self, found: str) -> None:
        if found != self._cell_id:
            raise StoreRestored(self._stream.name, f"its id is {found}, not {self._cell_id}")

    async def on_message(self, message: StoredMessage, pending: int) -> None:
        """Take a record."""
        key = self._stream.subjects.key_of(message.subject)
        self._received = message.sequence
        self._position = max(self._position, message.sequence)
        self._idle = 0
        if key == CELL_KEY:
            self._check_cell(self._stream.accept_cell(message).id)
        else:
            self._on_seen(message)
            change = message.to_change(key, self._stream.newest_format)
            if self._in_snapshot is not None and isinstance(change, Record):
                self._in_snapshot[key] = change.revision
            await self._take(change)
        if self._in_snapshot is None:
            self._set_complete(message.sequence)
        elif message.sequence >= self._snapshot_end and not pending:
            # Records that were replaced while the snapshot was read have come too.
            await self._end_snapshot(self._in_snapshot)

    async def on_idle(self) -> None:
        """End the snapshot if its last record was removed while it was read; otherwise wait for it."""
        self._idle += 1
        if self._in_snapshot is None or self._idle < IDLE_ROUNDS:
            return
        self._snapshot_end = await self._read_end()
        if self._received >= self._snapshot_end:
            await self._end_snapshot(self._in_snapshot)
        elif self._idle >= MAX_IDLE_ROUNDS:
            raise FollowLost(f"the snapshot ends at {self._received}, before {self._snapshot_end}")

    async def _read_end(self) -> int:
        """Return the sequence of the newest record, from the leader."""
        newest = await self._stream.read_last(self._stream.subjects.records)
        return newest.sequence if newest is not None else 0

    def offer_saved(self, change: Record | Deleted) -> None:
        """Take a change that this process has saved, before the stream brings it."""
        if change.revision > self._received and self._is_new(change):
            self.watcher.offer(change)

    def fail(self, error: StoreError) -> None:
        """Raise an error from the watch, after all pending items."""
        self.watcher.fail(error)
        if not self._has_snapshot:
            while self._pages.full():
                self._pages.get_nowait()
            self._pages.put_nowait(error)

    async def _take(self, change: Record | Deleted) -> None:
        is_known = change.key in self._revisions
        if self._is_new(change):
            if isinstance(change, Record) and not self._has_snapshot:
                self._page.append(change)
                self._page_size += len(change.value)
                if self._page_size >= PAGE_BYTES:
                    await self._hand_over(is_last=False)
            elif isinstance(change, Record) or is_known or change.revision > self._complete > 0:
                self.watcher.offer(change)
        if isinstance(change, Deleted) and self._revisions.get(change.key) == change.revision:
            del self._revisions[change.key]  # nothing older can come from the stream any more

    def _is_new(self, change: Record | Deleted) -> bool:
        if change.revision <= self._revisions.get(change.key, 0):
            return False
        self._revisions[change.key] = change.revision
        return True

    async def _end_snapshot(self, found: Mapping[RecordKey, int]) -> None:
        if not self._has_snapshot:
            await self._hand_over(is_last=True)
            self._has_snapshot = True
        else:
            for key, known in [item for item in self._revisions.items() if found.get(item[0], 0) < item[1]]:
                subject = self._stream.subjects.of(key)
                newest = await self._stream.read_last(subject)
                if newest is None and known < self._snapshot_end:
                    # A deletion whose marker has ended while nothing was received.
                    await self._take(Deleted(key, self._snapshot_end))
                elif (
                    newest is not None
                    and newest.sequence < known
                    and await self._stream.is_at(subject, newest.sequence)
                ):
                    raise StoreReverted(self._stream.name, f"{key} is at {newest.sequence}, not {known}")
        self._in_snapshot = None
        self._set_complete(max(self._snapshot_end, self._received))

    def _set_complete(self, sequence: int) -> None:
        self._complete = sequence
        self.watcher.reach(sequence)

    async def _hand_over(self, *, is_last: bool) -> None:
        page = SnapshotPage(self._page, as_of=self._position, next=None if is_last else 1)
        await self._pages.put(page)  # if it is cancelled, the page goes on with the next snapshot
        self._page, self._page_size = [], 0

    async def _read_page(self, _: int) -> SnapshotPage:
        page = await self._pages.get()
        if isinstance(page, StoreError):
            raise page
        return page
