"""The document and its events as a VM reads them: typed and frozen.

Types, states and sources are open enums: a known value is a member of its enum, an unknown one is kept as the text that
the service sent. Both compare equal to their text: `event.type == "Reboot"`.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from forewarn.core.event import EventType, Source
from forewarn.wire import document_parser

ZERO = timedelta(0)

UNSET_YEAR = 1
"""The year of an unset time in .NET, which some services send."""


class Status(StrEnum):
    """Status of an event. Finished and withdrawn events are not in the document."""

    SCHEDULED = "Scheduled"
    STARTED = "Started"


STATUSES: dict[str, Status] = {status.value: status for status in Status}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled or started event of one or more VMs.

    None means that the service did not send a value: older api-versions have no `description`, `source` or `duration`,
    a duration may be unknown, and a started event has no `not_before`.
    """

    id: str
    """Stays the same from announcement to end."""
    status: Status | str
    type: EventType | str
    resources: tuple[str, ...]
    """The names of the affected VMs."""
    not_before: datetime | None = None
    """The event starts at this time or later, or earlier if it is approved."""
    description: str | None = None
    source: Source | str | None = None
    duration: timedelta | None = None
    """The expected duration of the interruption; zero if there is none."""
    resource_type: str = "VirtualMachine"

    @property
    def is_started(self) -> bool:
        """Whether the event has started, so that it is too late to prepare."""
        return self.status == Status.STARTED

    @property
    def interrupts(self) -> bool:
        """Whether the event interrupts its VMs; true if the duration is unknown."""
        return self.duration != ZERO

    @property
    def deadline(self) -> datetime | None:
        """The time by which everything must be prepared; None if the event has started or the time is unknown."""
        return None if self.is_started else self.not_before

    def time_left(self, now: datetime) -> timedelta | None:
        """Return the time left to prepare: zero after the start, None if unknown. `now` must be timezone-aware."""
        if self.is_started:
            return ZERO
        return None if self.not_before is None else max(ZERO, self.not_before - now)

    def affects(self, name: str) -> bool:
        """Return whether the event affects the VM with this resource name.

        The comparison ignores case, and the underscore that the first api-version puts before names.
        """
        return is_named(name, self.resources)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a poll: the scheduled and started events of this VM's scope.

    `incarnation` grows with every change and starts again after Scheduled Events was disabled, so compare events, not
    incarnations. It is None while Scheduled Events is not enabled yet; the first request enables it.
    """

    incarnation: int | None = None
    events: tuple[Event, ...] = ()

    def affecting(self, name: str) -> "Document":
        """Return the document with only the events that affect one VM."""
        return msgspec.structs.replace(self, events=tuple(event for event in self.events if event.affects(name)))


def normalize_name(name: str) -> str:
    """Return a resource name in the form in which names are compared."""
    return name.removeprefix("_").casefold()


def is_named(name: str, names: tuple[str, ...]) -> bool:
    """Return whether one of the names is this VM's."""
    return normalize_name(name) in (normalize_name(other) for other in names)


def event_key(event: Event) -> str:
    """Return the id in upper case: event ids are case-insensitive."""
    return event.id.upper()


def read_document(body: bytes) -> Document | None:
    """Parse the body of a 200 response; return None for an empty body. The last of two events with one id wins.

    Raises only `wire.document_parser.InvalidDocument`.
    """
    document = document_parser.parse_document(body)
    if document is None:
        return None
    events = {event_key(event): event for event in map(_event, document.events)}
    return Document(incarnation=document.incarnation, events=tuple(events.values()))


def _event(event: document_parser.DocumentEvent) -> Event:
    return Event(
        id=event.id,
        status=STATUSES.get(event.status, str(event.status)),
        type=event.type,
        resources=event.resources,
        not_before=None if event.not_before is None or event.not_before.year == UNSET_YEAR else event.not_before,
        description=event.description,
        source=event.source,
        duration=event.duration,
        resource_type=event.resource_type,
    )
