"""Scheduler: a timer heap with the next due time of each scope, and the ticker that applies due changes.

Nothing is polled.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from forewarn.clock import Clock, Timer
from forewarn.core.lifecycle import tick
from forewarn.fleet.errors import SaveFailed, ScopeNotFound
from forewarn.fleet.event_loop import FairShare
from forewarn.fleet.replica import ScopeView
from forewarn.fleet.scopes import Scopes

log = logging.getLogger(__name__)

WAKE_BATCH = 100
"""How many scopes are woken in one iteration of the event loop."""

RETRY_DELAY = 1.0
"""How soon, in seconds, a scope is looked at again whose due change could not be saved."""

TICK_CONCURRENCY = 512
"""On how many scopes time acts at once. When ten thousand are due in one second, an approval waits for few of them."""


class TimerHeap:
    """Calls `wake` for each scope at its due time, the earliest first."""

    def __init__(self, clock: Clock, wake: Callable[[str], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._heap: list[tuple[datetime, str]] = []
        self._moments: dict[str, datetime] = {}
        self._queued: dict[str, datetime] = {}
        """The earliest moment of each scope on the heap. A later one is put there when that one is over: the silence
        of a scope, which begins anew all the time, has one place there and not thousands."""
        self._armed_for: datetime | None = None
        self._timer: Timer | None = None
        self._is_stopped = False

    def set(self, scope: str, moment: datetime | None) -> None:
        """Wake the scope at that moment, in place of the one set before; None: not at all."""
        if self._is_stopped or self._moments.get(scope) == moment:
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
        """Whether the clock has been asked to call back."""
        return self._timer is not None

    def overdue(self) -> timedelta:
        """Return for how long the earliest moment has been waiting to be noticed: no time, if all is well."""
        return max(self._clock.now() - self._armed_for, timedelta(0)) if self._armed_for else timedelta(0)

    def stop(self) -> None:
        """Wake nobody any more."""
        self._is_stopped = True
        self._heap.clear()
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
        """Take the earliest moment from the heap, and return whose it is, or was."""
        moment, scope = heapq.heappop(self._heap)
        if self._queued.get(scope) == moment:
            del self._queued[scope]
        return scope

    def _arm(self) -> None:
        """Keep exactly one timer, for the earliest moment."""
        moment = self._next_moment()
        if moment == self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = moment
        self._timer = None if moment is None else self._clock.call_at(moment, self._fire)

    def _fire(self) -> None:
        """Wake what is due, as many as take a moment; the clock calls again at once for those that are left."""
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


class ScopeTicker:
    """Applies due changes to scopes: each tick lets time act on one scope.

    `before_tick` is awaited before any tick. Afterwards `evaluate` is called where nothing has changed: a change
    was evaluated when it was saved. `set_timer` is called in any case, with the time up to which time has acted.
    """

    def __init__(
        self,
        scopes: Scopes,
        tasks: asyncio.TaskGroup,
        *,
        before_tick: Callable[[], Awaitable[None]],
        evaluate: Callable[[ScopeView], None],
        set_timer: Callable[[ScopeView, datetime], None],
    ) -> None:
        self._scopes = scopes
        self._tasks = tasks
        self._before_tick = before_tick
        self._evaluate = evaluate
        self._set_timer = set_timer
        self._slots = asyncio.Semaphore(TICK_CONCURRENCY)
        self._waiting = 0
        self._none_waiting = asyncio.Event()
        self._none_waiting.set()
        self.busy = 0
        """How much of it is under way."""

    def wake(self, id_: str) -> None:
        """Let time act on a scope."""
        self.busy += 1
        self._waiting += 1
        self._none_waiting.clear()
        self._tasks.create_task(self._tick_until_saved(id_), name=f"tick {id_}")

    def wake_all(self, fair_share: FairShare, *, include_idle: bool) -> None:
        """Look at every scope that has events, or at all of them, in turns with whatever else goes on."""
        self.busy += 1
        self._tasks.create_task(self._wake_each(fair_share, include_idle=include_idle), name="look at all scopes")

    async def wait_idle(self) -> None:
        """Return when no scope waits for its turn: what can be done a moment later should be."""
        await self._none_waiting.wait()

    async def _wake_each(self, fair_share: FairShare, *, include_idle: bool) -> None:
        try:
            views = self._scopes.replica.views()
            for view in [view for view in views if include_idle or (view.scope and view.scope.events)]:
                await fair_share.wait_turn()
                if view.scope is not None and view.scope.events:
                    self.wake(view.id)
                else:
                    self._evaluate(view)
        finally:
            self.busy -= 1

    async def _tick_until_saved(self, id_: str) -> None:
        """Let time act on a scope; nothing may be missed because the disk was full for a while."""
        try:
            async with self._slots:
                self._enter_slot()
                is_done = await self._try_tick(id_)
            while not is_done:
                await asyncio.sleep(RETRY_DELAY)
                is_done = await self._try_tick(id_)
        finally:
            self.busy -= 1

    def _enter_slot(self) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._none_waiting.set()

    async def _try_tick(self, id_: str) -> bool:
        try:
            await self._before_tick()
            await self._tick(self._scopes.replica.get_or_create_view(id_))
        except ScopeNotFound:
            return True
        except SaveFailed as error:
            log.warning("what is due in scope %s waits: %s", id_, error)
            return False
        return True

    async def _tick(self, view: ScopeView) -> None:
        now, revision = self._scopes.clock.now(), view.revision
        if view.has_waiters:
            view.seen_at = now
        await self._scopes.apply(
            view.id, lambda scope: tick(scope, self._scopes.rule_context, now=now, seen_at=view.alive_at)
        )
        if view.revision == revision:
            self._evaluate(view)
        self._set_timer(view, now)
