"""How long it is until an event starts, or since it has, by the service's clock."""

import time
from datetime import datetime, timedelta

from forewarn.api import v1
from forewarn.cli.times import span_text

STANDING = "Time stands still: `forewarn clock advance` moves it."


class ServiceTime:
    """The service's time between two questions: it goes on, unless it is moved by hand."""

    def __init__(self, clock: v1.Clock) -> None:
        self.stands = clock.manual
        self._then = clock.now
        self._asked_at = time.monotonic()

    @property
    def now(self) -> datetime:
        """What time it is for the service."""
        passed = 0.0 if self.stands else time.monotonic() - self._asked_at
        return self._then + timedelta(seconds=passed)


def countdown(event: v1.Event, now: datetime) -> str:
    """Say when it starts, or for how long it has been going on."""
    if event.started_at is not None:
        return f"for {span_text(now - event.started_at)}"
    return "due" if now >= event.not_before else f"in {span_text(event.not_before - now)}"
