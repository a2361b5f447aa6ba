"""Faults that are set: whom they hit, for how long and how often. They live in memory, and the journal tells of them.

What each of them looks like on the wire: see `striking`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

import msgspec

from forewarn.clock import Timer
from forewarn.core.errors import Invalid, KeyConflict
from forewarn.core.fault import Fault, FaultKind, default_amount
from forewarn.core.idempotency import IdempotencyKey
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import FaultNotFound, FleetError, ScopeNotFound
from forewarn.fleet.service import Fleet

log = logging.getLogger(__name__)

MOST = 1_000
"""How many faults can be set at a time."""

REMEMBERED = 256
"""How many request keys are remembered."""

BY = "faults"
"""Who the journal says ends what ends by itself."""

ALL_HIT = "it has hit as many requests as it was to"
TIME_OVER = "its time is over"
FIRST_GIVEN = "the first answer has been given"


class Part(Enum):
    """To what a fault is done. A request can be hit in each part, by one fault."""

    DELAY = "when the answer comes"
    DATE = "the date that it bears"
    ANSWER = "the answer itself"


PARTS = {
    FaultKind.SLOW: Part.DELAY,
    FaultKind.LATE_FIRST_ANSWER: Part.DELAY,
    FaultKind.WRONG_DATE: Part.DATE,
}
"""All others are done to the answer."""

RESOLUTION = 0.001
"""Timers may ring a little early, in seconds."""


class Strike(NamedTuple):
    """What hits one request."""

    delay: "Active | None"
    date: "Active | None"
    answer: "Active | None"


Applies = Callable[[FaultKind], bool]
"""Whether a fault of this kind can hit the request."""


class Faults:
    """All faults of a service. Of those that do the same thing to a request, the one that was set first hits it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._active: dict[str, Active] = {}
        self._number = 0
        self._answered: dict[str, tuple[str, tuple[Fault, ...]]] = {}
        self._untold: list[Ending] = []
        """What has ended by itself while nothing could be saved."""
        self._one_at_a_time = asyncio.Lock()
        self._is_closed = False
        self.on_change: Callable[[], None] = _nothing
        """Called whenever a fault has been set or is over."""

    async def set(
        self,
        kind: FaultKind,
        *,
        vm: str | None = None,
        lasting: timedelta | None = None,
        times: int | None = None,
        amount: timedelta | None = None,
        by: str,
        why: str = "",
        once: IdempotencyKey | None = None,
    ) -> Fault:
        """Set a fault for a VM, named as `scope/name` or by its bare name, or for all; the journal has it on return."""
        async with self._one_at_a_time:
            if (before := self._known(once)) is not None:
                return before[0]
            fault = self._made(kind, vm=vm, lasting=lasting, times=times, amount=amount, by=by)
            await self._catch_up()
            await self._fleet.record_fault(EntryKind.FAULT_SET, fault, by=by, why=why)
            self._begin(fault)
            self._remember(once, (fault,))
            return fault

    def _made(
        self,
        kind: FaultKind,
        *,
        vm: str | None,
        lasting: timedelta | None,
        times: int | None,
        amount: timedelta | None,
        by: str,
    ) -> Fault:
        if lasting is not None and lasting <= timedelta(0):
            raise Invalid("a fault lasts longer than nothing")
        if len(self._active) >= MOST:
            raise Invalid(f"{MOST} faults are set, and no more can be: clear some")
        now = self._fleet.clock.now()
        fault = Fault(
            id=f"F{self._number + 1}",
            kind=kind,
            vm=None if vm is None else self._full_name(vm),
            until=None if lasting is None else now + lasting,
            times=times,
            amount=default_amount(kind) if amount is None else amount,
            by=by,
            set_at=now,
        )
        self._number += 1
        return fault

    async def clear(
        self,
        id_: str,
        *,
        may: Callable[[Fault], None] | None = None,
        by: str,
        why: str = "",
        once: IdempotencyKey | None = None,
    ) -> Fault:
        """End a fault now, unless `may` refuses that; what it has made wait is answered.

        If the journal cannot have it, it is not cleared.
        """
        async with self._one_at_a_time:
            if (before := self._known(once)) is not None:
                return before[0]
            active = self._find(id_)
            if may is not None:
                may(active.fault)
            await self._clear([active], by=by, why=why)
            self._remember(once, (active.fault,))
            return active.fault

    async def clear_all(
        self,
        meant: Callable[[Fault], bool] | None = None,
        *,
        by: str,
        why: str = "",
        once: IdempotencyKey | None = None,
    ) -> tuple[Fault, ...]:
        """End all faults now, or all that are meant, and return them.

        If the journal cannot have all, those that it has are cleared, and the others are not.
        """
        async with self._one_at_a_time:
            if (before := self._known(once)) is not None:
                return before
            found = [active for active in self._active.values() if meant is None or meant(active.fault)]
            await self._clear(found, by=by, why=why)
            cleared = tuple(active.fault for active in found)
            self._remember(once, cleared)
            return cleared

    def list(self) -> tuple[Fault, ...]:
        """Return the faults that are set, in the order in which they were."""
        return tuple(active.fault for active in self._active.values())

    @property
    def are_set(self) -> bool:
        """Whether there is any that can hit a request."""
        return bool(self._active) and not self._is_closed

    def concern(self, vm: str) -> bool:
        """Tell whether there is any that can hit a request of this VM."""
        return self.are_set and any(active.fault.vm in (None, vm) for active in self._active.values())

    @contextmanager
    def striking(self, vm: str, applies: Applies) -> Iterator[Strike]:
        """Count a VM's request towards the faults that hit it, and give them; at the end they may be over."""
        now = asyncio.get_running_loop().time()
        struck = self._hit(vm, applies, now) if self.are_set else {}
        for active in struck.values():
            active.begin(vm, now)
        try:
            yield Strike(struck.get(Part.DELAY), struck.get(Part.DATE), struck.get(Part.ANSWER))
        finally:
            for active in struck.values():
                active.busy -= 1
            for active in tuple(self._active.values()):
                self._end_if_over(active)

    async def wait(self, active: "Active", vm: str, owner: object) -> None:
        """Let a request wait as long as the fault says, until the fault is over, or until its owner is gone.

        Else a client that gives up after a second, and asks again, would soon have as many connections as it may have.
        """
        with self._waiting(active, owner) as over:
            await asyncio.wait([over], timeout=active.left(vm, asyncio.get_running_loop().time()))

    async def hang(self, active: "Active", owner: object) -> bool:
        """Let a request wait until the fault is over, or `release` says that its owner is gone: then return False."""
        with self._waiting(active, owner) as over:
            return await over

    def release(self, owner: object) -> None:
        """Let the request of this owner wait no more: nobody waits for the answer."""
        for active in self._active.values():
            active.wake(owner, is_fault_over=False)

    def close(self) -> None:
        """Hit nothing any more, and let nobody wait."""
        self._is_closed = True
        for active in self._active.values():
            active.silence()
            active.wake_all()
        self.on_change()

    @contextmanager
    def _waiting(self, active: "Active", owner: object) -> Iterator[asyncio.Future[bool]]:
        over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._is_closed or active.is_over:
            over.set_result(True)
        active.waiting[over] = owner
        try:
            yield over
        finally:
            del active.waiting[over]

    def _hit(self, vm: str, applies: Applies, now: float) -> dict[Part, "Active"]:
        struck: dict[Part, Active] = {}
        for active in self._active.values():
            if active.hits(vm, now) and applies(active.fault.kind):
                struck.setdefault(PARTS.get(active.fault.kind, Part.ANSWER), active)
        return struck

    def _full_name(self, vm: str) -> str:
        view, found = self._fleet.replica.find(vm)
        return f"{view.id}/{found.name}"

    def _begin(self, fault: Fault) -> None:
        active = self._active[fault.id] = Active(fault)
        if fault.until is not None:
            active.alarm = self._fleet.timers.set(fault.until, lambda: self._over(active, TIME_OVER))
        self.on_change()

    def _end(self, active: "Active") -> None:
        active.is_over = True
        self._active.pop(active.fault.id, None)
        active.silence()
        active.wake_all()
        self.on_change()

    def _end_if_over(self, active: "Active") -> None:
        """End what has nothing left to do."""
        if active.is_over or active.busy or self._is_closed:
            return
        if active.fault.is_exhausted:
            self._fleet.timers.start(self._over(active, ALL_HIT))
        elif active.has_given_first(asyncio.get_running_loop().time()):
            self._fleet.timers.start(self._over(active, FIRST_GIVEN))

    async def _over(self, active: "Active", why: str) -> None:
        async with self._one_at_a_time:
            if active.is_over:
                return
            self._end(active)
            self._untold.append(Ending(active.fault, why, self._fleet.clock.now()))
            try:
                await self._catch_up()
            except FleetError as error:
                self._untold = [ending._replace(is_late=True) for ending in self._untold]
                log.warning("that fault %s is over is told in the journal later: %s", active.fault.id, error)

    async def _catch_up(self) -> None:
        """Have the journal tell what has ended by itself, in its order; a scope that is gone has none any more."""
        while self._untold:
            ending = self._untold[0]
            with suppress(ScopeNotFound):
                await self._fleet.record_fault(EntryKind.FAULT_ENDED, ending.fault, by=BY, why=ending.reason)
            del self._untold[0]

    def _find(self, id_: str) -> "Active":
        try:
            return self._active[id_.upper()]
        except KeyError:
            raise FaultNotFound(id_) from None

    async def _clear(self, found: Sequence["Active"], *, by: str, why: str) -> None:
        """End faults, each when the journal has it; a scope that is gone has no journal any more."""
        await self._catch_up()
        for active in found:
            active.is_at_rest = True  # so that the journal tells of all that it has hit
        try:
            for active in found:
                with suppress(ScopeNotFound):
                    await self._fleet.record_fault(EntryKind.FAULT_CLEARED, active.fault, by=by, why=why)
                self._end(active)
        finally:
            for active in found:
                active.is_at_rest = False

    def _known(self, once: IdempotencyKey | None) -> tuple[Fault, ...] | None:
        """Return what was answered to this request before, if it was."""
        if once is None or once.key not in self._answered:
            return None
        digest, faults = self._answered[once.key]
        if digest != once.digest:
            raise KeyConflict(once.key)
        return faults

    def _remember(self, once: IdempotencyKey | None, faults: tuple[Fault, ...]) -> None:
        if once is not None:
            self._answered[once.key] = (once.digest, faults)
            if len(self._answered) > REMEMBERED:
                del self._answered[next(iter(self._answered))]


