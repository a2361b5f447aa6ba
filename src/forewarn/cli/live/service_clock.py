"""The service's clock, estimated between requests, and the countdown to an event's start."""

import time
from datetime import datetime, timedelta

from forewarn.api import v1
from forewarn.cli.options.times import span_text

MANUAL_CLOCK_HINT = "The clock is manual: `forewarn clock advance` moves it."


class ServiceClock:
    """The service's time, estimated from the last response; a manual clock stands still."""

    def __init__(self, clock: v1.Clock) -> None:
        self.is_manual = clock.manual
        self._fetched_now = clock.now
        self._fetched_at = time.monotonic()

    @property
    def now(self) -> datetime:
        """The service's current time."""
        elapsed = 0.0 if self.is_manual else time.monotonic() - self._fetched_at
        return self._fetched_now + timedelta(seconds=elapsed)


def countdown_text(event: v1.Event, now: datetime) -> str:
    """Return when the event starts, or how long ago it started."""
    if event.started_at is not None:
        return f"for {span_text(now - event.started_at)}"
    return "due" if now >= event.not_before else f"in {span_text(event.not_before - now)}"
