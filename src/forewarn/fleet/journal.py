"""Journal: streams that follow it from a position, queries of its history with pagination, and pruning.

A stream is only a position: the newest rows are read once for all streams, and a slow stream reads its own pages. No
row is skipped or repeated, whichever process saved it.
"""

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter

from forewarn.clock import Clock
from forewarn.core.backoff import backoff
from forewarn.core.journal import CAMPAIGN_CHANGE_KINDS, EVENT_CHANGE_KINDS, EntryKind
from forewarn.fleet.duty import DutyWork
from forewarn.fleet.errors import JournalPruned, PositionNotFound
from forewarn.fleet.main_loop import MainLoop
from forewarn.fleet.replica import Replica
from forewarn.store.port import (
    JournalQuery,
    JournalRow,
    RecordKey,
    RecordKind,
    Retention,
    Store,
    StoreClosed,
    StoreError,
)

log = logging.getLogger(__name__)

FEED_PAGE = 200
"""How many rows are read and passed to a stream at a time."""

TAIL_ROWS = 1_000
"""How many of the newest rows are kept in memory for all streams."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""The pauses in seconds before the newest rows are read again after the store has failed."""

HISTORY_PAGE = 100

CHANGE_KINDS = tuple(EVENT_CHANGE_KINDS | CAMPAIGN_CHANGE_KINDS)

DEFAULT_RETENTION = Retention(age=timedelta(days=400), rows=1_000_000)
"""The default retention of the journal."""

PRUNE_INTERVAL = 3600.0
"""The pause in seconds between two prunings."""


