"""Probe an endpoint: send requests with retry and backoff, cache responses that do not change, keep the trace of the
approval.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from forewarn.client.endpoint import Endpoint
from forewarn.core.backoff import pause_after
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
"""Statuses after which a request is retried: the service is being updated, unavailable or overloaded."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""The pauses, in seconds, between attempts if the service names none."""

MAX_RETRIES = 8
"""How often a request is retried. With the growing backoff, that is more than the 70 seconds for which the real
service may respond with 410 while it is updated."""

TOTAL_BACKOFF = 120.0
"""The total seconds of backoff; after that, such a response counts as the result."""

FIRST_RESPONSE_TIMEOUT = 130.0
"""How many seconds the very first response may take: the first request can enable Scheduled Events."""

MAX_EMPTY_RESPONSES = 120
"""How many responses, one second apart, may be empty for the same reason."""

CLOSE_TIMEOUT = 2.0
"""How many seconds to wait for bytes after the end of a response, or for the end of the connection."""


class ApprovalTrace(msgspec.Struct):
    """The states of the event, and the response to each request about it."""

    id: str
    initial: EventFields | None = None
    """The event at the beginning, or None if it was not in the document."""
    requests: dict[str, Request] = {}
    responses: dict[str, ResponseOrError] = {}
    before_approval: Document | None = None
    """The document after the invalid approvals and before the valid one."""
    after_approval: Document | None = None
    """The document after the approval, as soon as it shows that the event has started."""
    is_changed_by_empty_list: bool = False
    """Whether an approval without events changed the event."""
    shared: "SharedApproval | None" = None
    """The approval with several StartRequests, if one was sent."""
    shared_skip_reason: str = ""
    """Why none was sent."""
    is_gone: bool = False
    is_closed_after_large_body: bool = False
    """Whether the endpoint closed the connection after a body that is too large."""

    def response(self, name: str) -> Response:
        """Return the response to a request; raise CheckSkipped if it was not sent."""
        if name not in self.responses:
            raise CheckSkipped(self.skip_reason())
        outcome = self.responses[name]
        if isinstance(outcome, RequestFailed):
            raise RequestFailed(str(outcome))
        return outcome

    def skip_reason(self) -> str:
        """Return why some requests were not sent."""
        if self.initial is None:
            return f"event {self.id} is not in the document"
        if self.before_approval is not None and not is_scheduled(self.before_approval.event(self.id)):
            return f"event {self.id} had started, or was gone, before the valid approval"
        if is_scheduled(self.initial):
            return f"event {self.id} has not started or ended yet"
        return f"event {self.id} had already started"


class SharedApproval(msgspec.Struct, kw_only=True):
    """One approval with two StartRequests: what became of the event that it named second."""

    first_is_unknown: bool
    """Whether the first id is unknown to the endpoint, which may then refuse the whole approval."""
    second_id: str
    response: ResponseOrError
    is_pending: bool = False
    """Whether the second event stayed Scheduled, although the approval was accepted."""
    started_alone: bool = False
    """Whether the second event, while pending, started at once after an approval of its own."""


def is_scheduled(event: EventFields | None) -> bool:
    """Return whether the event is Scheduled."""
    return event is not None and event.get("EventStatus") == "Scheduled"


def is_started(event: EventFields | None) -> bool:
    """Return whether the event is Started."""
    return event is not None and event.get("EventStatus") == "Started"


EVENTS_QUERY = Request()


class ServiceUnavailable(RequestFailed):
    """The response asks the client to retry later."""

    template = "the service is unavailable, even after retries: {problem}"
    response: Response


