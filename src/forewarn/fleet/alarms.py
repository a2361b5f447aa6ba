"""Alarms that others have set on the fleet's clock. A manual clock goes on only when all they bring is over."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime

from forewarn.clock import Clock, Timer


class Alarms:
    """Calls whoever asked for it when its moment has come, and has the work done that this brings."""

    def __init__(self, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._clock = clock
        self._tasks = tasks
        self.armed = 0
        """How many wait for the clock."""
        self.ringing = 0
        """How much of what they bring is under way."""

    def set(self, moment: datetime, ring: Callable[[], Coroutine[object, object, None]]) -> Timer:
        """Have this done at that moment. It must not raise."""
        return _Alarm(self, self._clock, moment, ring)

    def begin(self, work: Coroutine[object, object, None]) -> None:
        """Have work done before a manual clock goes on. It must not raise."""
        self.ringing += 1
        self._tasks.create_task(work, name="alarm").add_done_callback(self._done)

    def _done(self, _: asyncio.Task[None]) -> None:
        self.ringing -= 1


class _Alarm:
    def __init__(
        self, alarms: Alarms, clock: Clock, moment: datetime, ring: Callable[[], Coroutine[object, object, None]]
    ) -> None:
        self._alarms = alarms
        self._ring = ring
        self._is_armed = True
        alarms.armed += 1
        self._timer = clock.call_at(moment, self._come)

    def cancel(self) -> None:
        """Do not call after all."""
        self._timer.cancel()
        self._disarm()

    def _come(self) -> None:
        if self._disarm():
            self._alarms.begin(self._ring())

    def _disarm(self) -> bool:
        was_armed, self._is_armed = self._is_armed, False
        self._alarms.armed -= was_armed
        return was_armed
