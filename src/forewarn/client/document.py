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
"""The year in which moments lie that a service in .NET has not set."""


class Status(StrEnum):
    """Where an event is. What is finished or withdrawn is in no document."""

    SCHEDULED = "Scheduled"
    STARTED = "Started"


STATUSES: dict[str, Status] = {status.value: status for status in Status}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is going to happen, or is happening, to VMs.

    None means that the service does not say: older api-versions have no `description`, `source` or `duration`,
    a duration may be unknown, and an event that has started has no `not_before` any more.
    """

    id: str
    """Stays the same through the event's whole life."""
    status: Status | str
    type: EventType | str
    resources: tuple[str, ...]
    """The names of the VMs that are affected."""
    not_before: datetime | None = None
    """The event starts at this moment or later, or when it is approved."""
    description: str | None = None
    source: Source | str | None = None
    duration: timedelta | None = None
    """How long the interruption takes; zero if there is none."""
    resource_type: str = "VirtualMachine"

    @property
    def is_started(self) -> bool:
        """Whether it is too late to prepare."""
        return self.status == Status.STARTED

    @property
    def interrupts(self) -> bool:
        """Whether the VMs are interrupted at all; true where the duration is not known."""
        return self.duration != ZERO

    @property
    def deadline(self) -> datetime | None:
        """The moment by which everything must be prepared; None once it has started, or if nobody knows."""
        return None if self.is_started else self.not_before

    def time_left(self, now: datetime) -> timedelta | None:
        """Return how much time there is to prepare: none once it has started; None if nobody knows. `now` is aware."""
        if self.is_started:
            return ZERO
        return None if self.not_before is None else max(ZERO, self.not_before - now)

    def affects(self, name: str) -> bool:
        """Tell whether the VM of this resource name is among those affected.

        Case does not matter, nor does the underscore that the first api-version put before names.
        """
        return is_named(name, self.resources)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What was planned or under way when the service answered.

    `incarnation` goes up with every change, and starts anew when the service was off: compare events, not incarnations.
    It is None where the service has not begun to watch over this VM yet, which it does at the first request.
    """

    incarnation: int | None = None
    events: tuple[Event, ...] = ()

    def affecting(self, name: str) -> "Document":
        """Return the document with the events of one VM alone."""
        return msgspec.structs.replace(self, events=tuple(event for event in self.events if event.affects(name)))


def normalize_name(name: str) -> str:
    """Return a resource name in the form in which names are compared."""
    return name.removeprefix("_").casefold()


def is_named(name: str, names: tuple[str, ...]) -> bool:
    """Tell whether one of the names is this VM's."""
    return normalize_name(name) in (normalize_name(other) for other in names)


def event_key(event: Event) -> str:
    """Return what tells events apart: ids are the same in any case."""
    return event.id.upper()


def read_document(body: bytes) -> Document | None:
    """Read the body of a 200; None for an empty one. Of two events with one id the later counts.

    Raises `wire.document_parser.InvalidDocument`, and nothing else.
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
