"""Answers to guests of a cluster: while the cell changes, against a single machine; and two hosts against one."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import cycle
from statistics import fmean, median
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import uvloop

from bench import wrk
from bench.cluster import open_store, run_processes, settings_of
from bench.figures import format_number, ratio_of_rounds, rounded
from bench.fleets import Shape, encode, make_scope
from bench.guest_client import TARGET
from bench.modes import ModeResults
from bench.process import TIMEOUT, cpu_seconds, pin
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import UNREACHED, run_service_process
from bench.workspace import Workspace
from forewarn.core.scope import Scope
from forewarn.core.vm import Roster
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import RecordKey, RecordKind
from tests.support.cluster import ClusterProcesses

BUSY_RATIO = 0.95
TWO_RATIO = 1.7
CORES = 2
FLEET = """
[[scopes]]
name = "web"
kind = "availability-set"
vms = [{ name = "web-0", host = "hv-0" }, { name = "web-1", host = "hv-1", update_domain = 1 }]
"""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure, and how many changes flow."""

    rounds: int = 5
    seconds: int = 3
    connections: int = 32
    changes_per_second: int = 200
    scopes: int = 50


FULL = Size()
QUICK = Size(rounds=1, seconds=1)


class Run(msgspec.Struct, frozen=True):
    """Responses per second, and per second of processor time of the process that answers."""

    per_second: float
    per_processor_second: float


class BusyRuns(NamedTuple):
    """The rounds of a host and of a single machine, in turn, while changes flow."""

    hosts: list[Run]
    singles: list[Run]

    @property
    def ratio(self) -> float:
        """How many responses per second the host gives, against the single machine."""
        return ratio_of_rounds((run.per_second for run in self.hosts), (run.per_second for run in self.singles))

    def describe(self) -> str:
        """Return ratio and medians."""
        host, single = (median(run.per_second for run in runs) for runs in self)
        return f"{self.ratio:.2f} × ({format_number(host)}/s : {format_number(single)}/s)"


