"""Probe an endpoint: send requests with retry and backoff, cache responses that do not change, keep the trace of the
approval.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from forewarn.client.endpoint import Endpoint
from forewarn.core.backoff import pause_after
from forewarn.core.base_error import BaseError
from forewarn.testing.conformance.document import CheckSkipped, Document, EventFields, Mismatch, read_document
from forewarn.testing.conformance.raw_http import (
    EVENTS_PATH,
    NOT_MODIFIED,
    Pace,
    RawConnection,
    Request,
    RequestFailed,
    Response,
)
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS

ResponseOrError: TypeAlias = Response | RequestFailed

T = TypeVar("T")

TOO_MANY_REQUESTS = 429

RETRY_STATUSES = frozenset({410, TOO_MANY_REQUESTS, 503})
"""Answers that say nothing of the question: the service is busy with itself, or with too many questions."""

MAX_BACKOFF = 15.0

MAX_RETRIES = 8
"""How often we come back with the same question. With growing rests between, that is more than the 70 seconds for which
the real service may answer 410 while it is updated."""

TOTAL_BACKOFF = 120.0
"""For how many seconds we let ourselves be sent away; after that, such an answer is one like any other."""

FIRST_RESPONSE_TIMEOUT = 130.0
"""For how many seconds the very first answer may take: it can be what switches the feature on."""

MAX_EMPTY_RESPONSES = 120
"""How many times, a second apart, it may be empty for the same reason."""

CLOSE_TIMEOUT = 2.0
"""For how many seconds we look whether bytes follow that must not be there."""


class ApprovalTrace(msgspec.Struct):
    """What was seen of the event, and what each request about it was answered."""

    id: str
    initial: EventFields | None = None
    """The event as it was at the beginning; None: it was not there."""
    responses: dict[str, ResponseOrError] = {}
    before_approval: Document | None = None
    """The document after everything that must be refused, before the approval."""
    after_approval: Document | None = None
    """The document after the approval, as soon as it shows that the event has started."""
    is_changed_by_empty_list: bool = False
    """Whether the event was another one after an approval that named none."""
    is_gone: bool = False
    is_closed_after_large_body: bool = False
    """Whether the connection ended after a body that is too large."""

    def response(self, name: str) -> Response:
        """Return what a request was answered; CheckSkipped if there was no occasion to send it."""
        if name not in self.responses:
            raise CheckSkipped(self.skip_reason())
        outcome = self.responses[name]
        if isinstance(outcome, RequestFailed):
            raise RequestFailed(str(outcome))
        return outcome

    def skip_reason(self) -> str:
        """Say why some requests were not sent."""
        if self.initial is None:
            return f"there is no event {self.id} in the document"
        if is_scheduled(self.initial):
            return f"event {self.id} has not come that far"
        return f"event {self.id} had started before"


def is_scheduled(event: EventFields | None) -> bool:
    """Tell whether it can still be approved."""
    return event is not None and event.get("EventStatus") == "Scheduled"


def is_started(event: EventFields | None) -> bool:
    """Tell whether it is under way."""
    return event is not None and event.get("EventStatus") == "Started"


EVENTS_QUERY = Request()


class ServiceUnavailable(BaseError, RequestFailed):
    """The service says that it cannot answer now."""

    template = "the service asks to try again later, again and again: {response}"
    response: Response


class Probe:
    """Sends requests to an endpoint, within a rate limit and with retries."""

    def __init__(self, endpoint: Endpoint, *, pace: Pace, timeout: float, burst: bool = False) -> None:
        self.endpoint = endpoint
        self.pace = pace
        self.timeout = timeout
        self.burst = burst
        self.approval: ApprovalTrace | None = None
        self.exchanges: list[str] = []
        """The exchanges since somebody began to note them, in words."""
        self.rate_limit_response: Response | None = None
        self.later_documents: list[Document] = []
        """Documents that were read after something had happened."""
        self._backoff_left = TOTAL_BACKOFF
        self._cache: dict[Request, Response | RequestFailed] = {}
        self._documents: dict[str, Document] | CheckSkipped | None = None
        self.document_pairs: list[tuple[Document, Document]] = []
        """Pairs of documents of the newest version, read one shortly after the other."""

    def send_once(self, request: Request) -> Response:
        """Send a request, or return the cached response."""
        if request not in self._cache:
            return self.send(request)
        return self._cached_response(request)

    def send(self, request: Request, *, within: float | None = None) -> Response:
        """Send a request, whatever is cached."""
        timeout = self.timeout if within is None else within
        try:
            self._cache[request] = self.with_retries(lambda connection: self._exchange(connection, request, timeout))
        except RequestFailed as error:
            self._cache[request] = error
        return self._cached_response(request)

    def send_first(self) -> Response:
        """Ask for the first time; a service that is switched on by it may be slow, or have nothing to say for long."""
        response = self.send(EVENTS_QUERY, within=max(FIRST_RESPONSE_TIMEOUT, self.timeout))
        for _ in range(MAX_EMPTY_RESPONSES):
            if response.status != 200 or response.body.strip():
                break
            self.pace.pause(1.0)
            response = self.send(EVENTS_QUERY)
        return response

    def connect(self) -> RawConnection:
        """Open a connection for the next request."""
        self.pace.wait()
        return RawConnection(self.endpoint, self.timeout)

    def with_retries(self, exchange: Callable[[RawConnection], T]) -> T:
        """Use a connection, and retry on another one, with a backoff, while the service is unavailable."""
        for number in range(MAX_RETRIES):
            try:
                return self._with_connection(exchange)
            except ServiceUnavailable as away:
                delay = _backoff(away.response, number)
                if delay > self._backoff_left:
                    raise
                self._backoff_left -= delay
                self.pace.pause(delay)
        return self._with_connection(exchange)

    def receive(
        self, connection: RawConnection, request: Request | None = None, *, within: float | None = None
    ) -> Response:
        """Read the next answer; ServiceUnavailable if it says nothing of what was asked."""
        response = connection.read_response(request, within=within)
        if response.status == TOO_MANY_REQUESTS:
            self.rate_limit_response = self.rate_limit_response or response
        if response.status in RETRY_STATUSES:
            raise ServiceUnavailable(response)
        return response

    def note_exchange(self, request: Request | str, outcome: Response | RequestFailed) -> None:
        """Remember an exchange in words."""
        self.exchanges.append(f"{request} → {outcome}")

    def documents(self) -> Mapping[str, Document]:
        """Return the document in every version in which it can be read, all of the same moment."""
        if self._documents is None:
            try:
                self._documents = self._stable_documents()
            except CheckSkipped as error:
                self._documents = error
        if isinstance(self._documents, CheckSkipped):
            raise CheckSkipped(str(self._documents))
        return self._documents

    def document(self, version: str = NEWEST_VERSION) -> Document:
        """Return the document of one version."""
        found = self.documents().get(version)
        if found is None:
            raise CheckSkipped(f"there is no document in version {version}")
        return found

    def read_document(self, version: str = NEWEST_VERSION) -> Document:
        """Read the document as it is now."""
        return read_document(self.send(query(version)))

    def events(
        self, condition: Callable[[EventFields], bool] = lambda _: True, *, what: str = "event"
    ) -> list[EventFields]:
        """Return all events that were seen, of the newest version, under a condition; there must be some."""
        found = [
            event
            for document in (self.document(), *self.later_documents)
            for event in document.events
            if condition(event)
        ]
        if not found:
            raise CheckSkipped(f"there is no {what}")
        return found

    def expect_not_modified(self, if_none_match: Callable[[str], str], *, target: str | None = None) -> Response:
        """Ask whether the document is still the same, in whatever way, and return the 304."""
        for _ in range(3):
            before = self.send(EVENTS_QUERY)
            request = conditional(if_none_match(etag(before)), target)
            response = self.send(request)
            if response.status == NOT_MODIFIED:
                return response
            if self.send(EVENTS_QUERY).body == before.body:
                raise Mismatch(f"nothing has changed, and the answer is {response.status}")
        raise CheckSkipped("the document changes all the time")

    def _with_connection(self, exchange: Callable[[RawConnection], T]) -> T:
        with self.connect() as connection:
            return exchange(connection)

    def _cached_response(self, request: Request) -> Response:
        outcome = self._cache[request]
        self.note_exchange(request, outcome)
        if isinstance(outcome, RequestFailed):
            raise RequestFailed(str(outcome))
        return outcome

    def _exchange(self, connection: RawConnection, request: Request, timeout: float) -> Response:
        connection.send(request)
        response = self.receive(connection, request, within=timeout)
        if request.method != "HEAD" and response.status != NOT_MODIFIED:
            return response
        # Neither has a body: what still comes is one all the same.
        extra_body, _ = connection.read_until_close(CLOSE_TIMEOUT)
        return msgspec.structs.replace(response, body=extra_body)

    def _stable_documents(self) -> dict[str, Document]:
        for _ in range(3):
            before = read_document(self.send(EVENTS_QUERY))
            found = dict(self._readable_documents())
            after = read_document(self.send(EVENTS_QUERY))
            self.document_pairs.append((before, after))
            if before.events == after.events:
                return found
        raise CheckSkipped("the events change while they are read")

    def _readable_documents(self) -> list[tuple[str, Document]]:
        found = []
        for version in VERSIONS:
            try:
                found.append((version, read_document(self.send(query(version)))))
            except (CheckSkipped, RequestFailed):
                continue
        return found


def query(version: str) -> Request:
    """Ask for the document in a version."""
    return Request(target=f"{EVENTS_PATH}?api-version={version}")


def conditional(if_none_match: str, target: str | None = None) -> Request:
    """Ask for the document, unless it is the one that is known already."""
    return Request(
        target=target or EVENTS_QUERY.target, headers=(*EVENTS_QUERY.headers, ("If-None-Match", if_none_match))
    )


def etag(response: Response) -> str:
    """Return the ETag of an answer; there must be one."""
    if not (found := response.header("etag")):
        raise CheckSkipped("the answer has no ETag")
    return found


def _backoff(response: Response, attempt: int) -> float:
    """Return the backoff in seconds: the Retry-After of the response, else longer each time."""
    retry_after = response.header("retry-after") or ""
    is_given = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 9
    return min(float(retry_after), MAX_BACKOFF) if is_given else pause_after(attempt + 1, 1.0, MAX_BACKOFF)
