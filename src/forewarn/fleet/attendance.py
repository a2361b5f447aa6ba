"""When the service was there: what is saved of it, and what was missed."""

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial

from forewarn.clock import Clock, ManualClock
from forewarn.core.policy import Outage
from forewarn.fleet import ledger as book
from forewarn.fleet.errors import NotSaved
from forewarn.fleet.keeper import LedgerKeeper

HEARTBEAT = 300.0
"""How often, in seconds, a service that counts silence saves that it is alive."""

LAST_SAVE = 5.0
"""How long, in seconds, the end of the service waits to save when that was."""

SHORTEST_ABSENCE = timedelta(minutes=1)
"""What the clock may be corrected by without a word."""


class Attendance:
    """When the service was there. A time in which it was not counts for no scope as silence: it is kept as an outage.

    The service is absent while it does not run, and also while its machine sleeps, or where its clock is set forward:
    then the clock has moved on and the process has not.
    """

    def __init__(self, keeper: LedgerKeeper, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._be_present()

    async def begin(self) -> None:
        """Save that the service has started."""
        await self._keeper.apply(partial(book.began, now=self._clock.now()))

    async def go_on(self) -> None:
        """Save every few minutes that the service is alive, if it counts silence."""
        while True:
            await asyncio.sleep(HEARTBEAT)
            if self._counts_silence:
                with suppress(NotSaved):
                    await self._save_alive()

    async def end(self) -> None:
        """Save that the service ends, if that can be done quickly."""
        with suppress(NotSaved, TimeoutError):
            async with asyncio.timeout(LAST_SAVE):
                await self._save_alive()

    async def count(self) -> None:
        """Save what was missed since this was last asked: to be done before anybody's silence is counted."""
        if isinstance(self._clock, ManualClock) or not self._counts_silence:
            return
        async with self._one_at_a_time:
            if (outage := self._missed()) is not None:
                await self._keeper.apply(partial(book.missed, outage=outage))
                self._be_present()

    @property
    def _counts_silence(self) -> bool:
        return self._keeper.conditions.policy.idle_after is not None

    async def _save_alive(self) -> None:
        await self.count()
        await self._keeper.apply(partial(book.alive, now=self._clock.now()))

    def _missed(self) -> Outage | None:
        """Return the time that the clock says has passed and this process knows nothing of."""
        present = self._since + timedelta(seconds=time.monotonic() - self._began)
        now = self._clock.now()
        if now < present:
            self._be_present()
        return Outage(began_at=present, ended_at=now) if now - present > SHORTEST_ABSENCE else None

    def _be_present(self) -> None:
        self._since, self._began = self._clock.now(), time.monotonic()
