"""Clock of a running service, as scenarios use it: advance a manual clock, wait for a real one."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Protocol

from forewarn.api import v1
from forewarn.api.client import ApiClient
from forewarn.core.duration import format_duration
from forewarn.core.impact import ImpactState
from forewarn.testing.scenario.journal_watcher import JournalWatcher

GRACE = timedelta(seconds=2)
"""By how much what is expected of a real clock may be late: machines are busy."""

SETTLE_TIMEOUT = 30.0
"""For how many seconds of real time a service may take to begin what it has to begin at once."""

ZERO = timedelta(0)


class LiveClock(Protocol):
    """The time of a service."""

    @property
    def grace(self) -> timedelta:
        """By how much something may be late that is expected."""
        ...

    def now(self) -> datetime:
        """Return the service's time."""
        ...

    def settle(self) -> None:
        """Return when everything has happened that happens at once."""
        ...

    def advance(self, limit: datetime) -> bool:
        """Let time pass until something may have changed, but not beyond the limit; False: the limit has come."""
        ...


class ManualLiveClock:
    """A manual clock: it stands still while the scenario does something. `before_move` is called before each move."""

    grace = ZERO

    def __init__(self, api: ApiClient, watcher: JournalWatcher, before_move: Callable[[], None]) -> None:
        self._api, self._watcher, self._before_move = api, watcher, before_move

    def now(self) -> datetime:
        """Return the service's time."""
        return self._api.clock().now

    def settle(self) -> None:
        """Move the clock by nothing: the service answers when all that is due is over."""
        self._move(ZERO)

    def advance(self, limit: datetime) -> bool:
        """Move the clock to the next moment that the service waits for."""
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
    """A real clock: nothing can be done but to wait for the journal to grow."""

    grace = GRACE

    def __init__(self, api: ApiClient, watcher: JournalWatcher, scopes: Callable[[], Iterable[str]]) -> None:
        self._api, self._watcher, self._scopes = api, watcher, scopes

    def now(self) -> datetime:
        """Return the service's time."""
        return self._api.clock().now

    def settle(self) -> None:
        """Wait until the service has begun whatever it can begin."""
        while any(map(self._is_unsettled, self._scopes())):
            if not self._watcher.wait(SETTLE_TIMEOUT):
                return

    def advance(self, limit: datetime) -> bool:
        """Wait until the journal has grown, or until the limit has come."""
        left = limit - self.now()
        return left > ZERO and self._watcher.wait(left.total_seconds())

    def _is_unsettled(self, scope: str) -> bool:
        """Tell whether something of this scope must happen any moment: a start that is due, or work to begin."""
        events = list(self._api.events(scope=scope))
        now = self.now()
        busy = {impact.vm for event in events for impact in event.impacts if impact.state is ImpactState.BEGUN}
        return any(_is_due(event, now) or _is_to_begin(event, busy) for event in events)


def _is_due(event: v1.Event, now: datetime) -> bool:
    return event.started_at is None and event.not_before <= now and not event.explanation


def _is_to_begin(event: v1.Event, busy: set[str]) -> bool:
    pending = (impact.vm for impact in event.impacts if impact.state is ImpactState.PENDING)
    return event.started_at is not None and not busy.issuperset(pending)
