"""Interruption: a flag, like threading.Event, that is set when an event is going to interrupt this VM."""

import threading
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta

from forewarn.client.changes import Change, Gone
from forewarn.client.document import Event, event_key

LONG_AGO = datetime.min.replace(tzinfo=UTC)


class InterruptionState:
    """The events that are going to interrupt this VM, the most urgent first."""

    def __init__(self, types: Collection[str], now: Callable[[], datetime]) -> None:
        self._types, self._now = types, now
        self._open: dict[str, Event] = {}
        self._event: Event | None = None

    @property
    def event(self) -> Event | None:
        """The event that leaves the least time, as it was last seen; None as long as there was none."""
        return self._event

    def time_left(self) -> timedelta | None:
        """Return how much time there is to prepare; None if nothing is announced, or if nobody knows."""
        return None if self._event is None else self._event.time_left(self._now())

    def _apply(self, change: Change) -> None:
        event = change.event
        if isinstance(change, Gone) or not self._is_relevant(event):
            self._open.pop(event_key(event), None)
        else:
            self._open[event_key(event)] = event
        self._event = min(self._open.values(), key=_urgency, default=self._event)

    def _is_relevant(self, event: Event) -> bool:
        return event.interrupts and (not self._types or event.type in self._types)


class Interruption(InterruptionState):
    """Like a `threading.Event` that the service sets. It stays set, even if the event is withdrawn."""

    def __init__(self, types: Collection[str], now: Callable[[], datetime]) -> None:
        super().__init__(types, now)
        self._announced = threading.Event()

    def is_set(self) -> bool:
        """Tell whether an interruption is announced."""
        return self._announced.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until an interruption is announced, or so many seconds; tell whether it is."""
        return self._announced.wait(timeout)

    def follow(self, changes: Iterable[Change]) -> None:
        """Take what the service says until there is no more."""
        for change in changes:
            self._apply(change)
            if self.event is not None:
                self._announced.set()


def _urgency(event: Event) -> tuple[bool, datetime]:
    """Order by what is left: nothing once started; and who does not know when it starts had better hurry."""
    return not event.is_started, event.not_before or LONG_AGO
