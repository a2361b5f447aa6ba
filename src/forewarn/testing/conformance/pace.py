"""How fast an endpoint is asked: it may be the real one, which refuses a VM that asks more than five times a second."""

import time
from collections.abc import Callable

USUAL = 4.0
"""Requests in a second. One less than a VM may send, because its own handler asks too."""


class Pace:
    """Lets requests pass one after the other, not more than so many in a second."""

    def __init__(
        self,
        requests_per_second: float = USUAL,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap = 1.0 / requests_per_second
        self._monotonic, self._sleep = monotonic, sleep
        self._next_at = monotonic()
        self.requests = 0

    def now(self) -> float:
        """Return what time it is, in seconds since no moment in particular."""
        return self._monotonic()

    def next(self) -> None:
        """Wait until another request may be sent."""
        self.rest(self._next_at - self._monotonic())
        self._next_at = self._monotonic() + self._gap
        self.requests += 1

    def rest(self, seconds: float) -> None:
        """Send nothing for so long."""
        if seconds > 0:
            self._sleep(seconds)
