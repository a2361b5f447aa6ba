"""Registry: keeps names, addresses and ids unique over records, although several processes change them.

Compare-and-swap on a record does not notice that another process gives the same address to a VM of another record. So a
change of this kind is saved under a term of the lease `registry`, and its guard refuses it once another process has
begun a term. A process that begins a term waits until its replica has everything that was saved before, then decides.
Within a process, claims do the rest.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from forewarn.clock import Clock
from forewarn.core.backoff import backoff
from forewarn.fleet.duty import no_guards
from forewarn.fleet.errors import LeaseLost
from forewarn.fleet.lease_record import LeaseRecords
from forewarn.store.port import Guards, Lease

R = TypeVar("R")

REGISTRY = "registry"

MAX_ATTEMPTS = 50
"""How often a change is decided again because other processes make such changes too."""

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.1
"""The bounds of the pause in seconds before that; a random part of it keeps processes apart."""


class Registry:
    """The right of this process to make changes that must be unique over records."""

    def __init__(self, lease: Lease | None, records: LeaseRecords, clock: Clock) -> None:
        self._lease = lease
        self._records = records
        self._clock = clock
        self._lock = asyncio.Lock()
        self._term: int | None = None
        """The term of this process, once the replica has everything that was saved before it."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may make such changes too."""
        return self._lease is not None

    async def run(self, change: Callable[[Callable[[], Guards]], Awaitable[R]]) -> R:
        """Make a change: check what must be unique, and save with the given guards. It may be called repeatedly."""
        if self._lease is None:
            return await change(no_guards)
        pauses = backoff(FIRST_PAUSE, LONGEST_PAUSE)
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return await self._run_once(change)
            except LeaseLost:
                await asyncio.sleep(next(pauses) * random.uniform(0.5, 1))  # noqa: S311 - no secret
        return await self._run_once(change)

    async def _run_once(self, change: Callable[[Callable[[], Guards]], Awaitable[R]]) -> R:
        term = await self._begin_term()
        return await change(lambda: self._records.guards(REGISTRY, term))

    async def _begin_term(self) -> int:
        """Return the term of this process; begin one if another process has begun one since."""
        assert self._lease is not None  # noqa: S101 - without a lease there are no terms
        async with self._lock:
            known = self._records.find(REGISTRY)
            if known is None or known.term != self._term:
                taken = await self._records.take_over(
                    REGISTRY, holder=self._lease.holder, process=self._lease.process, now=self._clock.now()
                )
                self._term = taken.term
            return self._term
