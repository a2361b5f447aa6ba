"""Bounded, thread-safe log of the requests that VMs sent to the guest endpoint."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from forewarn.client.document import Event, read_document
from forewarn.fleet.scopes import ScopeChange
from forewarn.guest.observer import Observed
from forewarn.wire.document_parser import InvalidDocument

T = TypeVar("T")

EVENTS_PATH = "/metadata/scheduledevents"

MAX_REQUESTS = 100_000
"""How many requests are remembered: a VM that asks once a second makes as many in a day."""

MAX_BYTES = 256 * 1024 * 1024
"""How large all their bodies and answers may be together."""


class RequestLog:
    """Remembers the requests of all VMs, in the order in which they came; of too many the oldest are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._changes = 0
        self._requests: dict[int, Observed] = {}
        self._bytes = 0
        self._vms: set[str] = set()
        self.dropped = 0
        """How many were dropped since anything was last forgotten."""

    def record(self, request: Observed) -> None:
        """Take note of a request that came, or of its answer."""
        with self._changed:
            self._vms.add(request.vm)
            previous = self._requests.get(request.number)
            self._bytes += _size(request) - (0 if previous is None else _size(previous))
            self._requests[request.number] = request
            while len(self._requests) > MAX_REQUESTS or (self._bytes > MAX_BYTES and len(self._requests) > 1):
                self._bytes -= _size(self._requests.pop(next(iter(self._requests))))
                self.dropped += 1
        self.notify()

    def clear(self) -> None:
        """Begin anew."""
        with self._changed:
            self._requests.clear()
            self._bytes = self.dropped = 0

    @property
    def vms(self) -> frozenset[str]:
        """Every VM that has ever asked, as `scope/name`."""
        with self._changed:
            return frozenset(self._vms)

    def observe(self, _: ScopeChange) -> None:
        """Have everybody who waits look again: a scope has changed."""
        self.notify()

    def notify(self) -> None:
        """Have everybody who waits look again."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def requests(self, vm: str | None = None) -> list[Observed]:
        """Return what was asked, by one VM, `scope/name`, or by all, as far as it was not dropped."""
        with self._changed:
            requests = sorted(self._requests.items())
        return [request for _, request in requests if vm in (None, request.vm)]

    def wait_for(self, find: Callable[[], T | None], timeout: float) -> T | None:
        """Return what `find` finds as soon as it finds something; None if it has not by then.

        It is called without the lock, so it may ask the service.
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
    """Tell whether the VM has asked for its events."""
    return request.method == "GET" and request.target.partition("?")[0].lower().rstrip("/") == EVENTS_PATH


def approved_ids(request: Observed) -> tuple[str, ...]:
    """Return the events that this request has approved, if it was let."""
    return request.approved if request.status == 200 else ()


def event_in_response(request: Observed, event: str) -> Event | None:
    """Return the event as the VM was told of it in the answer, if it was."""
    if not is_events_query(request) or request.status != 200:
        return None
    try:
        document = read_document(request.answer)
    except InvalidDocument:
        return None
    events = document.events if document is not None else ()
    return next((one for one in events if one.id.upper() == event.upper()), None)


def summarize(requests: list[Observed]) -> str:
    """Tell in a sentence or two what a VM has done."""
    if not requests:
        return "It has not asked for anything."
    last = requests[-1]
    answer = f"answered {last.status}" if last.status is not None else "not answered yet"
    number = f"{len(requests)} requests" if len(requests) > 1 else "one request"
    asked = f"It has made {number}, the last one {last.method} {last.target}, {answer}."
    approved = [id_ for request in requests for id_ in approved_ids(request)]
    return f"{asked} It has approved {', '.join(approved) or 'nothing'}."
