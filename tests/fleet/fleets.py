"""A small fleet on a memory store and a manual clock, and stores and clocks that fail on demand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.core.journal import Entry
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.scope import Scope
from forewarn.fleet.scopes import ScopeChange
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GateChecker, Notifier, Platform
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import (
    NO_GUARDS,
    Guards,
    JournalQuery,
    JournalRow,
    RecordKey,
    RecordKind,
    SaveUnknown,
    Store,
    StoreFull,
)
from tests.core.sample_scopes import TEN


@asynccontextmanager
async def run_fleet(
    *scopes: Scope,
    store: Store | None = None,
    clock: Clock | None = None,
    platform: Platform | None = None,
    policy: Policy = EMULATOR,
    checker: GateChecker | None = None,
    messenger: Notifier | None = None,
) -> AsyncIterator[Fleet]:
    """Run a fleet with these scopes; those that the store has already are left alone."""
    clock = clock or ManualClock(TEN)
    platform = platform or SimulatedPlatform(clock)
    async with Fleet.run(
        store=store or MemoryStore(),
        platform=platform,
        clock=clock,
        policy=policy,
        checker=checker,
        notifier=messenger,
        speed_setting=policy.speed,
    ) as fleet:
        known = {view.id for view in fleet.replica.views()}
        for new in scopes:
            if new.id not in known:
                await fleet.inventory.add_scope(new, by="test")
        yield fleet


async def read_journal(store: Store, key: RecordKey | None = None) -> list[JournalRow]:
    """Return the whole journal, or one record's."""
    return await store.journal(JournalQuery(key=key, limit=10_000))


class Rounds:
    """Counts the iterations of the event loop."""

    def __init__(self) -> None:
        self.number = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self.number += 1
        self._loop.call_soon(self._count)


class SteppedClock(SystemClock):
    """The system clock after a step, or after a suspend of the machine."""

    step = timedelta(0)

    def now(self) -> datetime:
        """Return the time with the step."""
        return super().now() + self.step


Save = Callable[[], Awaitable[int]]
"""Does the save that was intercepted, and returns its revision."""


class InterceptedStore(MemoryStore):
    """A store whose subclasses delay, refuse or count saves."""

    async def save(
        self,
        key: RecordKey,
        value: bytes | None,
        entries: Sequence[Entry],
        *,
        expected: int | None,
        guards: Guards = NO_GUARDS,
    ) -> int:
        """Save in the way of the subclass."""
        return await self.intercept(key, partial(super().save, key, value, entries, expected=expected, guards=guards))

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Call `save` for this record, or raise what a store raises."""
        del key
        return await save()


class FailingStore(InterceptedStore):
    """A store whose disk is full while `full` is set, and which counts what it saves and what it refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.saves = 0
        self.refused = 0

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Save, if there is room."""
        if self.full:
            self.refused += 1
            raise StoreFull(Path("/test"))
        self.saves += 1
        return await save()


class UnsureStore(InterceptedStore):
    """A store that does not know whether it has saved while `is_unsure` is set; it has if `saves` is set, too."""

    is_unsure = False
    saves = False

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Save, and raise SaveUnknown in any case while it is unsure."""
        if not self.is_unsure:
            return await save()
        if self.saves:
            await save()
        raise SaveUnknown(Path("/test"), "disk I/O error")


class GatedStore(InterceptedStore):
    """A store that saves scopes only when its gate is open, and everything else at once."""

    def __init__(self) -> None:
        super().__init__()
        self.may_save_scopes = asyncio.Event()
        self.may_save_scopes.set()
        self.waiting = 0

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Wait if it is gated, then save."""
        if key.kind is RecordKind.SCOPE:
            self.waiting += 1
            await self.may_save_scopes.wait()
            self.waiting -= 1
        return await save()


class CampaignGatedStore(InterceptedStore):
    """A store that reads the journal and saves campaigns only when it may; all else at once."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read_journal = asyncio.Event()
        self.may_read_journal.set()
        self.may_save_campaigns = asyncio.Event()
        self.may_save_campaigns.set()
        self.is_slow_to_answer = False
        """Whether the watch shows what was saved before the save returns."""
        self.waiting = 0

    async def journal(self, query: JournalQuery) -> list[JournalRow]:
        """Wait if it is gated, then read."""
        await self._wait(self.may_read_journal)
        return await super().journal(query)

    async def intercept(self, key: RecordKey, save: Save) -> int:
        """Wait if it is gated, then save."""
        if key.kind is RecordKind.CAMPAIGN:
            await self._wait(self.may_save_campaigns)
        revision = await save()
        for _ in range(20 if self.is_slow_to_answer else 0):
            await asyncio.sleep(0)
        return revision

    async def _wait(self, may_go_on: asyncio.Event) -> None:
        self.waiting += 1
        await may_go_on.wait()
        self.waiting -= 1


class CallbackObserver:
    """Calls a function with every change of a scope."""

    def __init__(self, fleet: Fleet, callback: Callable[[ScopeChange], object]) -> None:
        self._callback = callback
        fleet.scopes.add_observers(self.observe)

    def observe(self, change: ScopeChange) -> None:
        """Call it."""
        self._callback(change)


async def until(fact: Callable[[], bool]) -> None:
    """Run the event loop until the condition is true; the time limit only guards against hanging."""
    async with asyncio.timeout(60):
        while not fact():  # noqa: ASYNC110 - a fact raises no event
            await asyncio.sleep(0.001)


async def request_from_guest(fleet: Fleet, scope_id: str = "web") -> None:
    """Let a guest of the scope ask, as the endpoint does."""
    saved = fleet.last_seen.record_request(fleet.replica.view(scope_id))
    if saved is not None:
        await saved


class SharedLease:
    """A lease of one of two fleets in this process; the test decides who holds it, and whether it is valid."""

    name = "clock"
    is_shared = True

    def __init__(self, process: str) -> None:
        self.holder = self.process = process
        self.lost = asyncio.Event()
        self.lost.set()
        self.is_valid = False
        self.is_free = asyncio.Event()

    async def claim(self) -> None:
        """Wait until the test gives the lease."""
        await self.is_free.wait()
        self.is_valid = True
        self.lost.clear()

    async def release(self) -> None:
        """Give the lease back."""
        self.take()

    def take(self) -> None:
        """Take the lease away."""
        self.is_free.clear()
        self.is_valid = False
        self.lost.set()
