"""What VMs were seen to do at their endpoints, and waiting until they have done something."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from forewarn.client.document import Event, read_document
from forewarn.guest.observer import Observed
from forewarn.wire.document_parser import InvalidDocument

T = TypeVar("T")

EVENTS_PATH = "/metadata/scheduledevents"

MOST_REQUESTS = 100_000
"""How many requests are remembered: a VM that asks once a second makes as many in a day."""

MOST_BYTES = 256 * 1024 * 1024
"""How large all their bodies and answers may be together."""


class Witness:
    """Remembers the requests of all VMs, in the order in which they came; of too many the oldest are dropped."""

    def __init__(self) -> None:
        self._stirred = threading.Condition()
        self._stirs = 0
        self._seen: dict[int, Observed] = {}
        self._bytes = 0
        self._vms: set[str] = set()
        self.dropped = 0
        """How many were dropped since anything was last forgotten."""

    def note(self, seen: Observed) -> None:
        """Take note of a request that came, or of its answer."""
        with self._stirred:
            self._vms.add(seen.vm)
            before = self._seen.get(seen.number)
            self._bytes += _size(seen) - (0 if before is None else _size(before))
            self._seen[seen.number] = seen
            while len(self._seen) > MOST_REQUESTS or (self._bytes > MOST_BYTES and len(self._seen) > 1):
                self._bytes -= _size(self._seen.pop(next(iter(self._seen))))
                self.dropped += 1
        self.stir()

    def forget(self) -> None:
        """Begin anew."""
        with self._stirred:
            self._seen.clear()
            self._bytes = self.dropped = 0

    @property
    def vms(self) -> frozenset[str]:
        """Every VM that has ever asked, as `scope/name`."""
        with self._stirred:
            return frozenset(self._vms)

    def stir(self) -> None:
        """Have everybody who waits look again."""
        with self._stirred:
            self._stirs += 1
            self._stirred.notify_all()

    def requests(self, vm: str | None = None) -> list[Observed]:
        """Return what was asked, by one VM, `scope/name`, or by all, as far as it was not dropped."""
        with self._stirred:
            seen = sorted(self._seen.items())
        return [request for _, request in seen if vm in (None, request.vm)]

    def wait_for(self, look: Callable[[], T | None], timeout: float) -> T | None:
        """Return what `look` finds as soon as it finds something; None if it has not by then.

        It is called without the lock, so it may ask the service.
        """
        end = time.monotonic() + timeout
        while True:
            stirs = self._stirs
            if (found := look()) is not None:
                return found
            if not self._wait(stirs, end - time.monotonic()):
                return look()

    def _wait(self, stirs: int, timeout: float) -> bool:
        with self._stirred:
            return self._stirred.wait_for(lambda: self._stirs != stirs, max(0.0, timeout))


def _size(seen: Observed) -> int:
    return len(seen.body) + len(seen.answer)


def asks_for_events(request: Observed) -> bool:
    """Tell whether the VM has asked for its events."""
    return request.method == "GET" and request.target.partition("?")[0].lower().rstrip("/") == EVENTS_PATH


def approved_ids(request: Observed) -> tuple[str, ...]:
    """Return the events that this request has approved, if it was let."""
    return request.approved if request.status == 200 else ()


def told_of(request: Observed, event: str) -> Event | None:
    """Return the event as the VM was told of it in the answer, if it was."""
    if not asks_for_events(request) or request.status != 200:
        return None
    try:
        document = read_document(request.answer)
    except InvalidDocument:
        return None
    events = document.events if document is not None else ()
    return next((one for one in events if one.id.upper() == event.upper()), None)


def summary(requests: list[Observed]) -> str:
    """Tell in a sentence or two what a VM has done."""
    if not requests:
        return "It has not asked for anything."
    last = requests[-1]
    answer = f"answered {last.status}" if last.status is not None else "not answered yet"
    number = f"{len(requests)} requests" if len(requests) > 1 else "one request"
    asked = f"It has made {number}, the last one {last.method} {last.target}, {answer}."
    approved = [id_ for request in requests for id_ in approved_ids(request)]
    return f"{asked} It has approved {', '.join(approved) or 'nothing'}."
