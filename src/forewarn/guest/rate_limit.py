"""Per-second rate limiter: requests, refusals, connections and long polls of each VM, or of each unknown address."""


class RateCounter:
    """Requests in this second, connections and long polls of one VM or one unknown address."""

    __slots__ = ("connections", "key", "long_polls", "refusals", "requests", "tick")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.connections = 0
        self.long_polls = 0
        self.tick = 0
        self.requests = 0
        """Requests admitted in the second `tick`."""
        self.refusals = 0
        """Requests refused in that second."""

    def has_room(self, tick: int, limit: int) -> bool:
        """Return whether one more request is within the rate limit of this second."""
        if self.tick != tick:
            self.tick = tick
            self.requests = self.refusals = 0
        return self.requests < limit

    def is_throttled(self, tick: int, limit: int) -> bool:
        """Return whether reading must stop until the next second."""
        return self.tick == tick and self.refusals >= limit


class RateLimiter:
    """The rate counters of all callers connected in this second: reconnecting does not reset a counter."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], RateCounter] = {}
        self._disconnected: list[RateCounter] = []

    def add_connection(self, key: tuple[str, str]) -> RateCounter:
        """Count a connection."""
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = RateCounter(key)
        counter.connections += 1
        return counter

    def remove_connection(self, counter: RateCounter) -> None:
        """Stop counting a connection."""
        counter.connections -= 1
        if counter.connections == 0:
            self._disconnected.append(counter)

    def drop_disconnected(self) -> None:
        """Drop the counters of disconnected callers; called when a new second begins."""
        disconnected, self._disconnected = self._disconnected, []
        for counter in disconnected:
            if not counter.connections and self._counters.get(counter.key) is counter:
                del self._counters[counter.key]
