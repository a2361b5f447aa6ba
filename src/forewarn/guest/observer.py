"""Request observer: reports every guest request and its response to a callback, for tests and exams. Stores nothing."""

import itertools
import logging
import time
from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.clock import Clock
from forewarn.guest.identity import Caller, Peer
from forewarn.wire.approval import parse_approval
from forewarn.wire.error_responses import ErrorResponse
from forewarn.wire.request import RequestHead

log = logging.getLogger(__name__)

BODY_BYTES = 4096
"""Maximum size of the request body that is reported."""

RESPONSE_BYTES = 65_536
"""Maximum size of the response body that is reported."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a VM, reported when it is answered and, if the response has to wait, also when it arrives.

    Both reports have the same number, and numbers grow in order of arrival. `status` None: there is no response yet; if
    no second report follows, there never was one. `at` and `answered_at` are times of the monotonic clock, `wall` is
    the arrival by the service's clock.
    """

    number: int
    vm: str
    """`scope/name`."""
    at: float
    wall: datetime
    method: str
    target: str
    status: int | None = None
    approved: tuple[str, ...] = ()
    """The event ids in a POST, in order and in upper case; they are approved only if the status is 200."""
    body: bytes = b""
    """The request body, possibly truncated."""
    answered_at: float | None = None
    answer: bytes = b""
    """The response body as sent, possibly truncated."""


Observer = Callable[[Observed], None]
"""Called for every request on the service's event loop, so it must be fast. Its exceptions are logged."""


class RequestTrace:
    """One request in flight, for the observer."""

    __slots__ = ("_observe", "_observed")

    def __init__(self, observer: Observer, clock: Clock, number: int, peer: Peer, head: RequestHead) -> None:
        self._observe = observer
        caller = peer.identify()
        self._observed = Observed(
            number=number,
            vm=f"{caller.view.id}/{caller.vm.name}" if isinstance(caller, Caller) else "",
            at=time.monotonic(),
            wall=clock.now(),
            method=head.method,
            target=head.target,
        )

    def add_body(self, body: bytes) -> None:
        """Add the request body."""
        ids = parse_approval(body) if self._observed.method == "POST" else ()
        approved = () if isinstance(ids, ErrorResponse) else ids
        self._observed = msgspec.structs.replace(self._observed, body=body[:BODY_BYTES], approved=approved)

    def report_waiting(self) -> None:
        """Report that the request has arrived and waits for its response."""
        self._report(self._observed)

    def report_response(self, status: int, sent: bytes) -> None:
        """Report the response; `sent` includes its headers."""
        body = sent.partition(b"\r\n\r\n")[2][:RESPONSE_BYTES]
        self._report(msgspec.structs.replace(self._observed, status=status, answered_at=time.monotonic(), answer=body))

    def _report(self, observed: Observed) -> None:
        """Call the observer, if the caller is a known VM."""
        if not observed.vm:
            return
        try:
            self._observe(observed)
        except Exception:
            log.exception("internal error in the request observer")


class RequestObserver:
    """Reports every request to one observer callback."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._numbers = itertools.count(1)

    def start_trace(self, peer: Peer, head: RequestHead) -> RequestTrace:
        """Start the trace of a request."""
        return RequestTrace(self._observer, self._clock, next(self._numbers), peer, head)
