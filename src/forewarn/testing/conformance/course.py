"""What has been seen of the one event that could be approved."""

from typing import TypeAlias

import msgspec

from forewarn.testing.conformance.document import Document, Entry, NotChecked
from forewarn.testing.conformance.talking import Answer, Unanswered

Outcome: TypeAlias = Answer | Unanswered


class Approval(msgspec.Struct):
    """What was seen of the event, and what each request about it was answered."""

    id: str
    first: Entry | None = None
    """The event as it was at the beginning; None: it was not there."""
    answers: dict[str, Outcome] = {}
    untouched: Document | None = None
    """The document after everything that must be refused, before the approval."""
    after: Document | None = None
    """The document after the approval, as soon as it shows that the event has started."""
    is_changed_by_nothing: bool = False
    """Whether the event was another one after an approval that named none."""
    is_gone: bool = False
    is_closed_after_too_much: bool = False
    """Whether the connection ended after a body that is too large."""

    def answer(self, name: str) -> Answer:
        """Return what a request was answered; NotChecked if there was no occasion to send it."""
        if name not in self.answers:
            raise NotChecked(self.why_not())
        outcome = self.answers[name]
        if isinstance(outcome, Unanswered):
            raise Unanswered(str(outcome))
        return outcome

    def why_not(self) -> str:
        """Say why some requests were not sent."""
        if self.first is None:
            return f"there is no event {self.id} in the document"
        if is_scheduled(self.first):
            return f"event {self.id} has not come that far"
        return f"event {self.id} had started before"


def is_scheduled(event: Entry | None) -> bool:
    """Tell whether it can still be approved."""
    return event is not None and event.get("EventStatus") == "Scheduled"


def is_started(event: Entry | None) -> bool:
    """Tell whether it is under way."""
    return event is not None and event.get("EventStatus") == "Started"
