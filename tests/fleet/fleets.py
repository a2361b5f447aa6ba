"""A small fleet on a memory store and a manual clock, and stores and clocks that fail on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from forewarn.clock import Clock, ManualClock, SystemClock
from forewarn.core.change import derive_id
from forewarn.core.event import EventType
from forewarn.core.journal import Entry
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.schedule import ScheduleRequest
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Priority, Roster, Traits, Vm
from forewarn.fleet.service import Fleet
from forewarn.platform.port import GateChecker, Notifier, Platform
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from forewarn.store.port import JournalQuery, JournalRow, RecordKey, Store, StoreFull

TEN = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
SEED = "00000000-0000-4000-8000-000000000000"


def vm(name: str, *, domain: int = 0, host: str | None = None, ip: str | None = None, network: str = "default") -> Vm:
    """Make a VM with an id that follows from its name."""
    addresses = (Address(ip=ip, network=network),) if ip else ()
    vm_id = derive_id(SEED, name).lower()
    return Vm(name=name, vm_id=vm_id, update_domain=domain, host=host, addresses=addresses)


def scope(
    id_: str,
    *vms: Vm,
    kind: ScopeKind = ScopeKind.AVAILABILITY_SET,
    approval: ApprovalRule = ApprovalRule.ANY,
    low_priority: bool = False,
) -> Scope:
    """Make a new scope."""
    traits = Traits(priority=Priority.LOW) if low_priority else Traits()
    return Scope(id=id_, kind=kind, epoch="e1", changed_at=TEN, roster=Roster(vms), approval=approval, traits=traits)


def web_scope() -> Scope:
    """Three update domains with two VMs each; each domain on a host of its own."""
    vms = (vm(f"web-{n}", domain=n % 3, host=f"hv-{n % 3}", ip=f"10.0.0.{n + 1}") for n in range(6))
    return scope("web", *vms)


def schedule_request(type_: EventType, *vms: str, number: int = 1, **more: object) -> ScheduleRequest:
    """Ask for events; the same number asks the same question."""
    request = f"00000000-0000-4000-8000-{number:012d}"
    plain = ScheduleRequest(id=request, type=type_, vms=vms, by="operator:test")
    return msgspec.structs.replace(plain, **more)


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
    ) as fleet:
        known = {view.id for view in fleet.replica.views()}
        for new in scopes:
            if new.id not in known:
                await fleet.inventory.add_scope(new, by="test")
        yield fleet


async def read_journal(store: Store, key: RecordKey | None = None) -> list[JournalRow]:
    """Return the whole journal, or one record's."""
    return await store.journal(JournalQuery(key=key, limit=10_000))


class SteppedClock(SystemClock):
    """The machine's clock after somebody has stepped it, or after the machine has slept."""

    step = timedelta(0)

    def now(self) -> datetime:
        """Return the time with the step."""
        return super().now() + self.step


class FailingStore(MemoryStore):
    """A store whose disk is full while `full` is set, and which counts what it saves and what it refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.saves = 0
        self.refused = 0

    async def save(self, key: RecordKey, value: bytes | None, entries: Sequence[Entry], *, expected: int | None) -> int:
        """Save, if there is room."""
        if self.full:
            self.refused += 1
            raise StoreFull(Path("/test"))
        self.saves += 1
        return await super().save(key, value, entries, expected=expected)


async def until(fact: Callable[[], bool]) -> None:
    """Give the event loop its turns until the fact holds; the time limit only guards against hanging."""
    async with asyncio.timeout(60):
        while not fact():  # noqa: ASYNC110 - a fact raises no event
            await asyncio.sleep(0.001)
