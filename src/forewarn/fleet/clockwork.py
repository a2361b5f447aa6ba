"""The clockwork: a heap of the moments at which time itself may change a scope. Nothing is polled."""

import heapq
from collections.abc import Callable
from datetime import datetime, timedelta

from forewarn.clock import Clock, Timer

AT_ONCE = 100
"""How many scopes are woken before others on the event loop get their turn."""


class Clockwork:
    """Calls `wake` for each scope when its moment has come, the earliest first."""

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
        self._timer = None if moment is None else self._clock.call_at(moment, self._ring)

    def _ring(self) -> None:
        """Wake what is due, as many as take a moment; the clock calls again at once for those that are left."""
        self._armed_for = self._timer = None
        now = self._clock.now()
        for _ in range(AT_ONCE):
            moment = self._next_moment()
            if moment is None or moment > now:
                break
            scope = self._pop()
            del self._moments[scope]
            self._wake(scope)
        self._arm()
