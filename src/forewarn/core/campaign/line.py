"""The line of scopes whose next wave waits to be announced, and of those that sleep until they may wait there."""

from datetime import datetime
from heapq import heappop, heappush


class Line:
    """Scopes are numbers here. The one with the smallest turn is first; one that sleeps joins again once it wakes."""

    def __init__(self) -> None:
        self._turns: list[tuple[int, int]] = []
        self._queued: set[int] = set()
        self._asleep: list[tuple[datetime, int]] = []

    def __bool__(self) -> bool:
        return bool(self._turns)

    def join(self, turn: int, scope: int) -> None:
        """Wait from now on, if it does not wait already."""
        if scope not in self._queued:
            self._queued.add(scope)
            heappush(self._turns, (turn, scope))

    @property
    def first(self) -> int:
        """The scope whose turn it is."""
        return self._turns[0][1]

    def leave(self) -> None:
        """Let the first go; the next one is first now."""
        _, scope = heappop(self._turns)
        self._queued.discard(scope)

    def sleep(self, until: datetime) -> None:
        """Let the first go, and have it woken."""
        heappush(self._asleep, (until, self.first))
        self.leave()

    def woken(self, now: datetime) -> list[int]:
        """Return whose sleep is over."""
        found = []
        while self._asleep and self._asleep[0][0] <= now:
            found.append(heappop(self._asleep)[1])
        return found

    @property
    def wakes_at(self) -> datetime | None:
        """When the next sleep is over."""
        return self._asleep[0][0] if self._asleep else None
