"""Manual time: advances a manual clock from one due time to the next, after everything that is due has finished."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, Protocol

from forewarn.clock import Clock, ManualClock
from forewarn.core.event import Event, State
from forewarn.core.scope import Scope
from forewarn.fleet import fleet_state
from forewarn.fleet.errors import ManualTimeUnavailable
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.metrics import FleetCounts, FleetMetrics
from forewarn.fleet.scopes import ScopeChange, Scopes

MAX_STEPS = 10_000
"""How many due times are searched for the next change of an event, because work may be postponed without end."""

TO_NEXT = "to the next change of an event"

SPINS = 50
PAUSE = 0.001


class ClockChange(NamedTuple):
    """Who moves the clock, and the destination if it is not a time."""

    by: str
    why: str = ""


class ClockUser(Protocol):
    """A part of the fleet that uses the clock."""

    @property
    def busy(self) -> int:
        """How many tasks are running that do not wait for the clock."""
        ...

    @property
    def waiting(self) -> int:
        """How many timers of the clock belong to this part."""
        ...


class NoticeFloor:
    """Keeps a manual clock from passing `not_before` of an event before clients had the time to see it.

    An advance takes no real time, so a client that polls every few seconds would see the event only as Started, or not
    at all. In an enabled scope an event stays Scheduled for `shortest_notice` of real time, or for its own notice if
    that is shorter. Events that were loaded at the start count from then.
    """

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._visible_since: dict[tuple[str, str], float] = {}
        """The time of the event loop at which each Scheduled event became visible, by scope and event id."""

    def observe(self, change: ScopeChange) -> None:
        """Note new visible events, and forget those that are no longer Scheduled."""
        before, after = ({event.id for event in _visible(scope)} for scope in (change.before, change.after))
        for id_ in before - after:
            self._visible_since.pop((change.id, id_), None)
        now = asyncio.get_running_loop().time()
        for id_ in after:
            self._visible_since.setdefault((change.id, id_), now)

    async def wait(self, moment: datetime) -> None:
        """Return when the clock may move to this time."""
        while (pause := self._remaining_time(moment)) > 0:  # noqa: ASYNC110 - real time has no event to wait for
            await asyncio.sleep(pause)

    def _remaining_time(self, moment: datetime) -> float:
        floor, now = self._scopes.policy.shortest_notice, asyncio.get_running_loop().time()
        remaining = 0.0
        for (scope_id, event_id), since in self._visible_since.items() if floor else ():
            scope, _ = self._scopes.replica.newest(scope_id)
            event = scope.find_event(event_id) if scope is not None and scope.enabled else None
            if event is not None and event.not_before <= moment:
                notice = min(floor, event.not_before - event.created_at)
                remaining = max(remaining, since + notice.total_seconds() - now)
        return remaining


def _visible(scope: Scope | None) -> tuple[Event, ...]:
    events = scope.events if scope is not None else ()
    return tuple(event for event in events if event.announced and event.state is State.SCHEDULED)


class ManualTime:
    """Advances a manual clock for a fleet; refuses with any other clock.

    The position is saved before the clock moves, so that it never goes back. Once per move the journal gets an entry
    with the operator, before the entries of its consequences. `users` are all parts that use the clock. An advance can
    take real time: see `NoticeFloor`.
    """

    def __init__(
        self,
        clock: Clock,
        state_record: FleetStateRecord,
        notice_floor: NoticeFloor,
        metrics: FleetMetrics,
        counts: FleetCounts,
        campaigns: ClockUser,
        users: Sequence[ClockUser],
    ) -> None:
        self._clock = clock
        self._state_record = state_record
        self._notice_floor = notice_floor
        self._metrics = metrics
        self._counts = counts
        self._campaigns = campaigns
        self._users = (campaigns, *users)
        self._lock = asyncio.Lock()

    async def advance(self, by: timedelta, *, who: str = "operator") -> datetime:
        """Advance the clock by this time; everything that becomes due happens in order and is finished on return."""
        clock = self._require_manual()
        async with self._lock:
            target = clock.now() + by
            if target > clock.now():
                await self._save(target, ClockChange(who))
            await self._advance_to(clock, target)
            return target

    async def advance_to_next(self, *, who: str = "operator") -> datetime:
        """Advance the clock until an event changes; if time alone changes none any more, stay.

        Other due changes happen on the way without ending the move: a postponed attempt, a scope's idle timeout.
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
            await self._notice_floor.wait(moment)
            clock.set(max(moment, clock.now()))
            await self._wait_settled(clock)
        clock.set(target)
        await self._wait_settled(clock)

    async def _wait_settled(self, clock: ManualClock) -> None:
        """Wait until every running task waits for the clock."""
        spins = 0
        while self._count_waiting() != clock.timer_count:
            spins += 1
            await asyncio.sleep(0 if spins < SPINS else PAUSE)

    def _count_waiting(self) -> int | None:
        """Return how many timers are pending if all running tasks wait for the clock; None if one does not."""
        if any(user.busy for user in self._users):
            return None
        return sum(user.waiting for user in self._users)

    def _may_change(self) -> bool:
        """Return whether time alone may change an event."""
        return self._counts.events.total() > 0 or self._campaigns.waiting > 0

    async def _save(self, moment: datetime, move: ClockChange | None) -> None:
        if move is None:
            await self._state_record.apply(partial(fleet_state.pass_clock, to=moment))
        else:
            await self._state_record.apply(partial(fleet_state.move_clock, to=moment, by=move.by, why=move.why))
