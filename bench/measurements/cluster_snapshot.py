"""How long a process of a cluster takes to read what it needs, and how much memory a host uses."""

import asyncio
import time
from statistics import median
from typing import NamedTuple

import msgspec
import uvloop

from bench.cluster import fill_cell, open_store, run_cell, run_processes, settings_of
from bench.figures import rounded
from bench.fleets import Shape, scope_name
from bench.modes import ModeResults
from bench.process import TIMEOUT, resident_bytes
from bench.result import BenchmarkResult
from bench.workspace import Workspace
from forewarn.clock import SystemClock
from forewarn.core.policy import PRODUCTION
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.settings.nats import NatsSettings
from forewarn.store.nats.host_store import HostStore
from tests.support.cluster import ClusterProcesses

CONTROL_SECONDS = 4.0
HOST_SECONDS = 0.2
HOST_MEGABYTES = 20.0
MEGABYTE = 1024 * 1024
HOST, EMPTY_HOST = "hv-00-0", "hv-none"
HOSTS_IN_FLEET = 100
"""The scopes of a fleet are on so many groups of hosts, in turn."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the cell: a hundredth of its scopes has VMs on the host."""

    fleet: Shape = Shape(scopes=5_000, vms_each=20)
    rounds: int = 5


FULL = Size()
QUICK = Size(fleet=Shape(scopes=100, vms_each=20), rounds=1)


def measure_control(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Measure from the opened store until the replica of a control node has every scope."""
    found = ModeResults(lambda mode: uvloop.run(_fill_controls(workspace, size, mode)))
    return BenchmarkResult(
        what=f"cluster: snapshot of {size.fleet.scopes:,} scopes with {size.fleet.vms:,} VMs into a control node",
        measured=found.describe(lambda seconds: f"{median(seconds):.2f} s (worst {max(seconds):.2f} s)"),
        target=f"≤ {CONTROL_SECONDS:.0f} s",
        met=found.all(lambda seconds: max(seconds) <= CONTROL_SECONDS),
        figures=found.figures(seconds=lambda seconds: rounded(seconds, 3)),
        note=f"{size.rounds} control nodes one after the other in each mode; three NATS servers on this machine",
    )


async def _fill_controls(workspace: Workspace, size: Size, mode: str) -> list[float]:
    async with run_cell(workspace, mode=mode) as settings:
        async with open_store(workspace, settings) as store:
            await fill_cell(store, size.fleet)
        return [await _fill_control(workspace, settings, size) for _ in range(size.rounds)]


async def _fill_control(workspace: Workspace, settings: NatsSettings, size: Size) -> float:
    async with open_store(workspace, settings) as store:
        began_at = time.monotonic()
        platform = SimulatedPlatform(SystemClock(), hosts=tuple)
        async with Fleet.run(
            store=store, platform=platform, clock=SystemClock(), policy=PRODUCTION, has_duties=False
        ) as fleet:
            seconds = time.monotonic() - began_at
            if fleet.replica.vms != size.fleet.vms:
                raise ValueError(f"the replica has {fleet.replica.vms} VMs")
    workspace.log(f"    {seconds:.2f} s")
    return seconds


class HostRuns(NamedTuple):
    """How long each snapshot took, and how much larger the process is than that of a host without VMs."""

    seconds: list[float]
    megabytes: float

    @property
    def is_met(self) -> bool:
        """Whether time and memory are at their targets."""
        return max(self.seconds) <= HOST_SECONDS and self.megabytes <= HOST_MEGABYTES

    def describe(self) -> str:
        """Return time and memory."""
        return f"{median(self.seconds):.3f} s (worst {max(self.seconds):.3f} s), {self.megabytes:+.1f} MB"


def measure_host(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Measure from an empty directory until a host has its scopes, and the memory of its process."""
    found = ModeResults(lambda mode: uvloop.run(_follow_hosts(workspace, size, mode)))
    scopes = size.fleet.scopes // HOSTS_IN_FLEET
    return BenchmarkResult(
        what=f"cluster: snapshot of a host with VMs of {scopes} scopes, in a cell of {size.fleet.vms:,} VMs",
        measured=f"{found.describe(HostRuns.describe)} above a host without VMs",
        target=f"≤ {HOST_SECONDS} s, ≤ {HOST_MEGABYTES:.0f} MB",
        met=found.all(lambda runs: runs.is_met),
        figures=found.figures(
            seconds=lambda runs: rounded(runs.seconds, 4), megabytes=lambda runs: round(runs.megabytes, 2)
        ),
        note=(
            f"{size.rounds} snapshots in each mode, from an empty directory, with the connection, until the host has "
            "every scope on its disk; it has 4 VMs of each scope; memory: resident, of two `forewarn serve` processes "
            "after their start"
        ),
    )


async def _follow_hosts(workspace: Workspace, size: Size, mode: str) -> HostRuns:
    with run_processes(workspace, "scopes = []\n", mode=mode, controls=1, hosts=(HOST, EMPTY_HOST)) as cluster:
        settings = settings_of(cluster, cluster.controls[0])
        async with open_store(workspace, settings) as store:
            await fill_cell(store, size.fleet)
        scopes = [scope_name(number) for number in range(0, size.fleet.scopes, HOSTS_IN_FLEET)]
        seconds = [await _follow_host(workspace, cluster, scopes) for _ in range(size.rounds)]
        megabytes = await asyncio.to_thread(_compare_memory, cluster, len(scopes))
    return HostRuns(seconds, megabytes)


async def _follow_host(workspace: Workspace, cluster: ClusterProcesses, scopes: list[str]) -> float:
    settings = settings_of(cluster, cluster.hosts[HOST])
    began_at = time.monotonic()
    store = await HostStore.open(settings, HOST, workspace.empty_directory())
    try:
        store.follow(scopes)
        async with asyncio.timeout(TIMEOUT):
            await store.has_followed.wait()
        seconds = time.monotonic() - began_at
    finally:
        await store.aclose()
    workspace.log(f"    {seconds:.3f} s")
    return seconds


def _compare_memory(cluster: ClusterProcesses, scopes: int) -> float:
    """Start both hosts again, and return by how many megabytes one is larger."""
    bytes_of = {}
    for name, node in cluster.hosts.items():
        node.process.stop()
        service = node.start()
        if name == HOST and service.log[-1]["vms"] < scopes:
            raise ValueError(f"host {name} has {service.log[-1]['vms']} VMs")
        bytes_of[name] = resident_bytes(node.pid)
    return (bytes_of[HOST] - bytes_of[EMPTY_HOST]) / MEGABYTE
