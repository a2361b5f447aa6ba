"""Client flows without I/O (sans-I/O): which requests to send, when to poll and retry, and how to read responses.

Each public method returns a flow: a generator that yields effects and is sent their results (`effects`). Both clients
run the same flows. From the outside in:

    watch                              polls without end and yields changes
    document, approve, name            send one request, with retries
      _retry                           retries for a while after a transient error
        _poll, _post, _fetch_name      send one request and read the response
          _send_with_version_fallback  falls back to an api-version that the service knows
            _send                      applies the timeout and raises transport errors"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from forewarn.client.changes import Change, compare_events
from forewarn.client.document import Document, Event, event_key, read_document
from forewarn.client.effects import Flow, Log, Request, Response, Send, Sleep, T, Yield
from forewarn.client.errors import ClientError, NoName, NotAnEvent, NotUnderstood, NoVersion
from forewarn.client.responses import (
    EVENTS_NEWEST_FIRST,
    INSTANCE_VERSION,
    etag_of,
    offered_wait,
    refuses_version,
    response_error,
    versions_to_try,
    vm_name_in,
)
from forewarn.client.retry import retry_pause, retry_window
from forewarn.wire.approval import encode_approval
from forewarn.wire.document_parser import InvalidDocument
from forewarn.wire.protocol import MAX_WAIT

EVENTS = "/metadata/scheduledevents"
INSTANCE_DOCUMENT = "/metadata/instance"

DISABLED_AFTER = 24 * 3600.0
"""After this many seconds without a request, the service disables the scope; its next response may be slow again."""

OLD_VERSION_LIFETIME = 3600.0
"""How many seconds to use an older api-version before trying the newest again: older versions hide whole event types,
and the service may have been upgraded."""

LONG_POLL_SPACING = 0.25
"""Minimum interval, in seconds, between long polls that each return a change: the rate limit is five requests per
second for the whole VM, and other programs in it poll too."""


class FlowOptions(msgspec.Struct, frozen=True):
    """Options of a client, all in seconds. `wait` is the longest long poll, if the service offers long polls."""

    timeout: float = 10.0
    first_timeout: float = 130.0
    interval: float = 1.0
    wait: int = MAX_WAIT
    retry_for: float | None = None

    def __post_init__(self) -> None:
        if not (self.timeout > 0 and self.first_timeout > 0):
            raise ValueError("timeout and first_timeout must be greater than 0 seconds")
        if not (0 < self.interval < math.inf):
            raise ValueError("interval must be finite and greater than 0 seconds")
        if self.retry_for is not None and not self.retry_for >= 0:
            raise ValueError("retry_for must be at least 0 seconds")
        if not (0 <= self.wait <= MAX_WAIT):
            raise ValueError(f"wait must be between 0 and {MAX_WAIT} seconds")


class PollResult(NamedTuple):
    """The result of a poll: a document, if the service sent one, and the parameters of the next poll."""

    document: Document | None
    etag: str | None
    wait: int


FIRST_POLL = PollResult(None, None, 0)


class ClientFlows:
    """The flows of a client of one service. They may run concurrently, in any threads."""

    def __init__(
        self,
        endpoint: str,
        settings: FlowOptions,
        *,
        name: str | None,
        monotonic: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self.endpoint = endpoint
        self.trouble: ClientError | None = None
        self._settings = settings
        self._name = name
        self._monotonic = monotonic
        self._chance = chance
        self._version: str | None = None
        self._version_found_at = 0.0
        self._answered_at: float | None = None
        self._started: frozenset[str] = frozenset()

    def watch(self, *, mine: bool, since: Document | None) -> Flow[None]:
        """Yield every change since the document, without end; errors are retried."""
        seen, result, failures = since or Document(), FIRST_POLL, 0
        while True:
            began_at = self._monotonic()
            try:
                name = (yield from self._own_name()) if mine else None
                result = yield from self._poll(result)
            except ClientError as error:
                # The next response may come from another service, for which this ETag means nothing.
                result, failures = FIRST_POLL, failures + 1
                self.trouble = error
                yield Sleep(retry_pause(error, failures, self._chance()), error)
                continue
            self.trouble, failures = None, 0
            before, seen = seen, result.document or seen
            if changes := _changes(before, seen, name):
                yield Yield(changes)
            # Poll again early only with a long poll that returned a change.
            spacing = LONG_POLL_SPACING if _long_poll_wait(result) and seen != before else self._settings.interval
            if (pause := began_at + spacing - self._monotonic()) > 0:
                yield Sleep(pause)

    def document(self, retry_for: float | None) -> Flow[Document]:
        """Get the document once."""
        result = yield from self._retry(lambda: self._poll(FIRST_POLL), retry_for)
        return result.document or Document()

    def approve(self, events: Iterable[Event | str], retry_for: float | None) -> Flow[tuple[str, ...]]:
        """Approve all events or none; return the ids. Events that have started are left out: they need no approval.

        Approvals are idempotent, so the request can be retried.
        """
        ids = []
        for event in events:
            id_ = _id(event)
            if (isinstance(event, Event) and event.is_started) or id_.upper() in self._started:
                yield Log(f"event {id_} has started: it needs no approval, and none is sent")
            else:
                ids.append(id_)
        if ids:
            body = encode_approval(ids)
            yield from self._retry(lambda: self._post(body), retry_for)
        return tuple(ids)

    def name(self, retry_for: float | None) -> Flow[str]:
        """Get the resource name of this VM."""
        return (yield from self._retry(self._own_name, retry_for))

    def _retry(self, request: Callable[[], Flow[T]], retry_for: float | None) -> Flow[T]:
        began_at, failures = self._monotonic(), 0
        limit = self._settings.retry_for if retry_for is None else retry_for
        while True:
            try:
                found = yield from request()
            except ClientError as error:
                failures += 1
                self.trouble = error
                pause = retry_pause(error, failures, self._chance())
                if self._monotonic() + pause > began_at + retry_window(error, limit):
                    raise
                yield Sleep(pause, error)
            else:
                self.trouble = None
                return found

    def _poll(self, previous: PollResult) -> Flow[PollResult]:
        if self._monotonic() - self._version_found_at > OLD_VERSION_LIFETIME:
            self._version = None
        first = () if self._version is None else (self._version,)
        versions = tuple(dict.fromkeys((*first, *EVENTS_NEWEST_FIRST)))
        response = yield from self._request_events(
            lambda version: _poll_request(version, previous), versions, wait=_long_poll_wait(previous)
        )
        wait = offered_wait(response, self._settings.wait)
        if response.status == 304:
            return PollResult(None, previous.etag, wait)
        try:
            document = read_document(response.body)
        except InvalidDocument as error:
            raise NotUnderstood(self.endpoint, str(error)) from error
        if document is not None:
            self._started = frozenset(event_key(event) for event in document.events if event.is_started)
        return PollResult(document, None if document is None else etag_of(response), wait)

    def _post(self, body: bytes) -> Flow[None]:
        # The service has answered in this version, so a 404 means that the event does not exist, in any version.
        known = self._version
        versions = EVENTS_NEWEST_FIRST if known is None else (known,)
        yield from self._request_events(lambda version: _approval_request(version, body), versions)

    def _own_name(self) -> Flow[str]:
        """Get the name, and cache it: it does not change while the VM runs."""
        if self._name is None:
            self._name = yield from self._fetch_name()
        return self._name

    def _fetch_name(self) -> Flow[str]:
        try:
            _, response = yield from self._send_with_version_fallback(
                _instance_request, (INSTANCE_VERSION,), self._settings.timeout
            )
        except NoVersion as error:
            raise NoName(self.endpoint, f"status {error.status}") from error
        return vm_name_in(self.endpoint, response)

    def _request_events(
        self, build_request: Callable[[str], Request], versions: tuple[str, ...], *, wait: int = 0
    ) -> Flow[Response]:
        try:
            version, response = yield from self._send_with_version_fallback(
                build_request, versions, self._socket_timeout() + wait
            )
        except ClientError as error:
            # A refusal comes from the same service; after any other error another service may answer next.
            if error.is_passing or isinstance(error, NoVersion):
                self._version = None
            raise
        self._answered_at = self._monotonic()
        if version != self._version:
            self._version, self._version_found_at = version, self._answered_at
        return response

    def _socket_timeout(self) -> float:
        """Return how long the response may take: the first one after enabling the scope takes up to two minutes."""
        is_first = self._answered_at is None or self._monotonic() - self._answered_at > DISABLED_AFTER
        return self._settings.first_timeout if is_first else self._settings.timeout

    def _send_with_version_fallback(
        self, build_request: Callable[[str], Request], known: tuple[str, ...], timeout: float
    ) -> Flow[tuple[str, Response]]:
        """Send the request in the first known version, else in one that the service knows; return both."""
        version = known[0]
        response = yield from self._send(build_request(version), timeout)
        others = iter(versions_to_try(known, version, response) if refuses_version(response) else ())
        while refuses_version(response) and (other := next(others, None)) is not None:
            version = other
            response = yield from self._send(build_request(version), timeout)
        if (error := response_error(self.endpoint, build_request(version), response)) is not None:
            raise error
        return version, response

    def _send(self, request: Request, timeout: float) -> Flow[Response]:
        reply = yield Send(request, timeout)
        if isinstance(reply, Response):
            return reply
        if reply is None:
            raise TypeError("the reply to Send must be a Response or a Failure")
        raise reply.kind(self.endpoint, reply.reason)


def _changes(before: Document, after: Document, name: str | None) -> tuple[Change, ...]:
    if name is not None:
        before, after = before.affecting(name), after.affecting(name)
    return compare_events(before.events, after.events)


def _long_poll_wait(previous: PollResult) -> int:
    """Return the `wait` of the next poll, in seconds; 0 without an ETag, which a long poll needs."""
    return 0 if previous.etag is None else previous.wait


def _poll_request(version: str, previous: PollResult) -> Request:
    wait = _long_poll_wait(previous)
    target = f"{EVENTS}?api-version={version}" + (f"&wait={wait}" if wait else "")
    return Request("GET", target, () if previous.etag is None else (("If-None-Match", previous.etag),))


def _approval_request(version: str, body: bytes) -> Request:
    return Request("POST", f"{EVENTS}?api-version={version}", (("Content-Type", "application/json"),), body)


def _instance_request(version: str) -> Request:
    return Request("GET", f"{INSTANCE_DOCUMENT}?api-version={version}&format=json")


def _id(event: object) -> str:
    id_ = event.id if isinstance(event, Event) else event
    # Event ids are ASCII; other text may not even be encodable as JSON.
    if not isinstance(id_, str) or not id_ or not id_.isascii():
        raise NotAnEvent(event)
    return id_
