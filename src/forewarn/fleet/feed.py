"""The feed: every line of the journal after a position, in order, then each new one as it is saved.

A feed is nothing but a position: however many there are, the newest lines are read once for all of them, and one that
is behind, or slow, reads pages of its own. No line is skipped and none is given twice, whichever process saved it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile

from forewarn.fleet.errors import NoSuchPosition, Pruned
from forewarn.store.port import JournalQuery, JournalRow, Store, StoreClosed, StoreError

log = logging.getLogger(__name__)

PAGE = 500
"""How many lines are read at a time."""

TAIL = 1_000
"""How many of the newest lines are kept for all feeds."""

RETRY = 1.0
"""How soon, in seconds, the newest lines are read again after the store has failed."""


class Feeds:
    """All feeds of a process. `wake` must be called after every change of the store."""

    def __init__(self, store: Store, tasks: asyncio.TaskGroup) -> None:
        self._store = store
        self._tasks = tasks
        self._tail: deque[JournalRow] = deque(maxlen=TAIL)  # without gaps
        self._changed = asyncio.Event()
        self._grown = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._ended = False
        self.open = 0
        """How many feeds there are."""

    def wake(self) -> None:
        """Something was saved, here or elsewhere."""
        self._changed.set()

    def end(self) -> None:
        """Let every feed end after what it has at hand, and every later one at once: the service stops."""
        self._ended = True
        self._announce()

    async def begin(self, after: int | None) -> int:
        """Return the position from which a feed goes on, or refuse one from which it cannot. None: from now on."""
        extent = await self._store.extent()
        if after is None:
            return extent.last
        if after > extent.last:
            raise NoSuchPosition(after, extent.last)
        if after < extent.pruned:
            raise Pruned(after, extent.pruned)
        return after

    async def rows(self, after: int | None) -> AsyncGenerator[JournalRow, None]:
        """Give every line after the position, then each new one, until `end`; raise what `begin` raises."""
        with self._joined():
            position = await self.begin(after)
            while not self._ended:
                grown = self._grown
                rows = await self._after(position)
                for row in rows:
                    position = row.position
                    yield row
                if not rows:
                    await grown.wait()

    @contextmanager
    def _joined(self) -> Iterator[None]:
        """Have the newest lines read as long as anybody wants them."""
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
        while True:
            try:
                if position is None:
                    position = (await self._store.extent()).last
                    self._announce()  # whoever has looked before that looks again
                await self._changed.wait()
                self._changed.clear()
                position = await self._grow(position)
            except StoreClosed:
                self._announce()
                return
            except StoreError as error:
                log.warning("the newest lines of the journal cannot be read: %s", error)
                self._tail.clear()
                position = None
                self._announce()  # they find out for themselves
                await asyncio.sleep(RETRY)

    async def _grow(self, position: int) -> int:
        """Read what is new into the tail, and tell the feeds."""
        while rows := await self._store.journal(JournalQuery(after=position, limit=PAGE)):
            for row in rows:
                if row.position != position + 1:
                    self._tail.clear()
                self._tail.append(row)
                position = row.position
            self._announce()
        return position

    def _announce(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    async def _after(self, position: int) -> list[JournalRow]:
        """Return the next lines, as many as are at hand; none: wait."""
        if self._tail and self._tail[0].position <= position + 1:
            return list(islice(self._tail, position + 1 - self._tail[0].position, None))
        rows = await self._store.journal(JournalQuery(after=position, limit=PAGE))
        if not rows and (extent := await self._store.extent()).pruned > position:
            raise Pruned(position, extent.pruned)
        if rows and rows[0].position != position + 1:
            raise Pruned(position, rows[0].position - 1)
        return [row for _, row in takewhile(_is_next, enumerate(rows, position + 1))]


def _is_next(numbered: tuple[int, JournalRow]) -> bool:
    number, row = numbered
    return row.position == number