class Journal:
    """Queries and streams of the journal. `wake` must be called after every change of the store."""

    def __init__(self, store: Store, tasks: asyncio.TaskGroup) -> None:
        self._store = store
        self._tasks = tasks
        self._tail: deque[JournalRow] = deque(maxlen=TAIL_ROWS)
        self._tail_start = 0  # the tail has every row after this position
        self._changed = asyncio.Event()
        self._grown = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._is_closed = False
        self.open = 0
        """The number of streams."""

    def wake(self) -> None:
        """Read new rows, because this or another process has saved something."""
        self._changed.set()

    async def query(self, query: JournalQuery) -> list[JournalRow]:
        """Return a page of the journal; `journal_query` builds the query of a request."""
        return await self._store.journal(query)

    async def changes(self, after: int, limit: int) -> list[JournalRow]:
        """Return the changes of events and campaigns after a position of the journal, the oldest first."""
        return await self._store.journal(JournalQuery(after=after, kinds=CHANGE_KINDS, limit=limit))

    async def end(self) -> int:
        """Return the position of the journal's newest row; 0 if it has none."""
        rows = await self._store.journal(JournalQuery(newest_first=True, limit=1))
        return rows[0].position if rows else 0

    def close(self) -> None:
        """End every stream after its pending rows, and every later one at once, because the service stops."""
        self._is_closed = True
        self._notify()

    async def resolve_position(self, after: int | None) -> int:
        """Return the position at which a stream continues, or raise if it cannot. None: from now on."""
        extent = await self._store.extent()
        if after is None:
            return extent.last
        if after > extent.last:
            raise PositionNotFound(after, extent.last)
        if after < extent.pruned:
            raise JournalPruned(after, extent.pruned)
        return after

    async def follow(self, after: int | None = None) -> AsyncGenerator[Sequence[JournalRow], None]:
        """Yield the rows after the position, then new ones, as they come, until `close`; None: from now on.

        Each page has at least one row. Raises the errors of `resolve_position`.
        """
        with self._subscribed():
            position = await self.resolve_position(after)
            while not self._is_closed:
                grown = self._grown
                rows = await self._next_rows(position)
                if rows:
                    position = rows[-1].position
                    yield rows
                else:
                    await grown.wait()

    @contextmanager
    def _subscribed(self) -> Iterator[None]:
        """Keep the newest rows up to date while there are streams."""
        self.open += 1
        if self._follower is None:
            self._follower = self._tasks.create_task(self._follow(), name="feed")
        try:
            yield
        finally:
            self.open -= 1
            if not self.open:
                self._follower.cancel()
                self._follower = None
                self._tail.clear()

    async def _follow(self) -> None:
        position: int | None = None
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            try:
                if position is None:
                    position = self._tail_start = (await self._store.extent()).last
                    self._notify()  # streams that have read before that read again
                await self._changed.wait()
                self._changed.clear()
                position = await self._read_new_rows(position)
                pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
            except StoreClosed:
                self._notify()
                return
            except StoreError as error:
                pause = next(pauses)
                log.warning("could not read the newest journal rows: %s; retrying in %.0f s", error, pause)
                self._tail.clear()
                position = None
                self._notify()  # each stream reads by itself and gets its own error
                await asyncio.sleep(pause)

    async def _read_new_rows(self, position: int) -> int:
        """Read new rows into memory, and wake the streams."""
        while rows := await self._store.journal(JournalQuery(after=position, limit=FEED_PAGE)):
            pruned = (await self._store.extent()).pruned
            if pruned > position:  # rows may be missing before the first one that was read
                self._tail.clear()
                self._tail_start = pruned
            for row in rows:
                if row.position > self._tail_start:
                    if len(self._tail) == TAIL_ROWS:
                        self._tail_start = self._tail[0].position
                    self._tail.append(row)
            position = rows[-1].position
            self._notify()
        return position

    def _notify(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def _next_rows(self, position: int) -> list[JournalRow]:
        """Return the next rows that are available; empty means wait."""
        if self._tail and position >= self._tail_start:
            start = bisect_right(self._tail, position, key=attrgetter("position"))
            return list(islice(self._tail, start, start + FEED_PAGE))
        rows = await self._store.journal(JournalQuery(after=position, limit=FEED_PAGE))
        # Read after the rows: whatever was removed before they were read is known by now.
        if (pruned := (await self._store.extent()).pruned) > position:
            raise JournalPruned(position, pruned)
        return rows


def journal_query(
    replica: Replica,
    *,
    scope: str | None = None,
    vm: str | None = None,
    event: str | None = None,
    kinds: tuple[EntryKind, ...] = (),
    by: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: int = 0,
    newest_first: bool = False,
    limit: int = HISTORY_PAGE,
) -> JournalQuery:
    """Build the query for a page. `page` is the position of the last row of the previous page; 0 is the first page.

    Removed scopes and VMs still have journal rows: name such a VM as `scope/name`, or by its bare name along with its
    scope. A bare name alone must be the unambiguous name of an existing VM.
    """
    if vm is not None:
        scope, vm = _locate_vm(replica, scope, vm)
    return JournalQuery(
        key=None if scope is None else RecordKey(RecordKind.SCOPE, scope),
        event=None if event is None else event.upper(),
        vm=vm,
        kinds=kinds,
        by=by,
        since=since,
        until=until,
        after=0 if newest_first else page,
        before=page if newest_first and page else None,
        newest_first=newest_first,
        limit=limit,
    )


def _locate_vm(replica: Replica, scope: str | None, vm: str) -> tuple[str, str]:
    in_scope, slash, name = vm.rpartition("/")
    if slash:
        return in_scope, name
    if scope is not None:
        return scope, vm
    view, found = replica.find(vm)
    return view.id, found.name


class JournalPruner:
    """The duty to keep the journal within its retention."""

    def __init__(
        self, main_loop: MainLoop, retention: Retention, clock: Clock, is_allowed: Callable[[], bool] = lambda: True
    ) -> None:
        self._is_allowed = is_allowed
        self._store = main_loop.store
        self._retention = retention
        self._clock = clock
        self._tasks = DutyWork(main_loop)

    async def start(self) -> None:
        """Prune now and every hour."""
        if not self._tasks.is_busy:
            self._tasks.create(self._run(), name="prune the journal")

    def halt(self) -> None:
        """Cancel the task."""
        self._tasks.halt()

    async def stop(self) -> None:
        """Stop pruning."""
        await self._tasks.stop()

    async def _run(self) -> None:
        """Remove rows beyond the retention, a small batch at a time, now and every hour."""
        while True:
            try:
                while self._is_allowed() and await self._store.prune(self._retention, now=self._clock.now()):  # noqa: ASYNC110 - batch by batch
                    await asyncio.sleep(0)
            except StoreError as error:
                log.warning("could not prune the journal: %s", error)
            await asyncio.sleep(PRUNE_INTERVAL)
