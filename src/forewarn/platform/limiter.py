"""Concurrency limiter: how many programs of one kind may run at the same time; the others queue in order."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SlotTimeout(Exception):
    """No slot became free in time."""


class ConcurrencyLimiter:
    """Limits how many programs run at the same time; a changed limit applies to programs that start later."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def set_limit(self, limit: int) -> None:
        """Change the number of slots."""
        self._limit = limit
        self._wake_next()

    @asynccontextmanager
    async def slot(self, max_wait: float | None = None) -> AsyncIterator[None]:
        """Take a slot, in order; raise SlotTimeout after this many seconds without one."""
        if self._used < self._limit and not self._waiting:
            self._used += 1
        else:
            try:
                async with asyncio.timeout(max_wait):
                    await self._wait_for_slot()
            except TimeoutError:
                raise SlotTimeout from None
        try:
            yield
        finally:
            self._used -= 1
            self._wake_next()

    async def _wait_for_slot(self) -> None:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._used -= 1
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._waiting and self._used < self._limit:
            slot = self._waiting.popleft()
            if not slot.done():  # otherwise the waiter was cancelled
                self._used += 1
                slot.set_result(None)
