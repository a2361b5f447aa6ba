"""How many programs of one kind may run at the same time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NoPlace(Exception):
    """As many programs run as may."""


class Places:
    """So many programs may run at the same time; a limit that changes holds for those that come."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def limit(self, most: int) -> None:
        """Change how many there are."""
        self._most = most
        self._call_next()

    @asynccontextmanager
    async def taken(self, patience: float | None = None) -> AsyncIterator[None]:
        """Take a place, in turn; after so many seconds without one raise NoPlace."""
        if self._taken < self._most and not self._waiting:
            self._taken += 1
        else:
            try:
                async with asyncio.timeout(patience):
                    await self._turn()
            except TimeoutError:
                raise NoPlace from None
        try:
            yield
        finally:
            self._taken -= 1
            self._call_next()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._taken -= 1
                self._call_next()
            raise

    def _call_next(self) -> None:
        while self._waiting and self._taken < self._most:
            turn = self._waiting.popleft()
            if not turn.done():  # else nobody waits for it any more
                self._taken += 1
                turn.set_result(None)