class Probe:
    """Sends requests to an endpoint, within a rate limit and with retries."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        pace: Pace,
        timeout: float,
        burst: bool = False,
        watch_seconds: float = 0.0,
        approves: Iterable[str] = (),
    ) -> None:
        self.endpoint = endpoint
        self.pace = pace
        self.timeout = timeout
        self.burst = burst
        self.burst_responses: list[Response] | None = None
        self.watch_seconds = watch_seconds
        """How long to watch Scheduled events; 0 if not at all."""
        self.approves = frozenset(id_.upper() for id_ in approves)
        """The events that the kit approves, so that they may start at any time."""
        self.approval: ApprovalTrace | None = None
        self.exchanges: list[str] = []
        """Requests and responses since the list was last cleared, as text."""
        self.rate_limit_response: Response | None = None
        self.later_documents: list[Document] = []
        """Documents that were read after the approval."""
        self._backoff_left = TOTAL_BACKOFF
        self._cache: dict[Request, Response | RequestFailed] = {}
        self._documents: dict[str, Document] | CheckSkipped | None = None
        self.document_pairs: list[tuple[Document, Document]] = []
        """Pairs of documents of the newest version, read shortly after each other."""

    def send_once(self, request: Request) -> Response:
        """Send a request, or return the cached response."""
        if request not in self._cache:
            return self.send(request)
        return self._cached_response(request)

    def send(self, request: Request, *, within: float | None = None) -> Response:
        """Send a request, even if a response is cached."""
        timeout = self.timeout if within is None else within
        try:
            self._cache[request] = self.with_retries(lambda connection: self._exchange(connection, request, timeout))
        except RequestFailed as error:
            self._cache[request] = error
        return self._cached_response(request)

    def send_first(self) -> Response:
        """Send the first query; if it enables Scheduled Events, the responses may be slow, or empty at first."""
        response = self.send(EVENTS_QUERY, within=max(FIRST_RESPONSE_TIMEOUT, self.timeout))
        for _ in range(MAX_EMPTY_RESPONSES):
            if response.status != 200 or response.body.strip():
                break
            self.pace.pause(1.0)
            response = self.send(EVENTS_QUERY)
        return response

    def connect(self, *, is_paced: bool = True) -> RawConnection:
        """Open a connection for the next request; `is_paced=False` does not wait for its turn."""
        if is_paced:
            self.pace.wait()
        else:
            self.pace.requests += 1
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
        """Read the next response; raise ServiceUnavailable if its status is one of RETRY_STATUSES."""
        response = connection.read_response(request, within=within)
        if response.status == TOO_MANY_REQUESTS:
            self.rate_limit_response = self.rate_limit_response or response
        if response.status in RETRY_STATUSES:
            raise ServiceUnavailable(str(response), response)
        return response

    def note_exchange(self, request: Request | str, outcome: Response | RequestFailed) -> None:
        """Add a request and its response to `exchanges`."""
        self.exchanges.append(f"{request} → {outcome}")

    def documents(self) -> Mapping[str, Document]:
        """Return the document in every readable version, all with the same events."""
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
            raise CheckSkipped(f"no document in version {version}")
        return found

    def read_document(self, version: str = NEWEST_VERSION) -> Document:
        """Read the current document."""
        return read_document(self.send(query(version)))

    def events(
        self, condition: Callable[[EventFields], bool] = lambda _: True, *, what: str = "event"
    ) -> list[EventFields]:
        """Return all events seen in the newest version that meet the condition; raise CheckSkipped without any."""
        found = [
            event
            for document in (self.document(), *self.later_documents)
            for event in document.events
            if condition(event)
        ]
        if not found:
            raise CheckSkipped(f"the document has no {what}")
        return found

    def expect_not_modified(self, if_none_match: Callable[[str], str], *, target: str | None = None) -> Response:
        """Send a conditional query for the unchanged document, and return the 304."""
        for _ in range(3):
            before = self.send(EVENTS_QUERY)
            request = conditional(if_none_match(etag(before)), target)
            response = self.send(request)
            if response.status == NOT_MODIFIED:
                return response
            if self.send(EVENTS_QUERY).body == before.body:
                raise Mismatch(f"the document has not changed, but the response is {response.status}")
        raise CheckSkipped("the document changes too often")

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
        # These responses must not have a body. Read what the endpoint sends nevertheless.
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
        raise CheckSkipped("the events changed between the requests")

    def _readable_documents(self) -> list[tuple[str, Document]]:
        found = []
        for version in VERSIONS:
            try:
                found.append((version, read_document(self.send(query(version)))))
            except (CheckSkipped, RequestFailed):
                continue
        return found


def query(version: str) -> Request:
    """Return a request for the document in a version."""
    return Request(target=f"{EVENTS_PATH}?api-version={version}")


def conditional(if_none_match: str, target: str | None = None) -> Request:
    """Return a conditional request for the document."""
    return Request(
        target=target or EVENTS_QUERY.target, headers=(*EVENTS_QUERY.headers, ("If-None-Match", if_none_match))
    )


def etag(response: Response) -> str:
    """Return the ETag of a response; raise CheckSkipped without one."""
    if not (found := response.header("etag")):
        raise CheckSkipped("the response has no ETag")
    return found


def _backoff(response: Response, attempt: int) -> float:
    """Return the backoff in seconds: the Retry-After of the response, otherwise growing with each attempt."""
    retry_after = response.header("retry-after") or ""
    is_given = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 9
    return min(float(retry_after), LONGEST_PAUSE) if is_given else pause_after(attempt + 1, FIRST_PAUSE, LONGEST_PAUSE)
