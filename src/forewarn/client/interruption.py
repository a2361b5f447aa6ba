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
        """The most urgent event, as last seen; None before the first one."""
        return self._event

    def time_left(self) -> timedelta | None:
        """Return the time left to prepare; None if no event is announced or its time is unknown."""
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
    """A flag like `threading.Event`, set when an event is going to interrupt this VM.

    It stays set, even if the event is withdrawn.
    """

    def __init__(self, types: Collection[str], now: Callable[[], datetime]) -> None:
        super().__init__(types, now)
        self._announced = threading.Event()

    def is_set(self) -> bool:
        """Return whether an interruption is announced."""
        return self._announced.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until an interruption is announced, at most `timeout` seconds; return whether it is."""
        return self._announced.wait(timeout)

    def follow(self, changes: Iterable[Change]) -> None:
        """Apply all changes until the iterator ends."""
        for change in changes:
            self._apply(change)
            if self.event is not None:
                self._announced.set()


def _urgency(event: Event) -> tuple[bool, datetime]:
    """Return the sort key: started events first, then unknown start times, then by start time."""
    return not event.is_started, event.not_before or LONG_AGO