def measure_busy(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Ask a host of the cell that changes, and a single machine beside it, in turn."""
    found = ModeResults(lambda mode: _ask_busy(workspace, size, mode))
    return BenchmarkResult(
        what=f"cluster: GET/s of a host while {size.changes_per_second} changes/s flow, against a single machine",
        measured=found.describe(BusyRuns.describe),
        target=f"≥ {BUSY_RATIO} ×",
        met=found.all(lambda runs: runs.ratio >= BUSY_RATIO),
        figures=found.figures(
            ratio=lambda runs: round(runs.ratio, 3),
            host_per_second=lambda runs: rounded(run.per_second for run in runs.hosts),
            single_per_second=lambda runs: rounded(run.per_second for run in runs.singles),
        ),
        note=(
            "wrk against both in turn, while the changes flow; one in ten is of a scope of the host. NATS servers, "
            "control node, the source of changes and wrk share the processors with both alike"
        ),
    )


def _ask_busy(workspace: Workspace, size: Size, mode: str) -> BusyRuns:
    found = BusyRuns([], [])
    task = Task(data=str(workspace.fleet(Shape(scopes=1, vms_each=1))), requests_per_second=UNREACHED)
    with run_service_process(task) as single, run_processes(workspace, FLEET, mode=mode, controls=1) as cluster:
        address = _address(cluster, "web-0")
        for number in range(1, size.rounds + 1):
            with _changes(workspace, cluster, size) as saved:
                found.singles.append(_ask(("127.0.0.1", single.port), single.pid, size))
                found.hosts.append(_ask(address, cluster.hosts["hv-0"].pid, size))
            workspace.log(
                f"    {mode}, round {number} of {size.rounds}: single {format_number(found.singles[-1].per_second)}/s, "
                f"host {format_number(found.hosts[-1].per_second)}/s with {len(saved) / size.seconds / 2:.0f} changes/s"
            )
    return found


class PinnedHost(NamedTuple):
    """A host that runs on one processor alone."""

    address: tuple[str, int]
    pid: int
    core: int


class TwoHostsRuns(NamedTuple):
    """The rounds of each host alone, and of both at once."""

    alone: list[list[Run]]
    both: list[list[Run]]

    @property
    def ratio(self) -> float:
        """How many responses per second both hosts give, against the mean of each host alone."""
        return self._ratio(lambda run: run.per_second)

    @property
    def processor_ratio(self) -> float:
        """The same per second of processor time of the hosts."""
        return self._ratio(lambda run: run.per_processor_second)

    def describe(self) -> str:
        """Return ratio and medians."""
        both, alone = median(map(_total, self.both)), median(_total(runs) / CORES for runs in self.alone)
        return f"{self.ratio:.2f} × ({format_number(both)}/s : {format_number(alone)}/s)"

    def _ratio(self, figure: Callable[[Run], float]) -> float:
        return ratio_of_rounds(
            (sum(map(figure, runs)) for runs in self.both), (fmean(map(figure, runs)) for runs in self.alone)
        )


def measure_two_hosts(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Ask each of two hosts alone, and then both at once; each has a processor of its own."""
    found = ModeResults(lambda mode: _ask_two_hosts(workspace, size, mode))
    return BenchmarkResult(
        what="cluster: GET/s of two hosts on two processors, against one host on one",
        measured=found.describe(TwoHostsRuns.describe),
        target=f"≥ {TWO_RATIO} ×",
        met=found.all(lambda runs: runs.ratio >= TWO_RATIO),
        figures=found.figures(
            ratio=lambda runs: round(runs.ratio, 3),
            processor_ratio=lambda runs: round(runs.processor_ratio, 3),
            one_per_second=lambda runs: rounded(run.per_second for alone in runs.alone for run in alone),
            two_per_second=lambda runs: rounded(map(_total, runs.both)),
        ),
        note=(
            "by the clock; each host is pinned to a processor together with its own wrk, so that wrk takes the same "
            "part of one processor and of two; one: the mean of each host alone"
        ),
    )


def _ask_two_hosts(workspace: Workspace, size: Size, mode: str) -> TwoHostsRuns:
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES:
        raise ValueError(f"this measurement needs {CORES} processors")
    found = TwoHostsRuns([], [])
    with run_processes(workspace, FLEET, mode=mode, controls=1) as cluster, ThreadPoolExecutor(CORES) as pool:
        hosts = [
            PinnedHost(_address(cluster, f"web-{n}"), cluster.hosts[f"hv-{n}"].pid, core)
            for n, core in enumerate(cores)
        ]
        for host in hosts:
            pin(host.pid, host.core)
        for number in range(1, size.rounds + 1):
            found.alone.append([_ask(host.address, host.pid, size, core=host.core) for host in hosts])
            found.both.append(list(pool.map(lambda host: _ask(host.address, host.pid, size, core=host.core), hosts)))
            one, two = _total(found.alone[-1]) / CORES, _total(found.both[-1])
            workspace.log(
                f"    {mode}, round {number} of {size.rounds}: one {format_number(one)}/s, two {format_number(two)}/s"
            )
    return found


def _total(runs: list[Run]) -> float:
    return sum(run.per_second for run in runs)


def _address(cluster: ClusterProcesses, vm: str) -> tuple[str, int]:
    """Return the address of a VM's endpoint."""
    api = cluster.api(cluster.controls[0])
    deadline = time.monotonic() + TIMEOUT
    while (url := api.vm(vm).guest_url) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{vm} has no endpoint")
        time.sleep(0.05)
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def _ask(address: tuple[str, int], pid: int, size: Size, *, core: int | None = None) -> Run:
    host, port = address
    typed = wrk.command(port, connections=size.connections, seconds=size.seconds, target=TARGET, host=host, core=core)
    before = cpu_seconds(pid)
    summary = wrk.run(typed)
    used = cpu_seconds(pid) - before
    if summary.errors.total:
        raise ValueError(f"not every request had a good answer: {summary.errors}")
    return Run(summary.per_second, summary.requests / used)


@contextmanager
def _changes(workspace: Workspace, cluster: ClusterProcesses, size: Size) -> Iterator[list[float]]:
    """Let changes flow in the cell while the context is open; yield when each was saved."""
    saved: list[float] = []
    is_over, has_begun = threading.Event(), threading.Event()

    async def change() -> None:
        async with open_store(workspace, settings_of(cluster, cluster.controls[0])) as store:
            scopes = [_scope(number, size) for number in range(size.scopes)]
            revisions = [await _load_revision(store, scope.id) for scope in scopes]
            has_begun.set()
            next_at = time.monotonic()
            for number in cycle(range(size.scopes)):
                if is_over.is_set():
                    return
                scope = scopes[number] = msgspec.structs.replace(
                    scopes[number], incarnation=scopes[number].incarnation + 1
                )
                key = RecordKey(RecordKind.SCOPE, scope.id)
                revisions[number] = await store.save(key, encode(scope), [], expected=revisions[number])
                saved.append(time.monotonic())
                next_at += 1 / size.changes_per_second
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(lambda: uvloop.run(change()))
        has_begun.wait(TIMEOUT)
        try:
            yield saved
        finally:
            is_over.set()
            changing.result(TIMEOUT)


def _scope(number: int, size: Size) -> Scope:
    """Return a scope of 20 VMs; one in ten scopes has its VMs on the host that is measured."""
    scope = make_scope(Shape(scopes=size.scopes, vms_each=20), number, now=datetime.now(UTC))
    host = "hv-0" if number % 10 == 0 else "hv-other"
    vms = (msgspec.structs.replace(vm, host=host) for vm in scope.roster)
    return msgspec.structs.replace(scope, roster=Roster(tuple(vms)))


async def _load_revision(store: NatsStore, scope: str) -> int | None:
    record = await store.load(RecordKey(RecordKind.SCOPE, scope))
    return None if record is None else record.revision
