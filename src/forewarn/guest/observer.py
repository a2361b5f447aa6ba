"""Request observer: reports guest requests and their responses, for tests, exams and people who look at a VM.

It stores nothing. Who observes all VMs slows all of them down; who observes some does not slow down the others.
"""

import itertools
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

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

ObserveBytes = Callable[[Observed, bytes, bytes], None]
"""The same, with the bytes of request and response, if they are kept."""


class RequestTrace:
    """One request in flight, for the observer."""

    __slots__ = ("_observe", "_observed")

    def __init__(self, observe: ObserveBytes, clock: Clock, number: int, vm: str, head: RequestHead) -> None:
        self._observe = observe
        self._observed = Observed(
            number=number,
            vm=vm,
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

    def report_waiting(self, raw: bytes = b"") -> None:
        """Report that the request has arrived and waits for its response; `raw` has its bytes, if they are kept."""
        self._report(self._observed, raw, b"")

    def report_response(self, status: int, sent: bytes, raw: bytes = b"") -> None:
        """Report the response; `sent` includes its headers."""
        answered = msgspec.structs.replace(
            self._observed,
            status=status,
            answered_at=time.monotonic(),
            answer=sent.partition(b"\r\n\r\n")[2][:RESPONSE_BYTES],
        )
        self._report(answered, raw, sent if raw else b"")

    def _report(self, observed: Observed, raw: bytes, sent: bytes) -> None:
        try:
            self._observe(observed, raw, sent)
        except Exception:
            log.exception("internal error in the request observer")


class WatchedVms(Protocol):
    """An observer of some VMs."""

    keeps_bytes: bool
    """Whether it needs the bytes of requests and responses."""

    @property
    def is_active(self) -> bool:
        """Whether it observes any VM now."""
        ...

    def watches(self, vm: str) -> bool:
        """Return whether it observes a VM (`scope/name`)."""
        ...

    def record(self, seen: Observed, request: bytes, response: bytes) -> None:
        """Take the report of a request, with the bytes of request and response if they are kept."""
        ...


class RequestObserver:
    """Reports requests to an observer of all VMs and to one of some VMs, if there are such."""

    def __init__(self, observer: Observer | None, watched: WatchedVms | None, clock: Clock) -> None:
        self._observer = observer
        self._watched = watched
        self._clock = clock
        self._numbers = itertools.count(1)

    @property
    def is_active(self) -> bool:
        """Whether any request is reported."""
        return self._observer is not None or (self._watched is not None and self._watched.is_active)

    @property
    def keeps_bytes(self) -> bool:
        """Whether the bytes of requests are needed."""
        return self._watched is not None and self._watched.is_active and self._watched.keeps_bytes

    def observes(self, peer: Peer) -> bool:
        """Return whether the requests of a peer are reported."""
        return self._observer is not None or self._is_watched(_vm_name(peer))

    def start_trace(self, peer: Peer, head: RequestHead) -> RequestTrace | None:
        """Start the trace of a request of a known VM that is observed."""
        vm = _vm_name(peer)
        if not vm or not (self._observer is not None or self._is_watched(vm)):
            return None
        return RequestTrace(self._report, self._clock, next(self._numbers), vm, head)

    def _is_watched(self, vm: str) -> bool:
        return self._watched is not None and self._watched.watches(vm)

    def _report(self, seen: Observed, request: bytes, response: bytes) -> None:
        if self._observer is not None:
            self._observer(seen)
        if self._watched is not None and self._watched.watches(seen.vm):
            self._watched.record(seen, request, response)


def _vm_name(peer: Peer) -> str:
    """Return the VM of a peer (`scope/name`); empty if it is none."""
    caller = peer.identify()
    return f"{caller.view.id}/{caller.vm.name}" if isinstance(caller, Caller) else ""
