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
"""What is shown of a request's body at the most."""

RESPONSE_BYTES = 65_536
"""What is shown of an answer's body at the most."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a VM. Who observes is told of it when it is answered; where that takes a while, also when it came.

    Both times it has the same number, and numbers grow in the order in which requests came. `status` None: there is no
    answer yet, and if nothing more is told, there never was one. `at` and `answered_at` are of the monotonic clock,
    `wall` is when it arrived, by the service's clock.
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
    """The events that a POST approves, in its order and in upper case; they are approved only if its status is 200."""
    body: bytes = b""
    """The request's body, or the beginning of it."""
    answered_at: float | None = None
    answer: bytes = b""
    """The answer's body as it was sent, or the beginning of it."""


Observer = Callable[[Observed], None]
"""Is told of every request, on the loop of the service: it must be quick. What it raises is logged."""


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
        """See the body."""
        ids = parse_approval(body) if self._observed.method == "POST" else ()
        approved = () if isinstance(ids, ErrorResponse) else ids
        self._observed = msgspec.structs.replace(self._observed, body=body[:BODY_BYTES], approved=approved)

    def report_waiting(self) -> None:
        """Tell that the request has come, and that its answer has not."""
        self._report(self._observed)

    def report_response(self, status: int, sent: bytes) -> None:
        """Tell what it was answered; `sent` has the head too."""
        body = sent.partition(b"\r\n\r\n")[2][:RESPONSE_BYTES]
        self._report(msgspec.structs.replace(self._observed, status=status, answered_at=time.monotonic(), answer=body))

    def _report(self, observed: Observed) -> None:
        """Tell of a VM's request; of others there is nothing to be said."""
        if not observed.vm:
            return
        try:
            self._observe(observed)
        except Exception:
            log.exception("the observer has failed")


class RequestObserver:
    """Reports every request to one observer callback."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._numbers = itertools.count(1)

    def start_trace(self, peer: Peer, head: RequestHead) -> RequestTrace:
        """See a request come."""
        return RequestTrace(self._observer, self._clock, next(self._numbers), peer, head)
