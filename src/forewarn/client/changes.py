"""Changes between two documents, as values.

`watch` reports the life of an event as Appeared, any number of Changed, Started, Gone. A caller that stores `event` of
each Appeared, Changed and Started by its id, and drops it at Gone, has the events of the last document.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TypeAlias

import msgspec

from forewarn.client.document import Event, Status, event_key


class Ending(StrEnum):
    """How an event ended, inferred from its last seen status.

    An event that starts and finishes between two polls, for example during an outage, is reported as withdrawn.
    """

    WITHDRAWN = "withdrawn"
    """The event disappeared before it started, so it was cancelled."""
    FINISHED = "finished"
    """The event disappeared after it had started, so it is over."""


class Appeared(msgspec.Struct, frozen=True):
    """A new event. If it has already started, Started follows immediately."""

    event: Event


class Changed(msgspec.Struct, frozen=True):
    """An event changed, for example its `not_before` or its `resources`, without starting."""

    event: Event
    before: Event


class Started(msgspec.Struct, frozen=True):
    """The event started: the time to prepare is over. `before` is the event as last seen before."""

    event: Event
    before: Event


class Gone(msgspec.Struct, frozen=True):
    """The event disappeared from the document; `event` is the event as last seen."""

    event: Event
    how: Ending


Change: TypeAlias = Appeared | Changed | Started | Gone


def compare_events(before: Iterable[Event], after: Iterable[Event]) -> tuple[Change, ...]:
    """Return the changes: first those of current events, in their order, then removed events.

    So a caller that counts open events does not reach zero while one event replaces another.
    """
    old, new = ({event_key(event): event for event in events} for events in (before, after))
    there = (change for id_, event in new.items() for change in _event_changes(old.get(id_), event))
    gone = (Gone(event, _ending(event)) for id_, event in old.items() if id_ not in new)
    return (*there, *gone)


def _event_changes(before: Event | None, event: Event) -> Iterator[Change]:
    if before is None:
        yield Appeared(event)
        if event.is_started:
            yield Started(event, event)
    elif event.is_started and not before.is_started:
        yield Started(event, before)
    elif event != before:
        yield Changed(event, before)


def _ending(event: Event) -> Ending:
    return Ending.WITHDRAWN if event.status == Status.SCHEDULED else Ending.FINISHED
