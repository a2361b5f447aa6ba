"""Timers on the fleet's clock."""

import asyncio
from datetime import timedelta

from forewarn.clock import ManualClock
from forewarn.fleet.event_loop import tasks_until_exit
from forewarn.fleet.timers import Timers
from tests.core.sample_scopes import TEN
from tests.fleet.fleets import until

MINUTE = timedelta(minutes=1)


async def test_timer_fires_once_at_its_moment_and_is_busy_until_its_work_is_done() -> None:
    clock, fired, may_end = ManualClock(TEN), 0, asyncio.Event()

    async def work() -> None:
        nonlocal fired
        fired += 1
        await may_end.wait()

    async with tasks_until_exit() as tasks:
        timers = Timers(clock, tasks)
        timer = timers.set(TEN + MINUTE, work)
        clock.set(TEN + MINUTE - timedelta.resolution)
        assert (timers.waiting, timers.busy) == (1, 0)
        clock.set(TEN + MINUTE)
        assert (timers.waiting, timers.busy) == (0, 1)
        clock.set(TEN + 2 * MINUTE)
        may_end.set()
        await until(lambda: timers.busy == 0)
        timer.cancel()
        assert (timers.waiting, fired) == (0, 1)


async def test_cancelled_timer_never_fires() -> None:
    clock = ManualClock(TEN)
    fired: list[str] = []

    async def work() -> None:
        fired.append("fired")

    async with tasks_until_exit() as tasks:
        timers = Timers(clock, tasks)
        timer = timers.set(TEN + MINUTE, work)
        for _ in range(2):
            timer.cancel()
        assert timers.waiting == 0
        clock.set(TEN + 2 * MINUTE)
        await asyncio.sleep(0)
        assert (timers.busy, fired) == (0, [])
