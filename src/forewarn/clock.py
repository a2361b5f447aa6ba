"""Clocks and timers: the system clock, and the manual clock for tests. No other module reads the time of day.

asyncio is imported lazily: programs inside a VM that only need the time do not pay for it.
"""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

MAX_SLEEP = timedelta(seconds=1)
"""The longest sleep without reading the clock again, because the system clock can be stepped at any time."""


class Timer(Protocol):
    """A pending callback."""

    def cancel(self) -> None:
        """Do not call back."""
        ...


class Clock(Protocol):
    """A source of the current time that calls back when a time is reached."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""
        ...

    def call_at(self, moment: datetime, callback: Callable[[], None]) -> Timer:
        """Call back once, as soon as `now()` has reached the time; never earlier, never from within this call."""
        ...


async def wait_until(clock: Clock, moment: datetime) -> None:
    """Return when the clock has reached the time, after the callbacks that are due at the same time."""
    import asyncio

    if clock.now() >= moment:
        return
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_at(moment, lambda: None if reached.done() else reached.set_result(None))
    try:
        await reached
        await asyncio.sleep(0)
    finally:
        timer.cancel()


class SystemClock:
    """The system clock. It can be stepped forward or back at any time."""

    def now(self) -> datetime:
        """Return the system time."""
        return datetime.now(UTC)

    def call_at(self, moment: datetime, callback: Callable[[], None]) -> Timer:
        """Sleep until the time, in short naps, so that a step of the clock is noticed."""
        return _SystemTimer(self, moment, callback)


class _SystemTimer:
    def __init__(self, clock: SystemClock, moment: datetime, callback: Callable[[], None]) -> None:
        import asyncio

        self._clock, self._moment, self._callback = clock, moment, callback
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._check)

    def _check(self) -> None:
        left = self._moment - self._clock.now()
        if left <= timedelta(0):
            self._callback()
        else:
            self._handle = self._loop.call_later(min(left, MAX_SLEEP).total_seconds(), self._check)

    def cancel(self) -> None:
        self._handle.cancel()


class ManualClock:
    """A clock that moves only when `set` is called, and never back."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._timers: list[_ManualTimer] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        """Return the time of the last `set`."""
        return self._now

    def call_at(self, moment: datetime, callback: Callable[[], None]) -> Timer:
        """Call back when the clock is set to the time or later."""
        import asyncio

        timer = _ManualTimer(moment, next(self._order), callback)
        if moment <= self._now:
            asyncio.get_running_loop().call_soon(self._run_due)
        heapq.heappush(self._timers, timer)
        return timer

    @property
    def timer_count(self) -> int:
        """The number of pending timers."""
        return sum(1 for timer in self._timers if timer.callback is not None)

    @property
    def next_timer_at(self) -> datetime | None:
        """The earliest time of a pending timer."""
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0].moment if self._timers else None

    def set(self, moment: datetime) -> None:
        """Move to the time and call back all timers that are due, in order. A time in the past is refused."""
        if moment < self._now:
            raise ValueError(f"the clock is at {self._now:%Y-%m-%d %H:%M:%SZ} and cannot be set back")
        self._now = moment
        self._run_due()

    def _run_due(self) -> None:
        while (moment := self.next_timer_at) is not None and moment <= self._now:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()


class _ManualTimer:
    __slots__ = ("_order", "callback", "moment")

    def __init__(self, moment: datetime, order: int, callback: Callable[[], None]) -> None:
        self.moment, self._order = moment, order
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: "_ManualTimer") -> bool:
        return (self.moment, self._order) < (other.moment, other._order)
