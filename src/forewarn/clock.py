"""The time of day. Nothing else in Forewarn reads it; whoever needs it is given a clock."""

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta
from typing import Protocol

LONGEST_NAP = timedelta(seconds=1)
"""The wall clock can be stepped at any moment, so nobody sleeps longer than this without looking at it again."""


class Clock(Protocol):
    """What time it is, and waiting until a time has come."""

    def now(self) -> datetime:
        """Return the present, aware and in UTC."""
        ...

    async def wait_until(self, moment: datetime) -> None:
        """Return as soon as `now()` is not before the moment; never earlier."""
        ...


class SystemClock:
    """The machine's clock, with all its steps."""

    def now(self) -> datetime:
        """Return the machine's time."""
        return datetime.now(UTC)

    async def wait_until(self, moment: datetime) -> None:
        """Sleep in short naps, so that a step of the clock is noticed."""
        while (left := moment - self.now()) > timedelta(0):  # noqa: ASYNC110 - the wall clock raises no event
            await asyncio.sleep(min(left, LONGEST_NAP).total_seconds())


class ManualClock:
    """A clock that moves only when it is told to, and never back."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the time it was last set to."""
        return self._now

    async def wait_until(self, moment: datetime) -> None:
        """Wait until somebody sets the clock to the moment or later."""
        if moment <= self._now:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (moment, next(self._order), woken))
        await woken

    @property
    def sleepers(self) -> int:
        """How many wait for this clock now."""
        return sum(1 for _, _, woken in self._sleepers if not woken.done())

    @property
    def next_moment(self) -> datetime | None:
        """The earliest moment that somebody waits for."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def set(self, moment: datetime) -> None:
        """Move to the moment and wake whoever waited for it. A moment in the past is refused."""
        if moment < self._now:
            raise ValueError(f"the clock is at {self._now:%Y-%m-%d %H:%M:%SZ} and does not go back")
        self._now = moment
        while self._sleepers and self._sleepers[0][0] <= moment:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
