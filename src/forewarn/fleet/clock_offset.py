"""Clock offset of this process: asks the servers of the cluster for their time, and watches the clock in between.

With a wrong clock the process gives up the clock lease and saves nothing by time (`fleet.clock_lease`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from forewarn.clock import Clock
from forewarn.core.clock_offset import (
    ClockState,
    TimeResponse,
    describe_offset,
    find_origin,
    judge_offset,
    measure_offset,
)

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""How often the clock is compared with the monotonic one."""

MEASURE_SECONDS = 30.0
"""How often the servers are asked."""

OFF_MEASURE_SECONDS = 3.0
"""How often they are asked while the clock is off: the monotonic clock may have stood still instead."""

LOG_SECONDS = 60.0
"""How often a clock that is off is logged."""


class TimeSource(Protocol):
    """The servers whose time the cluster goes by."""

    async def read_times(self) -> Sequence[TimeResponse]:
        """Return the time of each server that answers."""
        ...


class ClockOffset:
    """How far the clock of this process is from the time of the cluster. A step of it is noticed at once.

    A process that `acts_by_time` does not do so while the clock is wrong.
    """

    def __init__(
        self, clock: Clock, *, acts_by_time: bool = True, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._acts_by_time = acts_by_time
        self.monotonic = monotonic
        self._origin: float | None = None
        self._measured_at: float | None = None
        self._logged: tuple[ClockState, float] = (ClockState.EXACT, 0.0)
        self.usable = asyncio.Event()
        """Set while the clock is known and not wrong."""
        self.unusable = asyncio.Event()
        self.unusable.set()

    @property
    def offset(self) -> timedelta | None:
        """How far the clock is ahead now; None if no server has told its time yet."""
        if self._origin is None:
            return None
        return measure_offset(self._clock.now(), self.monotonic(), self._origin)

    @property
    def seconds(self) -> float | None:
        """The offset in seconds, rounded for people and programs."""
        offset = self.offset
        return None if offset is None else round(offset.total_seconds(), 3)

    @property
    def state(self) -> ClockState:
        """What the offset means."""
        return judge_offset(self.offset)

    @property
    def is_usable(self) -> bool:
        """Whether this process may act by time now."""
        return self.state in (ClockState.EXACT, ClockState.OFF)

    def cluster_time(self) -> datetime | None:
        """Return the time of the cluster; None if it is not known yet."""
        return None if self._origin is None else datetime.fromtimestamp(self._origin + self.monotonic(), UTC)

    def problem(self) -> str | None:
        """Return what is wrong with the clock as a sentence; None if it is exact."""
        offset = self.offset
        if offset is None:
            return (
                "the time of the NATS servers is not known yet, so this process does nothing by time"
                if self._acts_by_time
                else None
            )
        state = judge_offset(offset)
        if state is ClockState.EXACT:
            return None
        stops = self._acts_by_time and state is ClockState.WRONG
        return (
            f"the clock is {describe_offset(offset)}{', so this process does nothing by time' if stops else ''}: "
            "check the time synchronisation of this machine"
        )

    def take(self, responses: Sequence[TimeResponse]) -> None:
        """Take what the servers have answered; without a usable answer, what is known stays."""
        if (origin := find_origin(responses)) is not None:
            self._origin = origin
        self.check()

    async def measure(self, source: TimeSource) -> None:
        """Ask the servers for their time."""
        self._measured_at = self.monotonic()
        self.take(await source.read_times())

    async def watch(self, source: TimeSource) -> None:
        """Measure now and then, and notice every step of the clock, without end."""
        while True:
            pause = MEASURE_SECONDS if self.state is ClockState.EXACT else OFF_MEASURE_SECONDS
            if self._measured_at is None or self.monotonic() - self._measured_at >= pause:
                await self.measure(source)
            self.check()
            await asyncio.sleep(CHECK_SECONDS)

    def check(self) -> None:
        """Wake those who wait for a usable or an unusable clock, and log what is wrong with it."""
        is_usable = self.is_usable
        (self.unusable if is_usable else self.usable).clear()
        (self.usable if is_usable else self.unusable).set()
        before, logged_at = self._logged
        state, now = self.state, self.monotonic()
        if state is before and (state is ClockState.EXACT or now - logged_at < LOG_SECONDS):
            return
        self._logged = state, now
        log.warning("%s", self.problem() or "the clock is exact again")
