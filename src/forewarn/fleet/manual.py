"""Moving a manual clock: from moment to moment, and never on before everything that a moment brings is over."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from forewarn.clock import Clock, ManualClock
from forewarn.fleet.errors import TimeIsReal

SPINS = 50
PAUSE = 0.001


class ManualTime:
    """Advances a manual clock for a fleet; with any other clock it refuses.

    `save` keeps the position, and who moves it, before the clock gets there, so that it never goes back.
    `waiting` tells how many tasks of the fleet wait for the clock, or None while one of them has something else to do.
    """

    def __init__(
        self, clock: Clock, *, save: Callable[[datetime, str], Awaitable[None]], waiting: Callable[[], int | None]
    ) -> None:
        self._clock = clock
        self._save = save
        self._waiting = waiting
        self._one_at_a_time = asyncio.Lock()

    async def advance(self, by: timedelta, *, who: str) -> datetime:
        """Let this much time pass."""
        clock = self._manual()
        async with self._one_at_a_time:
            return await self._advance(clock, clock.now() + by, who)

    async def advance_to_next(self, *, who: str) -> datetime:
        """Let time pass until the next moment that anything waits for; stay where nothing does."""
        clock = self._manual()
        async with self._one_at_a_time:
            await self._settled(clock)
            return await self._advance(clock, clock.next_moment or clock.now(), who)

    def _manual(self) -> ManualClock:
        if not isinstance(self._clock, ManualClock):
            raise TimeIsReal
        return self._clock

    async def _advance(self, clock: ManualClock, target: datetime, who: str) -> datetime:
        await self._save(target, who)
        await self._settled(clock)
        while (moment := clock.next_moment) is not None and moment <= target:
            clock.set(max(moment, clock.now()))
            await self._settled(clock)
        clock.set(target)
        await self._settled(clock)
        return target

    async def _settled(self, clock: ManualClock) -> None:
        """Wait until all that is under way waits for the clock."""
        spins = 0
        while self._waiting() != clock.waiting:
            spins += 1
            await asyncio.sleep(0 if spins < SPINS else PAUSE)
