"""State shared by all connections: limits, counters, common response headers, current tick."""

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from forewarn.clock import SystemClock
from forewarn.fleet.guest_port import GuestFleet
from forewarn.guest.connection_state import connection_timeouts
from forewarn.guest.counters import Counters
from forewarn.guest.fault_injection import FaultInjector
from forewarn.guest.faults import Faults
from forewarn.guest.handler import EnableDelay, RequestHandler, Response
from forewarn.guest.identity import Caller, Peer
from forewarn.guest.limits import Limits, connection_limit
from forewarn.guest.long_poll import LongPolls
from forewarn.guest.observer import Observer, RequestObserver
from forewarn.guest.parser import RequestCache
from forewarn.guest.rate_limit import RateLimiter
from forewarn.guest.recorder import RequestRecorder
from forewarn.guest.responses import CommonHeaders
from forewarn.wire.preview import ResponsePreview, preview_document, scope_after_poll
from forewarn.wire.protocol import NEWEST_VERSION
from forewarn.wire.request import DocumentRequest

RECORD_LONG_POLLS_EVERY = 60
"""How often, in seconds, a long poll counts as a new request."""


class TimedConnection(Protocol):
    """A connection, as the server state uses it."""

    since: int
    """The tick at which the current state began."""
    timeout: int
    """How many seconds the current state may last."""

    def expire(self) -> None:
        """Handle the timeout."""
        ...

    def forget_request(self) -> None:
        """Parse the next request, even if its bytes are those of the last one."""
        ...

    def finish(self) -> None:
        """Close after pending requests are answered."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


class ServerState:
    """State that all connections share. `ticks` counts the seconds by the monotonic clock."""

    def __init__(
        self,
        fleet: GuestFleet,
        limits: Limits,
        counters: Counters,
        *,
        unsupported_version_status: int,
        enable_delay: timedelta,
        faults: Faults | None = None,
        observer: Observer | None = None,
        recorder: RequestRecorder | None = None,
    ) -> None:
        self._clock = fleet.clock
        self.record_request = fleet.last_seen.record_request
        self.is_real_time = isinstance(fleet.clock, SystemClock)
        """Whether reading the clock once a second is enough: a manual clock can jump by days between two ticks."""
        self.limits = limits
        self.counters = counters
        self.common_headers = CommonHeaders(fleet.clock.now())
        self.rate_limiter = RateLimiter()
        self.request_cache = RequestCache()
        self.long_polls = LongPolls[Response](fleet, counters, per_vm=limits.long_polls_per_vm)
        self.enable_delay = EnableDelay(fleet, enable_delay)
        self.handler = RequestHandler(
            fleet, self.long_polls, self.enable_delay, unsupported_version_status=unsupported_version_status
        )
        self.fault_injector: FaultInjector | None = None
        """Injects faults; None while no fault is active."""
        self._faults = faults
        if faults is not None:
            faults.on_change = self._apply_faults
        self._recorder = recorder
        self._observer = RequestObserver(observer, recorder, fleet.clock)
        self.observer = self._observer if self._observer.is_active else None
        """Reports requests; None while no VM is observed."""
        if recorder is not None:
            recorder.on_change = self._apply_recorder
        self.rate = self.cached_rate = 0
        """How many requests per second a VM may make, and how many of them may be answered from the cache: the same
        number, or none while faults are active."""
        self.set_request_rate(limits.requests_per_second)
        self.timeouts = connection_timeouts(limits)
        self.connections: set[TimedConnection] = set()
        self._listening_sockets = 0
        self._connection_limit = connection_limit(limits, listening=0)
        self.ticks = 1
        self.is_closing = False
        self._is_empty = asyncio.Event()

    def preview(self, caller: Caller) -> ResponsePreview:
        """Return what the VM gets if it polls now, in the newest version."""
        polled = caller._replace(scope=scope_after_poll(caller.scope, now=self._clock.now()))
        request = DocumentRequest(NEWEST_VERSION)
        if self.fault_injector is None:
            response = preview_document(polled.scope, request.version)
        else:
            response = self.fault_injector.preview(request, polled)
        return response._replace(delay=response.delay + self.enable_delay.of(caller))

    @property
    def is_full(self) -> bool:
        """Whether the connection limit is exceeded."""
        return len(self.connections) > self._connection_limit

    def set_request_rate(self, per_second: int | None) -> None:
        """Set the number of requests per second and VM; None: unlimited."""
        self.rate = sys.maxsize if per_second is None else per_second
        self._apply_faults()

    def _apply_faults(self) -> None:
        if self._faults is not None and self._faults.has_active:
            self.fault_injector, self.cached_rate = FaultInjector(self._faults, self.handler, self.enable_delay), 0
        else:
            self.fault_injector, self.cached_rate = None, self.rate

    def _apply_recorder(self) -> None:
        """Observe other VMs from now on: no connection repeats a response before it is known who sends the request."""
        self.observer = self._observer if self._observer.is_active else None
        for connection in self.connections:
            connection.forget_request()

    def count_listening_sockets(self, sockets: int) -> None:
        """Add to the number of listening sockets (negative: closed ones); each uses the open file of a connection."""
        self._listening_sockets += sockets
        self._connection_limit = connection_limit(self.limits, listening=self._listening_sockets)

    def add_connection(self, connection: TimedConnection) -> None:
        """Count a connection."""
        self.connections.add(connection)
        self._is_empty.clear()
        self.counters.accepted += 1
        self.counters.connections = len(self.connections)

    def remove_connection(self, connection: TimedConnection) -> None:
        """Stop counting a connection."""
        self.connections.discard(connection)
        self.counters.connections = len(self.connections)
        if not self.connections:
            self._is_empty.set()

    def tick(self) -> None:
        """Start a new second: renew the date, drop old rate counters, and expire connections that have timed out."""
        self.ticks += 1
        self.refresh_date()
        self.rate_limiter.drop_disconnected()
        if self.ticks % RECORD_LONG_POLLS_EVERY == 0:
            self.long_polls.record_requests()
        if self._recorder is not None:
            self._recorder.tick()
        for connection in [one for one in self.connections if self.ticks - one.since > one.timeout]:
            connection.expire()

    def refresh_date(self) -> None:
        """Update the date of future responses."""
        self.common_headers.refresh(self._clock.now())

    def shifted_headers(self, offset: timedelta) -> CommonHeaders:
        """Return the common headers with a shifted date."""
        return CommonHeaders(self._clock.now() + offset)

    def cancel_waits(self, peer: Peer) -> None:
        """End the long poll or delay of a peer that has closed the connection."""
        self.long_polls.release(peer)
        if self._faults is not None:
            self._faults.release(peer)

    def close(self) -> None:
        """Answer long polls and delayed requests, and close every connection after its current response."""
        self.is_closing = True
        self.long_polls.close()
        self.enable_delay.close()
        if self._faults is not None:
            self._faults.close()
        for connection in tuple(self.connections):
            connection.finish()

    async def wait_until_empty(self) -> None:
        """Wait until every connection has ended; abort those that take too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.shutdown_timeout.total_seconds()):
                await self._wait_empty()
        for connection in tuple(self.connections):
            connection.abort()
        await self._wait_empty()

    async def _wait_empty(self) -> None:
        if self.connections:
            await self._is_empty.wait()
