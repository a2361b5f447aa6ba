"""Scheduler: the duty to apply the passing of time to scopes, and the timer heap with the next due time of each.

There is no polling.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from forewarn.clock import Clock, Timer
from forewarn.core.backoff import backoff
from forewarn.core.change import Change
from forewarn.core.enablement import SEEN_SAVE_INTERVAL
from forewarn.core.lifecycle import tick, wake_at
from forewarn.core.scope import Scope
from forewarn.fleet.duty import DutyWork, no_guards
from forewarn.fleet.errors import SAVE_ERRORS, ScopeNotFound
from forewarn.fleet.event_loop import GcPause
from forewarn.fleet.fleet_state_record import FleetStateRecord
from forewarn.fleet.main_loop import Decision, MainLoop
from forewarn.fleet.outages import OutageTracker
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import ScopeChange, Scopes, guarded
from forewarn.fleet.seen_record import SeenRecords
from forewarn.store.port import Guards

log = logging.getLogger(__name__)

WAKE_BATCH = 100
"""How many scopes are woken in one iteration of the event loop."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""The bounds of the pause in seconds before due changes that could not be saved are tried again."""

ROUND_TIME = 1.0
"""How long, in seconds, a round of these attempts waits for other ticks, so that they share a line of the log."""

TICK_CONCURRENCY = 512
"""How many scopes are ticked at once. If ten thousand are due in one second, an approval waits only for a few."""


BURST_TICKS = 64
"""How many ticks at once are a burst, in which GC is paused."""


