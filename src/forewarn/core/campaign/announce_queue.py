"""Priority queue of scopes whose next wave waits to be announced, with deferred ones that wake up later."""

from datetime import datetime
from heapq import heappop, heappush


class AnnounceQueue:
    """Scopes are indexes here. The one with the smallest priority is first; a deferred one comes back when it wakes."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []
        self._queued: set[int] = set()
        self._deferred: list[tuple[datetime, int]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def push(self, priority: int, scope: int) -> None:
        """Add a scope, if it is not in the queue already."""
        if scope not in self._queued:
            self._queued.add(scope)
            heappush(self._entries, (priority, scope))

    @property
    def first(self) -> int:
        """The scope with the smallest priority."""
        return self._entries[0][1]

    def pop(self) -> None:
        """Remove the first."""
        _, scope = heappop(self._entries)
        self._queued.discard(scope)

    def defer(self, until: datetime) -> None:
        """Remove the first until it wakes again."""
        heappush(self._deferred, (until, self.first))
        self.pop()

    def pop_woken(self, now: datetime) -> list[int]:
        """Return the scopes that have woken."""
        found = []
        while self._deferred and self._deferred[0][0] <= now:
            found.append(heappop(self._deferred)[1])
        return found

    @property
    def next_wake_at(self) -> datetime | None:
        """When the next deferred scope wakes."""
        return self._deferred[0][0] if self._deferred else None
