"""The clock lease: which of several processes starts due events and runs campaigns, and the guard of what it saves.

A process that is the only one on its store has no lease, and its saves need no guard. With a wrong clock a process
neither takes the lease nor keeps it (`fleet.clock_offset`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from forewarn.clock import Clock
from forewarn.core.backoff import backoff
from forewarn.fleet.clock_offset import ClockOffset
from forewarn.fleet.errors import SAVE_ERRORS, LeaseLost
from forewarn.fleet.lease_record import LeaseRecords
from forewarn.store.port import NO_GUARDS, Guards, Lease

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""The pauses in seconds after a term could not begin, in which another process can take the lease."""


class ClockLease:
    """The lease of this process, and its current term."""

    def __init__(
        self,
        lease: Lease | None,
        records: LeaseRecords,
        clock: Clock,
        offset: ClockOffset | None = None,
    ) -> None:
        self._lease = lease
        self._offset = offset
        self._records = records
        self._clock = clock
        self._term: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process may act by time now."""
        return self._lease is None or (self._term is not None and self._lease.is_valid and self.may_hold)

    @property
    def may_hold(self) -> bool:
        """Whether the clock of this process lets it hold the lease."""
        return self._offset is None or self._offset.is_usable

    def guards(self) -> Guards:
        """Return the guard of a save that rests on the lease; raise LeaseLost if this process cannot rely on it."""
        if self._lease is None:
            return NO_GUARDS
        if self._term is None or not self._lease.is_valid:
            raise LeaseLost(f"this process does not hold the lease {self._lease.name}")
        if self._offset is not None and not self._offset.is_usable:
            raise LeaseLost(self._offset.problem() or "the clock of this process is wrong")
        return self._records.guards(self._lease.name, self._term)

    async def begin(self) -> None:
        """Wait for the lease and begin a term; return when the replica has everything that was saved before it."""
        if self._lease is None:
            return
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while self._term is None:
            if self._offset is not None:
                await self._offset.usable.wait()
            await self._lease.claim()
            if not self.may_hold:  # it may have waited for the lease for long
                await self._give_back(self._lease)
                continue
            try:
                term = await self._records.take_over(
                    self._lease.name, holder=self._lease.holder, process=self._lease.process, now=self._clock.now()
                )
            except SAVE_ERRORS as error:
                log.warning("could not begin a term of the lease %s, trying again: %s", self._lease.name, error)
                await self._lease.release()
                await asyncio.sleep(next(pauses))
                continue
            self._term = term.term
            log.info("this process holds the lease %s, term %d", self._lease.name, term.term)

    async def hold(self, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
        """Call `stop` whenever the lease is lost, and `start` when it is held again. Does not return."""
        if self._lease is None:
            return
        while True:
            if self._term is None:
                await self.begin()
                await start()
            await self._wait_lost(self._lease)
            log.warning("this process does not hold the lease %s any more", self._lease.name)
            await stop()
            self._term = None
            await self._give_back(self._lease)

    async def _wait_lost(self, lease: Lease) -> None:
        """Return when the lease is lost, or the clock is wrong."""
        waits = [asyncio.ensure_future(lease.lost.wait())]
        if self._offset is not None:
            waits.append(asyncio.ensure_future(self._offset.unusable.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _give_back(self, lease: Lease) -> None:
        """Let another process take over, if there can be one."""
        if lease.is_shared and not lease.lost.is_set():
            await lease.release()
