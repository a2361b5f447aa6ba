"""A store whose saves are timed and counted; everything else passes through."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from forewarn.core.journal import Entry
from forewarn.fleet.measures import Measures
from forewarn.store.port import (
    Conflict,
    Extent,
    JournalQuery,
    JournalRow,
    Key,
    Record,
    Retention,
    Store,
    StoreError,
    Watched,
)


class MeasuredStore:
    """Passes everything on to the store, and notes how its saves go."""

    def __init__(self, store: Store, measures: Measures) -> None:
        self._store = store
        self._measures = measures
        self.wrote_at: float | None = None
        """When, on the event loop's clock, the store last wrote; None where it has not, or has failed since."""

    async def save(self, key: Key, value: bytes | None, entries: Sequence[Entry], *, expected: int | None) -> int:
        """Save, and note how long it took."""
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            revision = await self._store.save(key, value, entries, expected=expected)
        except Conflict:
            self._measures.conflicts += 1
            raise
        except StoreError:
            self._measures.failures += 1
            self.wrote_at = None
            raise
        self.wrote_at = clock()
        self._measures.saves.observe(self.wrote_at - began)
        return revision

    async def check(self) -> None:
        """Write something that changes nothing."""
        try:
            await self._store.check()
        except StoreError:
            self.wrote_at = None
            raise
        self.wrote_at = asyncio.get_running_loop().time()

    async def load(self, key: Key) -> Record | None:
        """Return the newest saved value."""
        return await self._store.load(key)

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[Watched]]:
        """Give what there is, then changes."""
        return self._store.watch()

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Return journal rows."""
        return await self._store.journal(query)

    async def extent(self) -> Extent:
        """Return how far the journal reaches."""
        return await self._store.extent()

    async def prune(self, retention: Retention, *, now: datetime) -> int:
        """Remove one small batch of journal rows."""
        return await self._store.prune(retention, now=now)

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()