class Ending(NamedTuple):
    """A fault that has ended by itself, why and when; the journal may have it later."""

    fault: Fault
    why: str
    at: datetime
    is_late: bool = False

    @property
    def reason(self) -> str:
        """What the journal says, whose own time is that at which it could be saved."""
        return f"{self.why}; that was at {self.at:%Y-%m-%dT%H:%M:%SZ}" if self.is_late else self.why


class Active:
    """A fault that is set, and what it is doing."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.is_over = False
        self.is_at_rest = False
        """Whether it hits nothing for a moment."""
        self.alarm: Timer | None = None
        self.busy = 0
        """How many requests it is doing something to."""
        self.waiting: dict[asyncio.Future[bool], object] = {}
        """The requests that it makes wait, each with whose it is."""
        self._first_at: dict[str, float] = {}
        """When each VM first asked, for the fault that makes the first answer late."""

    def hits(self, vm: str, now: float) -> bool:
        """Tell whether it hits a request of the VM."""
        fault = self.fault
        if self.is_at_rest or fault.is_exhausted or fault.vm not in (None, vm):
            return False
        return fault.kind is not FaultKind.LATE_FIRST_ANSWER or self.left(vm, now) > 0

    def begin(self, vm: str, now: float) -> None:
        """Count a request of the VM as hit."""
        if self.fault.kind is FaultKind.LATE_FIRST_ANSWER:
            self._first_at.setdefault(vm, now)
        self.busy += 1
        self.fault = msgspec.structs.replace(self.fault, hits=self.fault.hits + 1)

    def left(self, vm: str, now: float) -> float:
        """Return for how many seconds it makes a request of the VM wait that comes now."""
        amount = (self.fault.amount or timedelta(0)).total_seconds()
        if self.fault.kind is FaultKind.SLOW:
            return amount
        left = self._first_at.get(vm, now) + amount - now
        return left if left > RESOLUTION else 0.0

    def has_given_first(self, now: float) -> bool:
        """Tell whether it was to make one VM's first answer late, and has done so."""
        vm = self.fault.vm
        if self.fault.kind is not FaultKind.LATE_FIRST_ANSWER or vm is None:
            return False
        return vm in self._first_at and not self.left(vm, now)

    def silence(self) -> None:
        """Let no alarm ring for it."""
        if self.alarm is not None:
            self.alarm.cancel()

    def wake(self, owner: object, *, is_fault_over: bool) -> None:
        """Let a request wait no more."""
        for over, waiting in self.waiting.items():
            if waiting is owner and not over.done():
                over.set_result(is_fault_over)

    def wake_all(self) -> None:
        """Let nobody wait any more."""
        for over in self.waiting:
            if not over.done():
                over.set_result(True)


def _nothing() -> None:
    """Nobody wants to know."""
