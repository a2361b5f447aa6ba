"""Manual time: advances a manual clock from one due time to the next, after everything due has finished."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, Protocol

from forewarn.clock import Clock, ManualClock
from forewarn.fleet import fleet_state
from forewarn.fleet.errors import ManualTimeUnavailable
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.metrics import FleetCounts, FleetMetrics

MAX_STEPS = 10_000
"""At how many moments the next change of an event is looked for: work may be put off again and again, for ever."""

TO_NEXT = "to the next change of an event"

SPINS = 50
PAUSE = 0.001


class ClockChange(NamedTuple):
    """Who has sent the clock on its way, and where to, if that is no moment."""

    by: str
    why: str = ""


class ClockUser(Protocol):
    """A part of the fleet that does something by the clock."""

    @property
    def busy(self) -> int:
        """How much is under way that does not wait for the clock."""
        ...

    @property
    def waiting(self) -> int:
        """How much waits for the clock: as many timers of the clock are ours."""
        ...


class ManualTime:
    """Advances a manual clock for a fleet; with any other clock it refuses.

    The position is saved before the clock gets there, so that it never goes back; and, once for each way, who has sent
    it, so that the journal has the cause before what it brings. `users` are all parts that do something by the clock.
    """

    def __init__(
        self,
        clock: Clock,
        state_record: FleetStateRecord,
        metrics: FleetMetrics,
        counts: FleetCounts,
        campaigns: ClockUser,
        users: Sequence[ClockUser],
    ) -> None:
        self._clock = clock
        self._state_record = state_record
        self._metrics = metrics
        self._counts = counts
        self._campaigns = campaigns
        self._users = (campaigns, *users)
        self._lock = asyncio.Lock()

    async def advance(self, by: timedelta, *, who: str = "operator") -> datetime:
        """Let this much time pass; everything that is due on the way happens in order, and is over on return."""
        clock = self._require_manual()
        async with self._lock:
            target = clock.now() + by
            if target > clock.now():
                await self._save(target, ClockChange(who))
            await self._advance_to(clock, target)
            return target

    async def advance_to_next(self, *, who: str = "operator") -> datetime:
        """Let time pass until an event changes; where time alone changes none any more, stay.

        What else is due on the way happens, and does not end the way: an attempt that is put off, a scope's silence.
        """
        clock = self._require_manual()
        async with self._lock:
            await self._wait_settled(clock)
            before = self._metrics.event_changes
            move: ClockChange | None = ClockChange(who, TO_NEXT)
            for _ in range(MAX_STEPS):
                is_changed = self._metrics.event_changes != before
                if is_changed or not self._may_change() or clock.next_timer_at is None:
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
        while self._count_waiting() != clock.timer_count:
            spins += 1
            await asyncio.sleep(0 if spins < SPINS else PAUSE)

    def _count_waiting(self) -> int | None:
        """Return how much waits for the clock if all that is under way does; None: something has else to do."""
        if any(user.busy for user in self._users):
            return None
        return sum(user.waiting for user in self._users)

    def _may_change(self) -> bool:
        """Tell whether time alone may bring a change of an event."""
        return self._counts.events.total() > 0 or self._campaigns.waiting > 0

    async def _save(self, moment: datetime, move: ClockChange | None) -> None:
        if move is None:
            await self._state_record.apply(partial(fleet_state.pass_clock, to=moment))
        else:
            await self._state_record.apply(partial(fleet_state.move_clock, to=moment, by=move.by, why=move.why))
