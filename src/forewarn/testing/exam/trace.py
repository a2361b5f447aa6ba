"""Trace of a handler in one scenario: its requests, the documents it received, its approvals, exit status and marker
changes.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from urllib.parse import parse_qs, urlsplit

import msgspec

from forewarn.client.document import Document, Event, Status, event_key, read_document
from forewarn.guest.observer import Observed
from forewarn.testing.exam.stall_watcher import MAX_SHARE, WHOLE, Stall, available_seconds, pause_seconds
from forewarn.testing.request_log import EVENTS_PATH, is_events_query
from forewarn.wire.document_parser import InvalidDocument

ORDINALS = {2: "second", 3: "third"}

ENOUGH_LOOKS = 5
"""How many times a handler can look at an event before it must have reacted, however far apart its polls are."""

GOOD_STATUSES = (200, 304)
"""The statuses of a response that shows, or confirms, a document."""

PARSED_DOCUMENTS = 256
"""How many parsed documents are kept: the exam reads the trace again and again, and most documents are equal."""


class ProcessExit(msgspec.Struct, frozen=True):
    """The exit code and the time of a program that ended by itself."""

    code: int
    at: float


class DocumentSnapshot(msgspec.Struct, frozen=True):
    """A document that the handler received, and when: its incarnation, and its events by id."""

    at: float
    events: Mapping[str, Event]
    incarnation: int | None = None


class ObservedApproval(msgspec.Struct, frozen=True):
    """An approval of one event as the handler sent it, with the status of the response, or None if there was none."""

    at: float
    id: str
    status: int | None

    @property
    def is_accepted(self) -> bool:
        """Whether the service accepted it."""
        return self.status == 200


class EventKind(msgspec.Struct, frozen=True):
    """Type and source of an event. Documents of older api-versions have no source."""

    type: str
    source: str | None = None

    @property
    def text(self) -> str:
        """The kind as in `--expect`: `Reboot/Platform`."""
        return self.type if self.source is None else f"{self.type}/{self.source}"

    @property
    def phrase(self) -> str:
        """The kind in a sentence."""
        return self.type if self.source is None else f"{self.type} of source {self.source}"


class HandlerTrace:
    """Everything that checks can evaluate. Times are those of the monotonic clock.

    `labels` maps the labels of the scenario's events to their ids, `kinds` maps ids to type and source.
    `vm_removed_at` is when the VM was removed.
    `dropped` is the number of older requests that the log dropped.
    `is_timed_out`: the time limit was reached before the scenario ended, which says nothing about the handler.
    `prepared` and `recovered` are the times at which the user's markers changed, or None without markers.
    `stalls` are the times in which the machine was too busy to run the exam or the handler.
    `one_shot_runs` is how often a handler was started that runs again and again, None for a handler that keeps running.
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
        stalls: Sequence[Stall] = (),
        kinds: Mapping[str, EventKind] | None = None,
        one_shot_runs: int | None = None,
    ) -> None:
        self.vm, self.requests, self.labels = vm, tuple(requests), labels
        self.began_at, self.finished_at = began_at, finished_at
        self.exit_status, self.vm_removed_at = exit_status, vm_removed_at
        self.is_finished, self.is_timed_out, self.dropped = is_finished, is_timed_out, dropped
        self.prepared, self.recovered = prepared, recovered
        self.output, self.stalls, self._kinds = output, tuple(stalls), kinds or {}
        self.one_shot_runs = one_shot_runs

    def available(self, begin: float, end: float) -> float:
        """Return the seconds between two times, without stalls of the machine."""
        return available_seconds(self.stalls, begin, end)

    def paused(self, begin: float, end: float, *, at_least: bool = False) -> float:
        """Return the seconds that the handler paused between two times, without its delays by the machine.

        `at_least` subtracts every measured second: on a busy machine, the true pause is between the two. The exam
        starts a handler that runs again and again, so stalls of the exam can be a part of its pauses, too.
        """
        if at_least and self.one_shot_runs is not None:
            return available_seconds(self.stalls, begin, end, share=WHOLE)
        return pause_seconds(self.stalls, begin, end, share=WHOLE if at_least else MAX_SHARE)

    def time_text(self, at: float) -> str:
        """Return a time as text, in seconds since the program was started."""
        return f"at {at - self.began_at:.1f} s"

    @cached_property
    def event_requests(self) -> tuple[Observed, ...]:
        """The requests to the path of Scheduled Events."""
        return tuple(request for request in self.requests if _path(request) == EVENTS_PATH)

    @cached_property
    def polls(self) -> tuple[Observed, ...]:
        """The polls."""
        return tuple(filter(is_events_query, map(_without_proxy, self.requests)))

    def is_good(self, poll: Observed) -> bool:
        """Return whether the handler received a document, or heard that it is unchanged."""
        return poll.status == 304 or (poll.status == 200 and _read_document(poll.answer) is not None)

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """The api-versions with which the handler received a document, each once, in order."""
        good = (poll for poll in self.polls if poll.status in GOOD_STATUSES)
        return tuple(dict.fromkeys(version for poll in good if (version := _version(poll))))

    @cached_property
    def documents(self) -> tuple[DocumentSnapshot, ...]:
        """Every document that the handler received, in order, without invalid responses."""
        found = []
        for poll in self.polls:
            if poll.status == 200 and poll.answered_at is not None:
                document = _read_document(poll.answer)
                if document is not None:
                    events = {event_key(event): event for event in document.events}
                    found.append(DocumentSnapshot(poll.answered_at, events, document.incarnation))
        return tuple(sorted(found, key=lambda document: document.at))

    @cached_property
    def approvals(self) -> tuple[ObservedApproval, ...]:
        """Every approval of every event, in order, accepted or not."""
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

    def looks(self, id_: str) -> int:
        """Return how many times the handler received the event as Scheduled, or heard that nothing had changed.

        A long poll is a look that lasts, so it counts as ENOUGH_LOOKS.
        """
        first = self.first_document_with(id_, status=Status.SCHEDULED)
        if first is None:
            return 0
        later = (document for document in self.documents if document.at > first.at)
        until = next((each.at for each in later if not _is_scheduled(each.events.get(id_))), self.finished_at)
        if any(is_long_poll(poll) and first.at <= poll.at <= until for poll in self.polls):
            return ENOUGH_LOOKS
        answers = (poll.answered_at for poll in self.polls if poll.status in GOOD_STATUSES)
        return sum(at is not None and first.at <= at and (at < until or until == self.finished_at) for at in answers)

    def event(self, id_: str) -> Event | None:
        """Return an event as the handler first received it."""
        document = self.first_document_with(id_)
        return None if document is None else document.events[id_]

    def kind(self, id_: str) -> EventKind | None:
        """Return type and source of an event, also if the handler never received it."""
        event = self.last_scheduled_event(id_) or self.event(id_)
        shown = (
            None if event is None else EventKind(str(event.type), None if event.source is None else str(event.source))
        )
        return self._kinds.get(id_, shown)

    def position_text(self, id_: str) -> str:
        """Return where the event was in the first document that had it, as a clause; empty if it came first."""
        document = self.first_document_with(id_)
        ids = [] if document is None else list(document.events)
        place = ids.index(id_) if id_ in ids else 0
        if document is None or place == 0:
            return ""
        before = document.events[ids[place - 1]]
        where = ORDINALS.get(place + 1, f"number {place + 1}")
        return f"; {self.label(id_)} was {where} in the list, behind {self.label(ids[place - 1])} of {named(before)}"

    def last_scheduled_event(self, id_: str) -> Event | None:
        """Return an event as the handler last received it before it started; an injected fault may have changed it."""
        found = (document.events[id_] for document in reversed(self.documents) if id_ in document.events)
        return next((event for event in found if not event.is_started), None)

    def gone_at(self, id_: str) -> float | None:
        """Return when the handler first received a document in which an earlier event was missing."""
        first = self.first_document_with(id_)
        if first is None:
            return None
        return next(
            (document.at for document in self.documents if document.at > first.at and id_ not in document.events), None
        )

    def latest_document(self, before: float) -> DocumentSnapshot | None:
        """Return the last document that the handler received up to the given time."""
        return next((document for document in reversed(self.documents) if document.at <= before), None)

    def label(self, id_: str) -> str:
        """Return the event's label in the scenario, or its id if it has none."""
        return next((label for label, known in self.labels.items() if known == id_), id_)


