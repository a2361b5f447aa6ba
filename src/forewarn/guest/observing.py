"""Watching what VMs ask: every request as it came, and what it was answered. Nothing is kept here."""

import itertools
import logging
import time
from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.clock import Clock
from forewarn.guest.callers import Caller, Visitor
from forewarn.wire.approval import parse_approval
from forewarn.wire.error_responses import ErrorResponse
from forewarn.wire.request import RequestHead

log = logging.getLogger(__name__)

BODY_BYTES = 4096
"""What is shown of a request's body at the most."""

ANSWER_BYTES = 65_536
"""What is shown of an answer's body at the most."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a VM. Who observes is told of it when it is answered; where that takes a while, also when it came.

    Both times it has the same number, and numbers grow in the order in which requests came. `status` None: there is no
    answer yet, and if nothing more is told, there never was one. `at` and `answered_at` are of the monotonic clock,
    `wall` is when it came by the service's clock.
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


class Sight:
    """One request while it is under way, for the observer."""

    __slots__ = ("_observe", "_seen")

    def __init__(self, observer: Observer, clock: Clock, number: int, visitor: Visitor, head: RequestHead) -> None:
        self._observe = observer
        caller = visitor.recognise()
        self._seen = Observed(
            number=number,
            vm=f"{caller.view.id}/{caller.vm.name}" if isinstance(caller, Caller) else "",
            at=time.monotonic(),
            wall=clock.now(),
            method=head.method,
            target=head.target,
        )

    def take_body(self, body: bytes) -> None:
        """See the body."""
        ids = parse_approval(body) if self._seen.method == "POST" else ()
        approved = () if isinstance(ids, ErrorResponse) else ids
        self._seen = msgspec.structs.replace(self._seen, body=body[:BODY_BYTES], approved=approved)

    def wait(self) -> None:
        """Tell that the request has come, and that its answer has not."""
        self._tell(self._seen)

    def answer(self, status: int, sent: bytes) -> None:
        """Tell what it was answered; `sent` has the head too."""
        body = sent.partition(b"\r\n\r\n")[2][:ANSWER_BYTES]
        self._tell(msgspec.structs.replace(self._seen, status=status, answered_at=time.monotonic(), answer=body))

    def _tell(self, seen: Observed) -> None:
        """Tell of a VM's request; of others there is nothing to be said."""
        if not seen.vm:
            return
        try:
            self._observe(seen)
        except Exception:
            log.exception("the observer has failed")


class Lookout:
    """Sees every request for one observer."""

    def __init__(self, observer: Observer, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._numbers = itertools.count(1)

    def see(self, visitor: Visitor, head: RequestHead) -> Sight:
        """See a request come."""
        return Sight(self._observer, self._clock, next(self._numbers), visitor, head)
