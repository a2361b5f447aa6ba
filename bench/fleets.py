"""Fleets for benchmarks: scopes of equal VMs, each VM with its own loopback address."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Address
from itertools import islice
from pathlib import Path
from uuid import UUID

import msgspec

from forewarn.core.change import Change
from forewarn.core.inventory import create_scope
from forewarn.core.scope import ApprovalRule, Scope, ScopeKind
from forewarn.core.vm import Address, Os, Roster, Traits, Vm
from forewarn.fleet.fleet_state import FLEET_STATE, FleetState
from forewarn.store.port import RecordKey, RecordKind
from forewarn.store.sqlite.store import SqliteStore

NETWORK = "bench"
SUBSCRIPTION = "8D10DA13-8125-4BA9-A717-BF7490507B3D"
FIRST_ADDRESS = int(IPv4Address("127.0.0.1"))
"""On Linux, all of 127.0.0.0/8 is this machine: any number of callers without root. wrk uses the first address."""

UPDATE_DOMAINS = 5
FILL_AT_ONCE = 500

encode = msgspec.json.Encoder().encode


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Number of scopes and of VMs per scope, and the approval policy."""

    scopes: int
    vms_each: int
    approval: ApprovalRule = ApprovalRule.ANY

    @property
    def vms(self) -> int:
        """Number of VMs in the fleet."""
        return self.scopes * self.vms_each


def scope_name(scope: int) -> str:
    """Return the name of the scope of that number."""
    return f"set-{scope:05}"


def vm_name(scope: int, vm: int) -> str:
    """Return the full name of a VM, counted within its scope."""
    return f"{scope_name(scope)}/{scope_name(scope)}_{vm}"


def address_of(shape: Shape, scope: int, vm: int = 0) -> str:
    """Return the address of a VM, counted within its scope."""
    return str(IPv4Address(FIRST_ADDRESS + scope * shape.vms_each + vm))


def make_scope(shape: Shape, number: int, *, now: datetime) -> Scope:
    """Make a scope whose VMs have just polled, so that another poll saves nothing."""
    return Scope(
        id=scope_name(number),
        kind=ScopeKind.PLACEMENT_GROUP,
        epoch=f"{number:012x}",
        changed_at=now,
        roster=Roster(tuple(_vm(shape, number, vm) for vm in range(shape.vms_each))),
        traits=Traits(location="west", resource_group="bench", subscription=SUBSCRIPTION, os=Os.LINUX),
        scale_set=scope_name(number),
        placement_group=str(UUID(int=number)),
        approval=shape.approval,
        enabled=True,
        was_enabled=True,
        seen_at=now,
    )


def _vm(shape: Shape, scope: int, vm: int) -> Vm:
    domain = vm % UPDATE_DOMAINS
    return Vm(
        name=f"{scope_name(scope)}_{vm}",
        vm_id=str(UUID(int=scope * shape.vms_each + vm)),
        update_domain=domain,
        fault_domain=domain,
        host=f"hv-{scope % 100:02}-{domain}",
        addresses=(Address(ip=address_of(shape, scope, vm), network=NETWORK),),
    )


def fill(directory: Path, shape: Shape) -> None:
    """Save the fleet in a new data directory, as an import of a fleet file does."""
    asyncio.run(_fill(directory, shape))


async def _fill(directory: Path, shape: Shape) -> None:
    store = await SqliteStore.open(directory)
    try:
        changes = _changes(shape, now=datetime.now(UTC))
        while some := list(islice(changes, FILL_AT_ONCE)):
            await asyncio.gather(*(_save(store, change) for change in some))
        await store.save(FLEET_STATE, encode(FleetState(filled=True)), (), expected=None)
    finally:
        await store.aclose()


def _changes(shape: Shape, *, now: datetime) -> Iterator[Change[None]]:
    return (create_scope(make_scope(shape, number, now=now), by="bench", now=now) for number in range(shape.scopes))


async def _save(store: SqliteStore, change: Change[None]) -> None:
    assert change.scope is not None
    await store.save(RecordKey(RecordKind.SCOPE, change.scope.id), encode(change.scope), change.entries, expected=None)
