"""Clock of a running service, as scenarios use it: advance a manual clock, wait for a system clock."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Protocol

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.duration import format_duration
from forewarn.core.impact import ImpactState
from forewarn.testing.scenario.journal_watcher import JournalWatcher

GRACE = timedelta(seconds=2)
"""How late an expected fact may be with a system clock: the machine may be busy."""

SETTLE_TIMEOUT = 30.0
"""How many seconds of real time a service has to begin work that is due."""

ZERO = timedelta(0)


class LiveClock(Protocol):
    """The clock of a service."""

    @property
    def grace(self) -> timedelta:
        """How late an expected fact may be."""
        ...

    def now(self) -> datetime:
        """Return the service's time."""
        ...

    def settle(self) -> None:
        """Wait until everything that is due has happened."""
        ...

    def advance(self, limit: datetime) -> bool:
        """Let time pass until something may have changed, at most up to the limit; False if the limit was reached."""
        ...


class ManualLiveClock:
    """A manual clock: it moves only between commands of the scenario. `before_move` is called before each move."""

    grace = ZERO

    def __init__(self, api: ApiClient, watcher: JournalWatcher, before_move: Callable[[], None]) -> None:
        self._api, self._watcher, self._before_move = api, watcher, before_move

    def now(self) -> datetime:
        """Return the service's time."""
        return self._api.clock().now

    def settle(self) -> None:
        """Advance the clock by zero: the service responds when everything that is due has happened."""
        self._move(ZERO)

    def advance(self, limit: datetime) -> bool:
        """Advance the clock to the next time at which the service has something to do."""
        self._watcher.check()
        self._before_move()
        clock = self._api.clock()
        has_next = clock.next_change_at is not None and clock.next_change_at <= limit
        target = clock.next_change_at if has_next and clock.next_change_at is not None else limit
        self._move(max(target - clock.now, ZERO))
        return has_next

    def _move(self, by: timedelta) -> None:
        self._api.advance(format_duration(by))


class SystemLiveClock:
    """A system clock: the scenario waits for new journal entries."""

    grace = GRACE

    def __init__(self, api: ApiClient, watcher: JournalWatcher, scopes: Callable[[], Iterable[str]]) -> None:
        self._api, self._watcher, self._scopes = api, watcher, scopes

    def now(self) -> datetime:
        """Return the service's time."""
        return self._api.clock().now

    def settle(self) -> None:
        """Wait until the service has begun all work that is due."""
        while any(map(self._is_unsettled, self._scopes())):
            if not self._watcher.wait(SETTLE_TIMEOUT):
                return

    def advance(self, limit: datetime) -> bool:
        """Wait for a new journal entry, or until the limit."""
        left = limit - self.now()
        return left > ZERO and self._watcher.wait(left.total_seconds())

    def _is_unsettled(self, scope: str) -> bool:
        """Return whether something is about to happen in this scope: an event is due, or work can begin."""
        events = list(self._api.events(scope=scope))
        now = self.now()
        busy = {impact.vm for event in events for impact in event.impacts if impact.state is ImpactState.BEGUN}
        return any(_is_due(event, now) or _is_to_begin(event, busy) for event in events)


def _is_due(event: v1.Event, now: datetime) -> bool:
    return event.started_at is None and event.not_before <= now and not event.explanation


def _is_to_begin(event: v1.Event, busy: set[str]) -> bool:
    pending = (impact.vm for impact in event.impacts if impact.state is ImpactState.PENDING)
    return event.started_at is not None and not busy.issuperset(pending)
