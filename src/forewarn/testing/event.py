"""An event created by a test: its id, and its current state read from the operator API."""

from datetime import datetime

from forewarn.api import v1
from forewarn.api.client import ApiClient


class Event:
    """An event that a test has created. Its id stays; `state` and `story` are read from the service each time."""

    def __init__(self, api: ApiClient, id_: str, scope: str) -> None:
        self._api = api
        self.id, self.scope = id_, scope

    @property
    def state(self) -> str:
        """Where it is: `Scheduled` or `Started`, or how it has ended: `completed`, `canceled` or `failed`."""
        detail = self.story
        if detail.event is not None:
            return detail.event.status
        return detail.outcome.value if detail.outcome is not None else "unknown"

    @property
    def story(self) -> v1.EventDetail:
        """All that the operator API tells of it, with its timeline."""
        return self._api.event(self.id)

    @property
    def is_open(self) -> bool:
        """Whether it is in documents: it is neither over nor canceled."""
        return self.story.event is not None

    @property
    def not_before(self) -> datetime | None:
        """The moment before which it does not start without approval; None once it is over."""
        event = self.story.event
        return event.not_before if event is not None else None

    @property
    def explanation(self) -> tuple[str, ...]:
        """What it waits for, in sentences."""
        event = self.story.event
        return tuple(event.explanation) if event is not None else ()

    def __eq__(self, other: object) -> bool:
        """Compare by id, in any case of its letters; a text is taken for an id."""
        if isinstance(other, Event):
            return self.id.upper() == other.id.upper()
        return isinstance(other, str) and self.id.upper() == other.upper()

    def __hash__(self) -> int:
        return hash(self.id.upper())

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<Event {self.id} in {self.scope}>"
