"""Bounded, thread-safe log of the requests that VMs sent to the guest endpoint."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from forewarn.client.document import Event, read_document
from forewarn.fleet.scopes import ScopeChange
from forewarn.guest.observer import Observed, Observer
from forewarn.wire.document_parser import InvalidDocument

T = TypeVar("T")

EVENTS_PATH = "/metadata/scheduledevents"

MAX_REQUESTS = 100_000
"""How many requests the log keeps: about a day of one VM that polls once a second."""

MAX_BYTES = 256 * 1024 * 1024
"""The limit for the total size of their bodies and responses."""


class RequestLog:
    """The requests of all VMs, in order of arrival. Above the limits, the oldest are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._changes = 0
        self._requests: dict[int, Observed] = {}
        self._bytes = 0
        self._vms: set[str] = set()
        self.observers: list[Observer] = []
        """Called with each request, in the thread that records it and before its response is sent."""
        self.dropped = 0
        """How many requests were dropped since the log was last cleared."""

    def record(self, request: Observed) -> None:
        """Add a request, or replace it by the same request with its response."""
        with self._changed:
            self._vms.add(request.vm)
            previous = self._requests.get(request.number)
            self._bytes += _size(request) - (0 if previous is None else _size(previous))
            self._requests[request.number] = request
            while len(self._requests) > MAX_REQUESTS or (self._bytes > MAX_BYTES and len(self._requests) > 1):
                self._bytes -= _size(self._requests.pop(next(iter(self._requests))))
                self.dropped += 1
        for observer in self.observers:
            observer(request)
        self.notify()

    def clear(self) -> None:
        """Remove all requests."""
        with self._changed:
            self._requests.clear()
            self._bytes = self.dropped = 0

    @property
    def vms(self) -> frozenset[str]:
        """Every VM that has sent a request, as `scope/name`; `clear` keeps them."""
        with self._changed:
            return frozenset(self._vms)

    def observe(self, _: ScopeChange) -> None:
        """Wake all waiting callers because a scope has changed."""
        self.notify()

    def notify(self) -> None:
        """Wake all waiting callers, which then look for their result again."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def requests(self, vm: str | None = None) -> list[Observed]:
        """Return the kept requests of one VM (`scope/name`) or of all VMs."""
        with self._changed:
            requests = sorted(self._requests.items())
        return [request for _, request in requests if vm in (None, request.vm)]

    def wait_for(self, find: Callable[[], T | None], timeout: float) -> T | None:
        """Return the first result of `find` that is not None, or None after the timeout.

        `find` is called without the lock, so it may send requests to the service.
        """
        deadline = time.monotonic() + timeout
        while True:
            changes = self._changes
            if (found := find()) is not None:
                return found
            if not self._wait(changes, deadline - time.monotonic()):
                return find()

    def _wait(self, changes: int, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._changes != changes, max(0.0, timeout))


def _size(request: Observed) -> int:
    return len(request.body) + len(request.answer)


def is_events_query(request: Observed) -> bool:
    """Return whether the request is a poll of the VM's events."""
    return request.method == "GET" and request.target.partition("?")[0].lower().rstrip("/") == EVENTS_PATH


def approved_ids(request: Observed) -> tuple[str, ...]:
    """Return the ids of the events that the request approved, if the service accepted it."""
    return request.approved if request.status == 200 else ()


def event_in_response(request: Observed, event: str) -> Event | None:
    """Return the event as the response showed it, or None."""
    if not is_events_query(request) or request.status != 200:
        return None
    try:
        document = read_document(request.answer)
    except InvalidDocument:
        return None
    events = document.events if document is not None else ()
    return next((one for one in events if one.id.upper() == event.upper()), None)


def summarize(requests: list[Observed]) -> str:
    """Describe the requests of a VM in a sentence or two."""
    if not requests:
        return "It has sent no request."
    last = requests[-1]
    answer = f"answered {last.status}" if last.status is not None else "not answered yet"
    number = f"{len(requests)} requests" if len(requests) > 1 else "one request"
    asked = f"It has sent {number}, the last one {last.method} {last.target}, {answer}."
    approved = [id_ for request in requests for id_ in approved_ids(request)]
    return f"{asked} It has approved {', '.join(approved) or 'nothing'}."
