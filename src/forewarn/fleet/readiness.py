"""Whether the service can do its work, and if not, why. Asking costs little, however often it is done."""

import asyncio
from collections.abc import Callable

from forewarn.fleet.measured import MeasuredStore
from forewarn.store.port import StoreError

RECENT = 5.0
"""For how long, in seconds, a store that wrote something counts as one that can."""

PATIENCE = 5.0
"""For how long, in seconds, an answer of the store is waited for."""


class Readiness:
    """Asks the store whether it can write, and everybody else who has a say."""

    def __init__(self, store: MeasuredStore) -> None:
        self._store = store
        self._checks: list[Callable[[], str | None]] = []
        self._checking: asyncio.Future[str | None] | None = None

    def require(self, check: Callable[[], str | None]) -> None:
        """Ask this, too, from now on: it returns what is wrong, in a sentence, or None."""
        self._checks.append(check)

    async def problems(self) -> tuple[str, ...]:
        """Return what keeps the service from its work; nothing: it is ready."""
        said = [await self._store_problem(), *(check() for check in self._checks)]
        return tuple(problem for problem in said if problem is not None)

    async def _store_problem(self) -> str | None:
        wrote_at = self._store.wrote_at
        if wrote_at is not None and asyncio.get_running_loop().time() - wrote_at < RECENT:
            return None
        if self._checking is None or self._checking.done():  # however many ask, the store is asked once
            self._checking = asyncio.ensure_future(self._check())
        done, _ = await asyncio.wait({self._checking}, timeout=PATIENCE)
        if not done:
            return f"the store has not answered for {PATIENCE:.0f} s: look at its disk"
        return self._checking.result()

    async def _check(self) -> str | None:
        try:
            await self._store.check()
        except StoreError as error:
            return f"the store cannot write: {error}"
        return None