class TimerHeap:
    """Calls `wake` for each scope at its due time, the earliest first."""

    def __init__(self, clock: Clock, wake: Callable[[str], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._heap: list[tuple[datetime, str]] = []
        self._moments: dict[str, datetime] = {}
        self._queued: dict[str, datetime] = {}
        """The earliest time of each scope on the heap. A later one is pushed when that one is over, so the idle timeout
        of a scope, which restarts with each request, has one entry and not thousands."""
        self._armed_for: datetime | None = None
        self._timer: Timer | None = None
        self._is_running = True

    def start(self) -> None:
        """Accept due times again, after a stop."""
        self._is_running = True

    def set(self, scope: str, moment: datetime | None) -> None:
        """Wake the scope at that time, instead of the one set before; None: never."""
        if not self._is_running or self._moments.get(scope) == moment:
            return
        if moment is None:
            del self._moments[scope]
        else:
            self._moments[scope] = moment
            if scope not in self._queued or moment < self._queued[scope]:
                self._push(scope, moment)
        self._arm()

    @property
    def is_armed(self) -> bool:
        """Whether a timer of the clock is pending."""
        return self._timer is not None

    def overdue(self) -> timedelta:
        """Return how late the earliest due time is; zero if the heap works normally."""
        return max(self._clock.now() - self._armed_for, timedelta(0)) if self._armed_for else timedelta(0)

    def stop(self) -> None:
        """Forget all due times, and wake no scope until the next start."""
        self._is_running = False
        self._heap.clear()
        self._moments.clear()
        self._queued.clear()
        self._arm()

    def _next_moment(self) -> datetime | None:
        while self._heap and self._moments.get(self._heap[0][1]) != self._heap[0][0]:
            scope = self._pop()
            if scope not in self._queued and scope in self._moments:
                self._push(scope, self._moments[scope])
        return self._heap[0][0] if self._heap else None

    def _push(self, scope: str, moment: datetime) -> None:
        self._queued[scope] = moment
        heapq.heappush(self._heap, (moment, scope))

    def _pop(self) -> str:
        """Remove the earliest due time from the heap, and return its scope."""
        moment, scope = heapq.heappop(self._heap)
        if self._queued.get(scope) == moment:
            del self._queued[scope]
        return scope

    def _arm(self) -> None:
        """Keep exactly one timer, for the earliest due time."""
        moment = self._next_moment()
        if moment == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = moment
        self._timer = None if moment is None else self._clock.call_at(moment, self._fire)

    def _fire(self) -> None:
        """Wake a limited number of due scopes; the clock calls again at once for the others."""
        self._armed_for = self._timer = None
        now = self._clock.now()
        for _ in range(WAKE_BATCH):
            moment = self._next_moment()
            if moment is None or moment > now:
                break
            scope = self._pop()
            del self._moments[scope]
            self._wake(scope)
        self._arm()


class Scheduler:
    """The duty to apply the passing of time: start due events, disable scopes whose idle timeout is over.

    Each tick applies time to one scope. Outages are saved before any tick.
    """

    def __init__(
        self,
        scopes: Scopes,
        main_loop: MainLoop,
        state_record: FleetStateRecord,
        outages: OutageTracker,
        seen: SeenRecords,
        guards: Callable[[], Guards] = no_guards,
    ) -> None:
        self._seen = seen
        self._guards = guards
        self._scopes = scopes
        self._state_record = state_record
        self._outages = outages
        self._tasks = DutyWork(main_loop)
        self._timer_heap = TimerHeap(scopes.clock, self.wake)
        self._due: deque[str] = deque()
        """Scopes that wait for a free slot."""
        self._failed: dict[str, Exception] = {}
        """Scopes whose due changes could not be saved, and why. They need no slots until they are tried again."""
        self._is_retrying = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._free_slots = TICK_CONCURRENCY
        self._gc_pause = GcPause()
        self.is_running = False
        """Whether this process has the duty."""
        self._ticking = 0

    @property
    def busy(self) -> int:
        """How many tasks are running that do not wait for the clock."""
        return self._ticking + len(self._failed)

    @property
    def waiting(self) -> int:
        """How many timers wait for the clock."""
        return int(self._timer_heap.is_armed)

    @property
    def overdue(self) -> timedelta:
        """How late the earliest timer is; zero if the scheduler works normally."""
        return self._timer_heap.overdue()

    async def start(self) -> None:
        """Start the duty, and with it all due events; no effect if it is already started."""
        if self.is_running:
            return
        self._credit_last_seen()
        await self._outages.start()
        self.is_running = True
        self._timer_heap.start()
        for view in self._scopes.replica.views():
            self._set_timer(view)
        self._tasks.create(self._outages.run(), name="heartbeat")

    def halt(self) -> None:
        """Cancel all tasks and begin nothing more, at once."""
        self.is_running = False
        self._timer_heap.stop()
        self._ticking -= len(self._due)
        self._due.clear()
        self._failed.clear()
        self._idle.set()
        self._tasks.halt()

    async def stop(self) -> None:
        """Stop the duty. On return none of its tasks is running, and the time of the stop is saved."""
        was_running = self.is_running
        self.halt()
        await self._tasks.stop()
        self._is_retrying = False
        self._free_slots = TICK_CONCURRENCY
        self._gc_pause.end()
        if was_running:
            await self._outages.stop()

    def observe(self, change: ScopeChange) -> None:
        """Set the timer of a changed scope."""
        if self.is_running:
            self._set_timer(self._scopes.replica.get_or_create_view(change.id))

    def wake(self, id_: str) -> None:
        """Tick a scope."""
        self._ticking += 1
        self._due.append(id_)
        self._idle.clear()
        self._start_ticks()

    def _start_ticks(self) -> None:
        while self._due and self._free_slots:
            self._free_slots -= 1
            self._start_tick(self._due.popleft())
        if self._free_slots == TICK_CONCURRENCY - BURST_TICKS:
            self._gc_pause.begin()
        elif not self._due and self._free_slots == TICK_CONCURRENCY:
            self._gc_pause.end()
            self._idle.set()

    def wake_all(self, *, include_idle: bool = False) -> None:
        """Tick every scope that has events, or all scopes, in short time slices."""
        if self.is_running:
            self._ticking += 1
            self._tasks.create(
                self._wake_each(include_idle=include_idle), name="tick all scopes", on_done=self._on_ticked
            )

    @property
    def is_idle(self) -> bool:
        """Whether every due scope has had its tick, or a failed attempt."""
        return self._idle.is_set()

    async def wait_idle(self) -> None:
        """Return when `is_idle`, for work that can wait."""
        await self._idle.wait()

    def _on_ticked(self) -> None:
        self._ticking -= 1

    def _credit_last_seen(self) -> None:
        """Assume the latest request that may not have been saved, so that no scope is disabled too early."""
        alive_at = self._state_record.state.alive_at
        for view in self._scopes.replica.views():
            if view.scope is not None and view.scope.seen_at is not None and alive_at is not None:
                saved = max(filter(None, (view.scope.seen_at, self._seen.find(view.id))))
                credit = max(saved, min(saved + SEEN_SAVE_INTERVAL, alive_at))
                view.credited_at = max(filter(None, (view.credited_at, credit)))

    def _set_timer(self, view: ScopeView, ticked_at: datetime | None = None) -> None:
        """Set the timer of a scope to its next due time. Everything due at `ticked_at` is already handled."""
        scope = view.scope
        moment = (
            wake_at(scope, self._scopes.clock_context, now=self._scopes.clock.now(), seen_at=view.alive_at)
            if scope is not None
            else None
        )
        is_past = moment is not None and ticked_at is not None and moment <= ticked_at
        self._timer_heap.set(view.id, None if is_past else moment)

    async def _wake_each(self, *, include_idle: bool) -> None:
        fair_share = self._scopes.new_fair_share()
        views = self._scopes.replica.views()
        for view in [view for view in views if include_idle or (view.scope and view.scope.events)]:
            await fair_share.wait_turn()
            if view.scope is not None and view.scope.events:
                self.wake(view.id)
            else:
                self._scopes.notify(view)

    def _start_tick(self, id_: str) -> None:
        """Tick a scope. This needs no task unless something goes wrong: a thousand may be due in one second."""
        view = self._scopes.replica.get_or_create_view(id_)
        if self._outages.has_unsaved_outage:
            self._start_task(view, None)
        else:
            now, revision = self._scopes.clock.now(), view.revision
            self._submit(view, now).add_done_callback(partial(self._on_first_try, view, now, revision))

    def _submit(self, view: ScopeView, now: datetime) -> asyncio.Future[None]:
        if view.has_waiters:
            view.seen_at = now

        return self._scopes.submit(view.id, partial(self._tick, view, now))

    def _tick(self, view: ScopeView, now: datetime, scope: Scope) -> Change[None] | Decision[Scope, None]:
        if not self.is_running:
            return Change(scope, (), None)
        change = tick(scope, self._scopes.clock_context, now=now, seen_at=view.alive_at)
        return guarded(change, self._guards())

    def _on_first_try(self, view: ScopeView, now: datetime, revision: int, applied: asyncio.Future[None]) -> None:
        if not applied.cancelled() and applied.exception() is not None and self.is_running:
            self._start_task(view, applied)
            return
        if not applied.cancelled() and applied.exception() is None:
            self._on_applied(view, now, revision)
        self._on_ticked()
        self._free_slot()

    def _start_task(self, view: ScopeView, failed: asyncio.Future[None] | None) -> None:
        self._tasks.create(self._try_tick(view, failed), name=f"tick {view.id}", on_done=self._on_ticked)

    def _free_slot(self) -> None:
        self._free_slots += 1
        self._start_ticks()

    async def _try_tick(self, view: ScopeView, failed: asyncio.Future[None] | None) -> None:
        """Tick a scope, or take the result of a tick that failed. If it cannot be saved, it is retried later."""
        try:
            if failed is not None:
                await failed
            await self._outages.record_outage()
            now, revision = self._scopes.clock.now(), view.revision
            await self._submit(view, now)
            self._on_applied(view, now, revision)
        except ScopeNotFound:
            pass
        except SAVE_ERRORS as error:
            self._failed[view.id] = error
            if not self._is_retrying:
                self._is_retrying = True
                self._tasks.create(self._retry_failed(), name="retry ticks")
        self._free_slot()

    async def _retry_failed(self) -> None:
        """Tick the scopes that could not be saved, for example while the disk is full, in rounds until they are."""
        pauses, fair_share = backoff(FIRST_PAUSE, LONGEST_PAUSE), self._scopes.new_fair_share()
        while self._failed or not self.is_idle:
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_TIME):
                    await self._idle.wait()
            if not self._failed:
                continue
            id_, error = next(iter(self._failed.items()))
            scopes = f"scope {id_}" if len(self._failed) == 1 else f"{len(self._failed)} scopes"
            pause = next(pauses)
            log.warning("could not save due changes of %s, retrying in %g s: %s", scopes, pause, error)
            await asyncio.sleep(pause)
            for failed in tuple(self._failed):
                await fair_share.wait_turn()
                del self._failed[failed]
                self.wake(failed)
        self._is_retrying = False

    def _on_applied(self, view: ScopeView, now: datetime, revision: int) -> None:
        if self.is_running and view.revision == revision:  # else `observe` has set the timer
            self._scopes.notify(view)
            self._set_timer(view, now)
