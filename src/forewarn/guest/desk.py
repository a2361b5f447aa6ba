"""What all connections of a server share: the limits, the counters, the letterhead, and the second that it is."""

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from forewarn.clock import SystemClock
from forewarn.fleet.service import Fleet
from forewarn.guest.answers import Letterhead
from forewarn.guest.callers import Tallies, Visitor
from forewarn.guest.counters import Counters
from forewarn.guest.enabling import Enabling
from forewarn.guest.endpoint import Endpoint
from forewarn.guest.faults import Faults
from forewarn.guest.held import HeldRequests
from forewarn.guest.limits import Limits, affordable_connections
from forewarn.guest.observing import Lookout, Observer
from forewarn.guest.phases import patience
from forewarn.guest.striking import Mischief

NOTE_HELD_EVERY = 60
"""How often, in seconds, a held request counts as one that has just been made."""


class Impatient(Protocol):
    """A connection, as far as the desk knows it."""

    since: int
    """The second in which it began to wait."""
    patience: int
    """How many seconds it may wait."""

    def expire(self) -> None:
        """Wait no longer."""
        ...

    def finish(self) -> None:
        """Close as soon as everything that was asked is answered."""
        ...

    def abort(self) -> None:
        """Close now."""
        ...


class Desk:
    """The one place that connections turn to. It counts the seconds, by the monotonic clock, in `beats`."""

    def __init__(
        self,
        fleet: Fleet,
        limits: Limits,
        counters: Counters,
        *,
        unsupported_version_status: int,
        enable_delay: timedelta,
        faults: Faults | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._clock = fleet.clock
        self.note_request = fleet.record_request
        self.is_time_real = isinstance(fleet.clock, SystemClock)
        """Whether to look at the clock once a second is enough: a manual one can move by days between two beats."""
        self.limits = limits
        self.counters = counters
        self.letterhead = Letterhead(fleet.clock.now())
        self.tallies = Tallies()
        self.held = HeldRequests(fleet, counters, per_vm=limits.held_per_vm)
        self.enabling = Enabling(fleet, enable_delay)
        self.endpoint = Endpoint(fleet, self.held, self.enabling, unsupported_version_status=unsupported_version_status)
        self.mischief: Mischief | None = None
        """What answers wrongly on purpose; None: no fault is set."""
        self._faults = faults
        if faults is not None:
            faults.on_change = self._mind_faults
        self.lookout = None if observer is None else Lookout(observer, fleet.clock)
        """Who sees every request; None: nobody does."""
        self.rate = self.repeats = 0
        """How many requests a VM may make in a second, and how many of them may be answered as before without a look:
        as many, or none while there are faults."""
        self.limit_requests(limits.requests_per_second)
        self.patience = patience(limits)
        self.connections: set[Impatient] = set()
        self._listening = 0
        self._connection_limit = affordable_connections(limits.connections, listening=0)
        self.beats = 1
        self.is_closing = False
        self._is_empty = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether there are more connections than there may be."""
        return len(self.connections) > self._connection_limit

    def limit_requests(self, per_second: int | None) -> None:
        """Set how many requests a VM may make in a second."""
        self.rate = sys.maxsize if per_second is None else per_second
        self._mind_faults()

    def _mind_faults(self) -> None:
        if self._faults is not None and self._faults.are_set:
            self.mischief, self.repeats = Mischief(self._faults, self.endpoint, self.enabling), 0
        else:
            self.mischief, self.repeats = None, self.rate

    def note_listening(self, sockets: int) -> None:
        """Count sockets that have begun to listen, or, below zero, have ended: each leaves one connection less."""
        self._listening += sockets
        self._connection_limit = affordable_connections(self.limits.connections, listening=self._listening)

    def enter(self, connection: Impatient) -> None:
        """Count a connection."""
        self.connections.add(connection)
        self._is_empty.clear()
        self.counters.accepted += 1
        self.counters.connections = len(self.connections)

    def leave(self, connection: Impatient) -> None:
        """Count a connection no more."""
        self.connections.discard(connection)
        self.counters.connections = len(self.connections)
        if not self.connections:
            self._is_empty.set()

    def beat(self) -> None:
        """Let a second pass: renew the date, and see to those who have waited too long."""
        self.beats += 1
        self.renew_date()
        self.tallies.forget()
        if self.beats % NOTE_HELD_EVERY == 0:
            self.held.note()
        for connection in [one for one in self.connections if self.beats - one.since > one.patience]:
            connection.expire()

    def renew_date(self) -> None:
        """Have the answers to come bear the present date."""
        self.letterhead.renew(self._clock.now())

    def misdated(self, by: timedelta) -> Letterhead:
        """Return the letterhead of another time."""
        return Letterhead(self._clock.now() + by)

    def gone(self, visitor: Visitor) -> None:
        """Keep nothing waiting for a visitor who has ended the connection."""
        self.held.release(visitor)
        if self._faults is not None:
            self._faults.release(visitor)

    def close(self) -> None:
        """Answer what is held or delayed, and let every connection end with its present answer."""
        self.is_closing = True
        self.held.close()
        self.enabling.close()
        if self._faults is not None:
            self._faults.close()
        for connection in tuple(self.connections):
            connection.finish()

    async def wait_until_empty(self) -> None:
        """Wait until every connection has ended; those that take too long are cut off."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.shutdown_timeout.total_seconds()):
                await self._emptied()
        for connection in tuple(self.connections):
            connection.abort()
        await self._emptied()

    async def _emptied(self) -> None:
        if self.connections:
            await self._is_empty.wait()
