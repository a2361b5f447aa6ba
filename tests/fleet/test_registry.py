"""What must be unique over records stays so, although two processes change them at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from forewarn.clock import ManualClock
from forewarn.core.access import Role
from forewarn.core.errors import ResourceExists
from forewarn.core.policy import EMULATOR
from forewarn.core.scope import ScopeKind
from forewarn.fleet.errors import AddressInUse, ScopeExists
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.memory import MemoryStore
from tests.core.sample_scopes import TEN, scope, vm
from tests.fleet.fleets import SharedLease


@asynccontextmanager
async def run_two() -> AsyncIterator[tuple[Fleet, Fleet]]:
    """Run two fleets over one store, as two control nodes without duties."""
    store, clock = MemoryStore(), ManualClock(TEN)
    async with AsyncExitStack() as stack:
        fleets = [
            await stack.enter_async_context(
                Fleet.run(
                    store=store,
                    platform=SimulatedPlatform(clock),
                    clock=clock,
                    policy=EMULATOR,
                    lease=SharedLease(name),
                )
            )
            for name in ("one", "two")
        ]
        yield fleets[0], fleets[1]


def split(results: list[Any]) -> tuple[int, list[type]]:
    """Return how many succeeded, and the errors of the others."""
    errors = [type(result) for result in results if isinstance(result, BaseException)]
    return len(results) - len(errors), errors


async def test_address_is_given_once() -> None:
    async with run_two() as fleets:
        for number in range(1, 20):
            wanted = [
                scope(f"{name}-{number}", vm("vm", ip=f"10.0.0.{number}"), kind=ScopeKind.STANDALONE) for name in "ab"
            ]
            adding = (fleet.inventory.add_scope(new, by="t") for fleet, new in zip(fleets, wanted, strict=True))
            assert split(await asyncio.gather(*adding, return_exceptions=True)) == (1, [AddressInUse])


async def test_names_differ_not_only_in_case() -> None:
    async with run_two() as fleets:
        adding = (
            fleet.inventory.add_scope(scope(name, vm("vm")), by="t")
            for fleet, name in zip(fleets, ("web", "WEB"), strict=True)
        )
        assert split(await asyncio.gather(*adding, return_exceptions=True)) == (1, [ScopeExists])


async def test_token_name_is_given_once() -> None:
    async with run_two() as fleets:
        creating = (fleet.tokens.create("bob", Role.VIEWER, by="t") for fleet in fleets)
        assert split(await asyncio.gather(*creating, return_exceptions=True)) == (1, [ResourceExists])


async def test_process_that_goes_on_alone_begins_one_term() -> None:
    async with run_two() as (first, second):
        for number in range(5):
            await first.inventory.add_scope(scope(f"s-{number}", vm("vm")), by="t")
        term = first.cluster.leases.find("registry")
        assert term is not None
        assert (term.term, term.holder) == (1, "one")
        await second.inventory.add_scope(scope("other", vm("vm")), by="t")
        assert second.cluster.leases.find("registry").term == 2  # type: ignore[union-attr]  # it exists


async def test_only_process_on_a_store_needs_no_term() -> None:
    clock = ManualClock(TEN)
    async with Fleet.run(store=MemoryStore(), platform=SimulatedPlatform(clock), clock=clock, policy=EMULATOR) as fleet:
        await fleet.inventory.add_scope(scope("web", vm("vm")), by="t")
        assert fleet.cluster.leases.find("registry") is None
        with pytest.raises(ScopeExists):
            await fleet.inventory.add_scope(scope("web", vm("vm")), by="t")
