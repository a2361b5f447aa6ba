"""Health check (readiness): whether the service can do its work, and if not, why.

Results are cached, so frequent checks are cheap.
"""

import asyncio
from collections.abc import Callable

from forewarn.fleet.metrics import MetricsStore
from forewarn.store.port import StoreError

RECENT_WRITE = 5.0
"""How long, in seconds, a successful write counts as proof that the store can write."""

STORE_TIMEOUT = 5.0
"""How long, in seconds, to wait for the store."""


class HealthCheck:
    """Checks whether the store can write, and every check that was added."""

    def __init__(self, store: MetricsStore) -> None:
        self._store = store
        self._checks: list[Callable[[], str | None]] = []
        self._limitations: list[Callable[[], str | None]] = []
        self._store_check: asyncio.Future[str | None] | None = None

    def add_check(self, check: Callable[[], str | None]) -> None:
        """Add a check: a function that returns the problem as a sentence, or None."""
        self._checks.append(check)

    def add_limitation(self, check: Callable[[], str | None]) -> None:
        """Add a check for a problem of single VMs, with which the service is ready nevertheless."""
        self._limitations.append(check)

    def limitations(self) -> tuple[str, ...]:
        """Return the problems with which the service is ready nevertheless."""
        return tuple(problem for check in self._limitations if (problem := check()) is not None)

    async def problems(self) -> tuple[str, ...]:
        """Return the problems of the service; empty if it is ready."""
        problems = [await self._store_problem(), *(check() for check in self._checks)]
        return tuple(problem for problem in problems if problem is not None)

    async def _store_problem(self) -> str | None:
        wrote_at = self._store.last_write_at
        if wrote_at is not None and asyncio.get_running_loop().time() - wrote_at < RECENT_WRITE:
            return None
        if self._store_check is None or self._store_check.done():  # concurrent health checks share one test write
            self._store_check = asyncio.ensure_future(self._check())
        done, _ = await asyncio.wait({self._store_check}, timeout=STORE_TIMEOUT)
        if not done:
            return f"the store has not answered for {STORE_TIMEOUT:.0f} s: check its disk"
        return self._store_check.result()

    async def _check(self) -> str | None:
        try:
            await self._store.check()
        except StoreError as error:
            return f"the store cannot write: {error}"
        return None