@lru_cache(PARSED_DOCUMENTS)
def _read_document(body: bytes) -> Document | None:
    """Parse a document; return None if it is empty or invalid."""
    try:
        return read_document(body)
    except InvalidDocument:
        return None


def is_long_poll(poll: Observed) -> bool:
    """Return whether a request waits for a change."""
    return "wait=" in poll.target.lower()


def named(event: Event) -> str:
    """Return the VMs that an event names."""
    return ", ".join(event.resources)


def _is_scheduled(event: Event | None) -> bool:
    return event is not None and not event.is_started


def _has_status(event: Event, status: str | None) -> bool:
    return status is None or event.status == status


def _version(request: Observed) -> str | None:
    query = {name.lower(): values for name, values in parse_qs(urlsplit(request.target).query).items()}
    return next(iter(query.get("api-version", ())), None)


def _path(request: Observed) -> str:
    return _without_proxy(request).target.partition("?")[0].lower().rstrip("/")


def _without_proxy(request: Observed) -> Observed:
    """Return a request as it would be without a proxy: clients send an absolute URL to a proxy."""
    scheme, mark, rest = request.target.partition("://")
    if not mark or scheme.lower() not in ("http", "https"):
        return request
    return msgspec.structs.replace(request, target="/" + rest.partition("/")[2])
