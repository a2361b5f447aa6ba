"""Active faults: which VMs they affect, for how long and how often. Kept in memory; the journal records them.

`fault_injection` applies them to responses.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

import msgspec

from forewarn.clock import Timer
from forewarn.core.errors import Invalid
from forewarn.core.fault import Fault, FaultKind, default_amount
from forewarn.core.idempotency import IdempotencyKey, ResultMemory
from forewarn.core.journal import EntryKind
from forewarn.fleet.errors import FaultNotFound, FleetError, ScopeNotFound
from forewarn.fleet.service import Fleet

log = logging.getLogger(__name__)

MAX_FAULTS = 1_000
"""How many faults can be active at the same time."""

ACTOR = "faults"
"""The actor in the journal for faults that end by themselves."""

HITS_USED = "it reached its number of hits"
EXPIRED = "it expired"
FIRST_RESPONSE_SENT = "the delayed first response was sent"


class FaultEffect(Enum):
    """What a fault affects. A request can be affected by one fault per effect."""

    DELAY = "the time of the response"
    DATE = "the date of the response"
    RESPONSE = "the response itself"


EFFECTS = {
    FaultKind.SLOW: FaultEffect.DELAY,
    FaultKind.LATE_FIRST_ANSWER: FaultEffect.DELAY,
    FaultKind.WRONG_DATE: FaultEffect.DATE,
}
"""The effect of each kind of fault; all other kinds affect the response itself."""

TIMER_RESOLUTION = 0.001
"""Timers may fire this many seconds early."""


class FaultSet(NamedTuple):
    """The faults that affect one request, at most one per effect."""

    delay: "ActiveFault | None"
    date: "ActiveFault | None"
    response: "ActiveFault | None"


FaultFilter = Callable[[FaultKind], bool]
"""Returns whether a fault of this kind can affect the request."""


class Faults:
    """All faults of a service. If several have the same effect on a request, the first one set applies."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._active: dict[str, ActiveFault] = {}
        self._number = 0
        self._results = ResultMemory[tuple[Fault, ...]]()
        self._unrecorded: list[EndedFault] = []
        """Faults that ended by themselves and are not in the journal yet, because saving failed."""
        self._lock = asyncio.Lock()
        self._is_closed = False
        self.on_change: Callable[[], None] = _do_nothing
        """Called whenever a fault has been set or has ended."""

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
        idempotency_key: IdempotencyKey | None = None,
    ) -> Fault:
        """Set a fault for a VM (`scope/name` or its bare name) or for all VMs. On return, it is in the journal."""
        async with self._lock:
            if (previous := self._results.find(idempotency_key)) is not None:
                return previous[0]
            fault = self._create(kind, vm=vm, lasting=lasting, times=times, amount=amount, by=by)
            await self._record_ended()
            await self._fleet.emulator.journal.record_fault(EntryKind.FAULT_SET, fault, by=by, why=why)
            self._activate(fault)
            self._results.add(idempotency_key, (fault,))
            return fault

    def _create(
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
            raise Invalid("the duration of a fault must be positive")
        if len(self._active) >= MAX_FAULTS:
            raise Invalid(f"at most {MAX_FAULTS} faults can be active; clear some first")
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
        check: Callable[[Fault], None] | None = None,
        by: str,
        why: str = "",
        idempotency_key: IdempotencyKey | None = None,
    ) -> Fault:
        """End a fault now, unless `check` raises; delayed requests get their response.

        If the journal entry cannot be saved, the fault is not cleared.
        """
        async with self._lock:
            if (previous := self._results.find(idempotency_key)) is not None:
                return previous[0]
            active = self._find(id_)
            if check is not None:
                check(active.fault)
            await self._clear([active], by=by, why=why)
            self._results.add(idempotency_key, (active.fault,))
            return active.fault

    async def clear_all(
        self,
        matches: Callable[[Fault], bool] | None = None,
        *,
        by: str,
        why: str = "",
        idempotency_key: IdempotencyKey | None = None,
    ) -> tuple[Fault, ...]:
        """End all faults, or all that match, and return them.

        If not all journal entries can be saved, only the faults with a saved entry are cleared.
        """
        async with self._lock:
            if (previous := self._results.find(idempotency_key)) is not None:
                return previous
            found = [active for active in self._active.values() if matches is None or matches(active.fault)]
            await self._clear(found, by=by, why=why)
            cleared = tuple(active.fault for active in found)
            self._results.add(idempotency_key, cleared)
            return cleared

    def list(self) -> tuple[Fault, ...]:
        """Return the active faults in the order in which they were set."""
        return tuple(active.fault for active in self._active.values())

    @property
    def has_active(self) -> bool:
        """Whether any fault can affect a request."""
        return bool(self._active) and not self._is_closed

    def affects(self, vm: str) -> bool:
        """Return whether any fault can affect a request of this VM."""
        return self.has_active and any(active.fault.vm in (None, vm) for active in self._active.values())

    @contextmanager
    def for_request(self, vm: str, applies: FaultFilter) -> Iterator[FaultSet]:
        """Count a VM's request as a hit of the faults that affect it, and yield them; afterwards end exhausted ones."""
        now = asyncio.get_running_loop().time()
        matching = self._select(vm, applies, now) if self.has_active else {}
        for active in matching.values():
            active.record_hit(vm, now)
        try:
            yield _fault_set(matching)
        finally:
            for active in matching.values():
                active.in_flight -= 1
            for active in tuple(self._active.values()):
                self._end_if_done(active)

    def preview(self, vm: str, applies: FaultFilter) -> FaultSet:
        """Return the faults that would affect a request of the VM now, without a hit."""
        now = asyncio.get_running_loop().time()
        return _fault_set(self._select(vm, applies, now) if self.has_active else {})

    def delay(self, fault_set: FaultSet, vm: str) -> timedelta:
        """Return how long the faults would delay a response to the VM."""
        if fault_set.delay is None:
            return timedelta(0)
        return timedelta(seconds=fault_set.delay.remaining(vm, asyncio.get_running_loop().time()))

    async def wait(self, active: "ActiveFault", vm: str, owner: object) -> None:
        """Delay a request as long as the fault requires, until the fault ends, or until its owner disconnects.

        Otherwise a client that times out after a second and polls again would soon use up its connections.
        """
        with self._add_waiter(active, owner) as done:
            await asyncio.wait([done], timeout=active.remaining(vm, asyncio.get_running_loop().time()))

    async def hang(self, active: "ActiveFault", owner: object) -> bool:
        """Delay a request until the fault ends; return False if `release` was called for its owner first."""
        with self._add_waiter(active, owner) as done:
            return await done

    def release(self, owner: object) -> None:
        """End the delay of this owner's request: the owner has disconnected."""
        for active in self._active.values():
            active.wake(owner, is_fault_over=False)

    def close(self) -> None:
        """Stop affecting requests, and end all delays."""
        self._is_closed = True
        for active in self._active.values():
            active.cancel_timer()
            active.wake_all()
        self.on_change()

    @contextmanager
    def _add_waiter(self, active: "ActiveFault", owner: object) -> Iterator[asyncio.Future[bool]]:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._is_closed or active.is_over:
            done.set_result(True)
        active.waiters[done] = owner
        try:
            yield done
        finally:
            del active.waiters[done]

    def _select(self, vm: str, applies: FaultFilter, now: float) -> dict[FaultEffect, "ActiveFault"]:
        matching: dict[FaultEffect, ActiveFault] = {}
        for active in self._active.values():
            if active.applies_to(vm, now) and applies(active.fault.kind):
                matching.setdefault(EFFECTS.get(active.fault.kind, FaultEffect.RESPONSE), active)
        return matching

    def _full_name(self, vm: str) -> str:
        view, found = self._fleet.replica.find(vm)
        return f"{view.id}/{found.name}"

    def _activate(self, fault: Fault) -> None:
        active = self._active[fault.id] = ActiveFault(fault)
        if fault.until is not None:
            active.timer = self._fleet.emulator.timers.set(fault.until, lambda: self._expire(active, EXPIRED))
        self.on_change()

    def _deactivate(self, active: "ActiveFault") -> None:
        active.is_over = True
        self._active.pop(active.fault.id, None)
        active.cancel_timer()
        active.wake_all()
        self.on_change()

    def _end_if_done(self, active: "ActiveFault") -> None:
        """End a fault that has no effect left."""
        if active.is_over or active.in_flight or self._is_closed:
            return
        if active.fault.is_exhausted:
            self._fleet.emulator.timers.start(self._expire(active, HITS_USED))
        elif active.has_delayed_first(asyncio.get_running_loop().time()):
            self._fleet.emulator.timers.start(self._expire(active, FIRST_RESPONSE_SENT))

    async def _expire(self, active: "ActiveFault", why: str) -> None:
        async with self._lock:
            if active.is_over:
                return
            self._deactivate(active)
            self._unrecorded.append(EndedFault(active.fault, why, self._fleet.clock.now()))
            try:
                await self._record_ended()
            except FleetError as error:
                self._unrecorded = [ending._replace(is_late=True) for ending in self._unrecorded]
                log.warning("could not save the end of fault %s, retrying later: %s", active.fault.id, error)

    async def _record_ended(self) -> None:
        """Save journal entries for faults that ended by themselves, in order. A removed scope has no journal."""
        while self._unrecorded:
            ending = self._unrecorded[0]
            with suppress(ScopeNotFound):
                await self._fleet.emulator.journal.record_fault(
                    EntryKind.FAULT_ENDED, ending.fault, by=ACTOR, why=ending.reason
                )
            del self._unrecorded[0]

    def _find(self, id_: str) -> "ActiveFault":
        try:
            return self._active[id_.upper()]
        except KeyError:
            raise FaultNotFound(id_) from None

    async def _clear(self, found: Sequence["ActiveFault"], *, by: str, why: str) -> None:
        """End faults, each after its journal entry is saved. A removed scope has no journal."""
        await self._record_ended()
        for active in found:
            active.is_paused = True  # so that the journal entry has the final number of hits
        try:
            for active in found:
                with suppress(ScopeNotFound):
                    await self._fleet.emulator.journal.record_fault(
                        EntryKind.FAULT_CLEARED, active.fault, by=by, why=why
                    )
                self._deactivate(active)
        finally:
            for active in found:
                active.is_paused = False


