"""Manual time: advances a manual clock from one due time to the next, after everything due has finished."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from forewarn.clock import Clock, ManualClock
from forewarn.fleet.errors import ManualTimeUnavailable

MAX_STEPS = 10_000
"""At how many moments the next change of an event is looked for: work may be put off again and again, for ever."""

TO_NEXT = "to the next change of an event"

SPINS = 50
PAUSE = 0.001


class ClockChange(NamedTuple):
    """Who has sent the clock on its way, and where to, if that is no moment."""

    by: str
    why: str = ""


class ManualTime:
    """Advances a manual clock for a fleet; with any other clock it refuses.

    `save` keeps the position before the clock gets there, so that it never goes back; and, once for each way, who has
    sent it, so that the journal has the cause before what it brings.
    `waiting` tells how many tasks of the fleet wait for the clock, or None while one of them has something else to do.
    `changes` counts the changes of events; `may_change` tells whether time alone may bring another one.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        save: Callable[[datetime, ClockChange | None], Awaitable[None]],
        waiting: Callable[[], int | None],
        changes: Callable[[], int],
        may_change: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._save = save
        self._waiting = waiting
        self._changes = changes
        self._may_change = may_change
        self._lock = asyncio.Lock()

    async def advance(self, by: timedelta, *, who: str) -> datetime:
        """Let this much time pass."""
        clock = self._require_manual()
        async with self._lock:
            target = clock.now() + by
            if target > clock.now():
                await self._save(target, ClockChange(who))
            await self._advance_to(clock, target)
            return target

    async def advance_to_next(self, *, who: str) -> datetime:
        """Let time pass until an event changes; where time alone changes none any more, stay.

        What else is due on the way happens, and does not end the way: an attempt that is put off, a scope's silence.
        """
        clock = self._require_manual()
        async with self._lock:
            await self._wait_settled(clock)
            before = self._changes()
            move: ClockChange | None = ClockChange(who, TO_NEXT)
            for _ in range(MAX_STEPS):
                if self._changes() != before or not self._may_change() or clock.next_timer_at is None:
                    break
                moment = max(clock.next_timer_at, clock.now())
                if moment > clock.now():
                    await self._save(moment, move)
                    move = None
                await self._advance_to(clock, moment)
            return clock.now()

    def _require_manual(self) -> ManualClock:
        if not isinstance(self._clock, ManualClock):
            raise ManualTimeUnavailable
        return self._clock

    async def _advance_to(self, clock: ManualClock, target: datetime) -> None:
        await self._wait_settled(clock)
        while (moment := clock.next_timer_at) is not None and moment <= target:
            clock.set(max(moment, clock.now()))
            await self._wait_settled(clock)
        clock.set(target)
        await self._wait_settled(clock)

    async def _wait_settled(self, clock: ManualClock) -> None:
        """Wait until all that is under way waits for the clock."""
        spins = 0
        while self._waiting() != clock.timer_count:
            spins += 1
            await asyncio.sleep(0 if spins < SPINS else PAUSE)
