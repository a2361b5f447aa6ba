"""The generated benchmark fleets have the sizes that the results table states."""

import asyncio
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path

from bench.fleets import NETWORK, Shape, address_of, fill, make_scope, vm_name
from forewarn.clock import SystemClock
from forewarn.core.enablement import needs_save
from forewarn.core.policy import PRODUCTION
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.sqlite.store import SqliteStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LARGE = Shape(scopes=5_000, vms_each=20)


def test_every_vm_has_a_unique_loopback_address() -> None:
    addresses = [address_of(LARGE, scope, vm) for scope in range(LARGE.scopes) for vm in range(LARGE.vms_each)]
    assert len(set(addresses)) == LARGE.vms == 100_000
    loopback = ip_network("127.0.0.0/8")
    assert all(ip_address(address) in loopback for address in (addresses[0], addresses[-1]))


def test_first_vm_has_the_source_address_of_wrk() -> None:
    assert address_of(Shape(scopes=1, vms_each=1), 0) == "127.0.0.1"


def test_polling_saves_nothing() -> None:
    assert not needs_save(make_scope(LARGE, 7, now=NOW), now=NOW)


async def test_filled_data_directory_can_be_opened(tmp_path: Path) -> None:
    shape = Shape(scopes=3, vms_each=4)
    await asyncio.to_thread(fill, tmp_path, shape)
    store, clock = await SqliteStore.open(tmp_path), SystemClock()
    async with Fleet.run(store=store, platform=SimulatedPlatform(clock), clock=clock, policy=PRODUCTION) as fleet:
        assert (fleet.replica.vms, fleet.inventory.is_filled) == (12, True)
        found = fleet.replica.find_by_address(NETWORK, address_of(shape, 2, 3))
        assert found == fleet.replica.find(vm_name(2, 3))
    await store.aclose()
