"""An event created by a test: its id, and its current state read from the operator API."""

from datetime import datetime

from forewarn.api import v1
from forewarn.api.client import ApiClient


class Event:
    """An event that a test created. The id is fixed; the other properties are read from the service at each access."""

    def __init__(self, api: ApiClient, id_: str, scope: str) -> None:
        self._api = api
        self.id, self.scope = id_, scope

    @property
    def state(self) -> str:
        """The event's status, `Scheduled` or `Started`, or its outcome: `completed`, `canceled` or `failed`."""
        detail = self.story
        if detail.event is not None:
            return detail.event.status
        return detail.outcome.value if detail.outcome is not None else "unknown"

    @property
    def story(self) -> v1.EventDetail:
        """The event's details from the operator API, with its timeline."""
        return self._api.event(self.id)

    @property
    def is_open(self) -> bool:
        """Whether the event has neither ended nor been canceled."""
        return self.story.event is not None

    @property
    def not_before(self) -> datetime | None:
        """The time before which the event does not start without approval; None after it has ended."""
        event = self.story.event
        return event.not_before if event is not None else None

    @property
    def explanation(self) -> tuple[str, ...]:
        """What the event waits for, in sentences."""
        event = self.story.event
        return tuple(event.explanation) if event is not None else ()

    def __eq__(self, other: object) -> bool:
        """Compare by id, ignoring case; a string is compared as an id."""
        if isinstance(other, Event):
            return self.id.upper() == other.id.upper()
        return isinstance(other, str) and self.id.upper() == other.upper()

    def __hash__(self) -> int:
        return hash(self.id.upper())

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<Event {self.id} in {self.scope}>"
