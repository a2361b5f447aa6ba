"""The unmodified preemption plug-in of dask-cloudprovider on a real Dask worker.

It polls, and closes its worker when an eviction or a deletion has started or its NotBefore has passed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from distributed import Scheduler, Status, Worker

from forewarn.core.event import EventType
from tests.support.emulator import GUARD, EmulatorProcess, Vm

if TYPE_CHECKING:
    from dask_cloudprovider.azure import AzurePreemptibleWorkerPlugin  # type: ignore[import-untyped]  # it has no types

VERSION = "2019-08-01"
"""The api-version that the plug-in uses without a configured URL."""

OFTEN = 0.01
SELDOM = 3600.0
"""Poll intervals of the plug-in, in seconds: immediately, and never within a test."""


# The plug-in calls a function of datetime that newer Pythons deprecate.
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")


class Node:
    """A Dask worker on a VM, with the plug-in."""

    def __init__(self, worker: Worker, plugin: "AzurePreemptibleWorkerPlugin") -> None:
        self._worker = worker
        self._plugin = plugin

    @property
    def status(self) -> Status:
        """The state of the worker."""
        return Status(self._worker.status)

    async def ask(self) -> Status:
        """Let the plug-in poll once; return the resulting state of the worker."""
        await self._plugin.poll_status()
        return self.status

    async def closed(self) -> Status:
        """Wait until the worker has closed."""
        async with asyncio.timeout(GUARD):
            await self._worker.finished()  # type: ignore[no-untyped-call]  # Dask has types in parts only
        return self.status


@asynccontextmanager
async def dask_on(vm: Vm, directory: Path, *, interval: float = SELDOM) -> AsyncIterator[Node]:
    """Run a scheduler and a worker on any free ports of loopback."""
    # Imported late: it loads all of Azure's clients, which would slow down test collection.
    from dask_cloudprovider.azure import AzurePreemptibleWorkerPlugin

    plugin = AzurePreemptibleWorkerPlugin(poll_interval_s=interval, metadata_url=vm.events(VERSION))
    place: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with (
        Scheduler(**place) as scheduler,
        Worker(scheduler.address, nthreads=1, local_directory=str(directory), plugins=(plugin,), **place) as worker,
    ):
        try:
            yield Node(worker, plugin)
        finally:
            if plugin._session is not None:
                await plugin._session.close()


async def test_eviction_closes_the_worker_when_it_starts(
    service: EmulatorProcess, scale_set: tuple[Vm, ...], tmp_path: Path
) -> None:
    async with dask_on(scale_set[0], tmp_path) as node:
        assert await node.ask() is Status.running
        service.schedule(EventType.PREEMPT, scale_set[0], notice="1h")
        assert await node.ask() is Status.running
        service.advance("3601s")
        assert await node.ask() is Status.closed


async def test_plug_in_polls_by_itself(service: EmulatorProcess, scale_set: tuple[Vm, ...], tmp_path: Path) -> None:
    async with dask_on(scale_set[0], tmp_path, interval=OFTEN) as node:
        service.schedule(EventType.PREEMPT, scale_set[0], notice="30s")
        service.advance("31s")
        assert await node.closed() is Status.closed


async def test_deletion_closes_the_worker(service: EmulatorProcess, scale_set: tuple[Vm, ...], tmp_path: Path) -> None:
    async with dask_on(scale_set[0], tmp_path) as node:
        service.schedule(EventType.TERMINATE, scale_set[0], notice="5m")
        service.advance("301s")
        assert await node.ask() is Status.closed


@pytest.mark.parametrize("type_", [EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
async def test_maintenance_does_not_close_the_worker(
    service: EmulatorProcess, scale_set: tuple[Vm, ...], tmp_path: Path, type_: EventType
) -> None:
    async with dask_on(scale_set[0], tmp_path) as node:
        (event,) = service.schedule(type_, scale_set[0], notice="15m")
        service.advance("901s")
        assert service.statuses(scale_set[0]) == {event: "Started"}
        assert await node.ask() is Status.running


async def test_eviction_in_another_scope_does_not_close_the_worker(
    service: EmulatorProcess, scale_set: tuple[Vm, ...], another_scale_set: tuple[Vm, ...], tmp_path: Path
) -> None:
    """The plug-in does not look at Resources: it reacts to any event of its scope."""
    async with dask_on(scale_set[0], tmp_path) as node:
        (event,) = service.schedule(EventType.PREEMPT, another_scale_set[0], notice="30s")
        service.advance("31s")
        assert service.statuses(another_scale_set[0]) == {event: "Started"}
        assert await node.ask() is Status.running
