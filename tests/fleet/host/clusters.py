"""A control node and hosts on a real NATS server, all in one process, each with its own connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from forewarn.clock import SystemClock
from forewarn.compose.host_commands import serve_hosts
from forewarn.core.event import EventType
from forewarn.core.policy import EMULATOR, Policy
from forewarn.core.scope import Scope
from forewarn.fleet.host.service import HostFleet
from forewarn.fleet.service import Fleet
from forewarn.platform.port import Platform
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.host_store import HostStore
from forewarn.store.nats.server_time import ServerTime
from forewarn.store.nats.store import NatsStore
from tests.core.sample_scopes import scope, vm

GUARD_SECONDS = 60
"""Ends a test that hangs; nothing is measured with it."""


def web() -> Scope:
    """Return a scope with a VM on each of two hosts."""
    return scope("web", vm("web-0", host="hv-0"), vm("web-1", host="hv-1", domain=1))


def quick_platform(hosts: tuple[str, ...] = ("hv-0", "hv-1")) -> SimulatedPlatform:
    """Return a platform whose work takes a moment."""
    durations = dict.fromkeys(EventType, timedelta(milliseconds=20))
    return SimulatedPlatform(SystemClock(), hosts=lambda: hosts, durations=durations)


@asynccontextmanager
async def run_control(
    settings: NatsSettings, directory: Path, *scopes: Scope, policy: Policy = EMULATOR
) -> AsyncIterator[Fleet]:
    """Run a control node: it starts events, and answers hosts."""
    store = await NatsStore.open(settings, directory)
    try:
        async with Fleet.run(
            store=store,
            platform=quick_platform(),
            clock=SystemClock(),
            policy=policy,
            has_duties=False,
            times=ServerTime(settings),
        ) as fleet:
            for new in scopes:
                await fleet.inventory.add_scope(new, by="test")
            await fleet.duties.scheduler.start()
            async with serve_hosts(fleet, store):
                yield fleet
    finally:
        await store.aclose()


@asynccontextmanager
async def run_host(
    settings: NatsSettings, directory: Path, host: str = "hv-0", *, platform: Platform | None = None
) -> AsyncIterator[HostFleet]:
    """Run the process of a host, without an endpoint."""
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    records = await HostStore.open(settings, host, directory)
    try:
        async with HostFleet.run(
            host=host,
            records=records,
            platform=platform or quick_platform(),
            clock=SystemClock(),
            policy=EMULATOR,
            directory=directory,
        ) as fleet:
            yield fleet
    finally:
        await records.aclose()


async def until(is_true: Callable[[], object]) -> None:
    """Return when something has become true."""
    async with asyncio.timeout(GUARD_SECONDS):
        while not is_true():  # noqa: ASYNC110 - several processes cause it
            await asyncio.sleep(0.01)
