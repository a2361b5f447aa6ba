"""Clock offset: how far the clock of a process is from the time of the cluster, and what it may do then.

The time of the cluster is what most of its servers agree on. A process asks for it now and then, and in between relies
on its monotonic clock, so it notices a step of its own clock at once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

WARN_OFFSET = timedelta(seconds=1)
"""A larger offset is reported."""

MAX_OFFSET = timedelta(seconds=5)
"""With a larger offset a process holds no lease and saves nothing by time."""

MAX_ROUND_TRIP = 1.0
"""An answer that took longer, in seconds, says too little about the time."""


class ClockState(StrEnum):
    """What the offset of a clock means."""

    UNKNOWN = "unknown"
    """No server has told its time yet."""
    EXACT = "exact"
    OFF = "off"
    """It is off, and that is reported."""
    WRONG = "wrong"
    """It is off too far: the process does nothing by time."""


class TimeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a server, and when it was asked and has answered, by the monotonic clock of this process."""

    at: datetime
    sent: float
    received: float

    @property
    def is_usable(self) -> bool:
        """Whether the answer came soon enough to say what time it is."""
        return 0 <= self.received - self.sent <= MAX_ROUND_TRIP

    @property
    def origin(self) -> float:
        """The time of the server, as a timestamp, when the monotonic clock was 0."""
        return self.at.timestamp() - (self.sent + self.received) / 2


def find_origin(responses: Sequence[TimeResponse]) -> float | None:
    """Return the time of the cluster when the monotonic clock was 0; None if no response is usable.

    It is the median over the servers, so one wrong clock among three has no effect.
    """
    origins = sorted(response.origin for response in responses if response.is_usable)
    middle = len(origins) // 2
    return (origins[middle] + origins[-1 - middle]) / 2 if origins else None


def measure_offset(now: datetime, monotonic: float, origin: float) -> timedelta:
    """Return how far a clock is ahead of the time of the cluster; negative if it is behind."""
    return timedelta(seconds=now.timestamp() - monotonic - origin)


def judge_offset(offset: timedelta | None) -> ClockState:
    """Return what an offset means; None: it is not known."""
    if offset is None:
        return ClockState.UNKNOWN
    if abs(offset) > MAX_OFFSET:
        return ClockState.WRONG
    return ClockState.OFF if abs(offset) > WARN_OFFSET else ClockState.EXACT


def describe_offset(offset: timedelta) -> str:
    """Return the offset for people, such as `2.5 s fast`."""
    seconds = offset.total_seconds()
    return f"{abs(seconds):.1f} s {'fast' if seconds > 0 else 'slow'}"
