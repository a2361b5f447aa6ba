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
    """How an event went, judged by the last that was seen of it.

    What starts and finishes between two looks, while the service could not be reached say, is taken for withdrawn.
    """

    WITHDRAWN = "withdrawn"
    """It was still Scheduled: it does not happen after all."""
    FINISHED = "finished"
    """It had started: it is over."""


class Appeared(msgspec.Struct, frozen=True):
    """An event that was not there before. If it has started already, Started follows at once."""

    event: Event


class Changed(msgspec.Struct, frozen=True):
    """Something about an event is different, its `not_before` or its `resources` say, but it has not started now."""

    event: Event
    before: Event


class Started(msgspec.Struct, frozen=True):
    """The time to prepare is over. `before` is the event as it was last seen."""

    event: Event
    before: Event


class Gone(msgspec.Struct, frozen=True):
    """The event is not there any more; `event` is the last that was seen of it."""

    event: Event
    how: Ending


Change: TypeAlias = Appeared | Changed | Started | Gone


def compare_events(before: Iterable[Event], after: Iterable[Event]) -> tuple[Change, ...]:
    """Tell what changed: first what is there, in its order, then what is gone.

    In this order nobody who counts open events comes to zero while one event takes another's place.
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
