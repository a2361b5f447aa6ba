"""Timers on the fleet's clock that other parts set.

A manual clock advances only when all fired timers have finished.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime

from forewarn.clock import Clock, Timer


class Timers:
    """Calls back at a time of the fleet's clock, and runs the work that this starts."""

    def __init__(self, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._clock = clock
        self._tasks = tasks
        self.waiting = 0
        """How many timers wait for the clock."""
        self.busy = 0
        """How many started tasks are running."""

    def set(self, moment: datetime, callback: Callable[[], Coroutine[object, object, None]]) -> Timer:
        """Call back at that time. The callback must not raise."""
        return _Timer(self, self._clock, moment, callback)

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Start a task that must finish before a manual clock advances. It must not raise."""
        self.busy += 1
        self._tasks.create_task(work, name="alarm").add_done_callback(self._done)

    def _done(self, _: asyncio.Task[None]) -> None:
        self.busy -= 1


class _Timer:
    def __init__(
        self, timers: Timers, clock: Clock, moment: datetime, callback: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        self._timers = timers
        self._callback = callback
        self._is_armed = True
        timers.waiting += 1
        self._timer = clock.call_at(moment, self._fire)

    def cancel(self) -> None:
        """Do not call back."""
        self._timer.cancel()
        self._disarm()

    def _fire(self) -> None:
        if self._disarm():
            self._timers.start(self._callback())

    def _disarm(self) -> bool:
        was_armed, self._is_armed = self._is_armed, False
        self._timers.waiting -= was_armed
        return was_armed