class EndedFault(NamedTuple):
    """A fault that ended by itself, why and when. Its journal entry may be saved later."""

    fault: Fault
    why: str
    at: datetime
    is_late: bool = False

    @property
    def reason(self) -> str:
        """The reason for the journal; with the time of the end if the entry is saved later."""
        return f"{self.why}; ended at {self.at:%Y-%m-%dT%H:%M:%SZ}" if self.is_late else self.why


class ActiveFault:
    """An active fault: its timer, its hit counts and the requests that it delays."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.is_over = False
        self.is_paused = False
        """Whether it temporarily affects no requests."""
        self.timer: Timer | None = None
        self.in_flight = 0
        """How many requests it affects at the moment."""
        self.waiters: dict[asyncio.Future[bool], object] = {}
        """The requests that it delays, each with its owner."""
        self._first_request_at: dict[str, float] = {}
        """The time of each VM's first request, for the fault that delays the first response."""

    def applies_to(self, vm: str, now: float) -> bool:
        """Return whether it affects a request of the VM."""
        fault = self.fault
        if self.is_paused or fault.is_exhausted or fault.vm not in (None, vm):
            return False
        return fault.kind is not FaultKind.LATE_FIRST_ANSWER or self.remaining(vm, now) > 0

    def record_hit(self, vm: str, now: float) -> None:
        """Count a request of the VM as a hit."""
        if self.fault.kind is FaultKind.LATE_FIRST_ANSWER:
            self._first_request_at.setdefault(vm, now)
        self.in_flight += 1
        self.fault = msgspec.structs.replace(self.fault, hits=self.fault.hits + 1)

    def remaining(self, vm: str, now: float) -> float:
        """Return for how many seconds it delays a request that the VM sends now."""
        amount = (self.fault.amount or timedelta(0)).total_seconds()
        if self.fault.kind is FaultKind.SLOW:
            return amount
        remaining = self._first_request_at.get(vm, now) + amount - now
        return remaining if remaining > TIMER_RESOLUTION else 0.0

    def has_delayed_first(self, now: float) -> bool:
        """Return whether it delays one VM's first response, and has done so."""
        vm = self.fault.vm
        if self.fault.kind is not FaultKind.LATE_FIRST_ANSWER or vm is None:
            return False
        return vm in self._first_request_at and not self.remaining(vm, now)

    def cancel_timer(self) -> None:
        """Cancel its timer."""
        if self.timer is not None:
            self.timer.cancel()

    def wake(self, owner: object, *, is_fault_over: bool) -> None:
        """End the delay of an owner's request."""
        for done, waiter in self.waiters.items():
            if waiter is owner and not done.done():
                done.set_result(is_fault_over)

    def wake_all(self) -> None:
        """End all delays."""
        for done in self.waiters:
            if not done.done():
                done.set_result(True)


def _fault_set(matching: Mapping[FaultEffect, ActiveFault]) -> FaultSet:
    return FaultSet(*(matching.get(effect) for effect in (FaultEffect.DELAY, FaultEffect.DATE, FaultEffect.RESPONSE)))


def _do_nothing() -> None:
    """Do nothing: the default of `on_change`."""
