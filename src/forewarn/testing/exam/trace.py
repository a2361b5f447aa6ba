"""Trace of a handler in one scenario: its requests, the documents it received, its approvals, exit status and marker
changes.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import msgspec

from forewarn.client.document import Event, event_key, read_document
from forewarn.guest.observer import Observed
from forewarn.testing.request_log import EVENTS_PATH, is_events_query
from forewarn.wire.document_parser import InvalidDocument


class ProcessExit(msgspec.Struct, frozen=True):
    """The program has ended by itself, with this exit code."""

    code: int
    at: float


class DocumentSnapshot(msgspec.Struct, frozen=True):
    """What the program was told, and when: the events by their ids."""

    at: float
    events: Mapping[str, Event]


class ObservedApproval(msgspec.Struct, frozen=True):
    """An approval of one event as it was sent, and how it was answered; None: not at all."""

    at: float
    id: str
    status: int | None

    @property
    def is_accepted(self) -> bool:
        """Whether the service took it."""
        return self.status == 200


class HandlerTrace:
    """Everything that can be judged. Moments are of the monotonic clock.

    `labels` are the ids of the scenario's events by their labels. `vm_removed_at`: since when the VM is gone.
    `dropped`: how many older requests could not be remembered.
    `is_timed_out`: the time was over before the program could have had its chance, which says nothing about it.
    `prepared` and `recovered` are the moments at which the user's markers have changed, or None where there are none.
    """

    def __init__(
        self,
        *,
        vm: str,
        requests: Sequence[Observed],
        labels: Mapping[str, str],
        began_at: float,
        finished_at: float,
        exit_status: ProcessExit | None = None,
        vm_removed_at: float | None = None,
        is_finished: bool = True,
        is_timed_out: bool = False,
        dropped: int = 0,
        prepared: Sequence[float] | None = None,
        recovered: Sequence[float] | None = None,
        output: str = "",
    ) -> None:
        self.vm, self.requests, self.labels = vm, tuple(requests), labels
        self.began_at, self.finished_at = began_at, finished_at
        self.exit_status, self.vm_removed_at = exit_status, vm_removed_at
        self.is_finished, self.is_timed_out, self.dropped = is_finished, is_timed_out, dropped
        self.prepared, self.recovered = prepared, recovered
        self.output = output

    def time_text(self, at: float) -> str:
        """Say when something was, in seconds since the program was begun."""
        return f"at {at - self.began_at:.1f} s"

    @cached_property
    def event_requests(self) -> tuple[Observed, ...]:
        """The requests to the path of the events."""
        return tuple(request for request in self.requests if _path(request) == EVENTS_PATH)

    @cached_property
    def polls(self) -> tuple[Observed, ...]:
        """The requests that ask for the events."""
        return tuple(filter(is_events_query, map(_without_proxy, self.requests)))

    @cached_property
    def documents(self) -> tuple[DocumentSnapshot, ...]:
        """Every document that it was given, in order; answers that nobody can read tell nothing."""
        found = []
        for poll in self.polls:
            if poll.status == 200 and poll.answered_at is not None:
                try:
                    document = read_document(poll.answer)
                except InvalidDocument:
                    continue
                if document is not None:
                    found.append(
                        DocumentSnapshot(poll.answered_at, {event_key(event): event for event in document.events})
                    )
        return tuple(sorted(found, key=lambda document: document.at))

    @cached_property
    def approvals(self) -> tuple[ObservedApproval, ...]:
        """Every approval of every event, in order, whether it was taken or not."""
        return tuple(
            ObservedApproval(request.at, id_, request.status) for request in self.requests for id_ in request.approved
        )

    def approvals_of(self, id_: str) -> list[ObservedApproval]:
        """Return the approvals of one event."""
        return [approval for approval in self.approvals if approval.id == id_]

    def first_document_with(self, id_: str, *, status: str | None = None) -> DocumentSnapshot | None:
        """Return the first document that has the event, in this status if one is given."""
        return next(
            (
                document
                for document in self.documents
                if id_ in document.events and _has_status(document.events[id_], status)
            ),
            None,
        )

    def event(self, id_: str) -> Event | None:
        """Return an event as it was first told."""
        document = self.first_document_with(id_)
        return None if document is None else document.events[id_]

    def last_scheduled_event(self, id_: str) -> Event | None:
        """Return an event as it was last told before it started: an endpoint that misbehaves may mistell it."""
        found = (document.events[id_] for document in reversed(self.documents) if id_ in document.events)
        return next((event for event in found if not event.is_started), None)

    def gone_at(self, id_: str) -> float | None:
        """Return when it was told, by silence, that an event is over."""
        first = self.first_document_with(id_)
        if first is None:
            return None
        return next(
            (document.at for document in self.documents if document.at > first.at and id_ not in document.events), None
        )

    def latest_document(self, before: float) -> DocumentSnapshot | None:
        """Return the last document that it was given by a moment."""
        return next((document for document in reversed(self.documents) if document.at <= before), None)

    def label(self, id_: str) -> str:
        """Return the scenario's name for an event, or its id where the scenario has none."""
        return next((label for label, known in self.labels.items() if known == id_), id_)


def _has_status(event: Event, status: str | None) -> bool:
    return status is None or event.status == status


def _path(request: Observed) -> str:
    return _without_proxy(request).target.partition("?")[0].lower().rstrip("/")


def _without_proxy(request: Observed) -> Observed:
    """Return a request as it would be without a proxy: clients that use one send the whole URL."""
    scheme, mark, rest = request.target.partition("://")
    if not mark or scheme.lower() not in ("http", "https"):
        return request
    return msgspec.structs.replace(request, target="/" + rest.partition("/")[2])
