"""Many long polls: time from a change until all are answered."""

import time
from statistics import median

import msgspec

from bench import burst
from bench.figures import rounded
from bench.fleets import Shape, address_of, vm_name
from bench.process import run_child
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_SECONDS = 1.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of waiting VMs, scopes and rounds."""

    fleet: Shape = Shape(scopes=10, vms_each=1_000)
    rounds: int = 5


FULL = Size()
QUICK = Size(fleet=Shape(scopes=2, vms_each=100), rounds=1)


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Start a long poll of every VM, then change all scopes with one request of an operator."""
    fleet = size.fleet
    seconds: list[float] = []
    with run_service_process(Task(data=str(workspace.fleet(fleet)))) as served:
        for number in range(1, size.rounds + 1):
            seconds.append(_change(served, fleet, vm=number))
            workspace.log(f"    round {number} of {size.rounds}: {seconds[-1]:.3f} s")
    return BenchmarkResult(
        what=f"{fleet.vms:,} held `wait` requests: change → all answered",
        measured=f"{median(seconds):.3f} s (worst of {size.rounds}: {max(seconds):.3f} s)",
        target=f"≤ {TARGET_SECONDS:.0f} s",
        met=max(seconds) <= TARGET_SECONDS,
        figures={"seconds": rounded(seconds, 3)},
        note=(
            f"{fleet.scopes} scopes of {fleet.vms_each:,} VMs, one request held per VM; the change is one operator's "
            f"request that makes an event in every scope, saved in SQLite; from that request to the last answer read"
        ),
    )


def _change(served: ServiceProcess, fleet: Shape, *, vm: int) -> float:
    sources = tuple(address_of(fleet, scope, each) for scope in range(fleet.scopes) for each in range(fleet.vms_each))
    task = burst.Task(port=served.port, sources=sources, contains=f"_{vm}")
    with run_child("bench.burst", task) as talk:
        talk.receive(burst.RequestsSent)
        served.wait_for_long_polls(fleet.vms)
        changed_at = time.monotonic()
        served.schedule(tuple(vm_name(scope, vm) for scope in range(fleet.scopes)))
        answered = talk.receive(burst.ResponsesReceived)
    if answered.wrong:
        raise ValueError(f"{answered.wrong} of {fleet.vms} guests got an unexpected response")
    return max(answered.answered_at) - changed_at
