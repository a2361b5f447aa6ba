"""Memory per VM of a large fleet, above the same process with an empty one."""

import msgspec

from bench.fleets import Shape, address_of
from bench.guest_client import connect, send_request
from bench.measurements.callers import LARGE
from bench.process import resident_bytes
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import run_service_process
from bench.workspace import Workspace

TARGET_BYTES = 2048
EMPTY = Shape(scopes=0, vms_each=0)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet."""

    fleet: Shape = LARGE


FULL = Size()
QUICK = Size(fleet=Shape(scopes=200, vms_each=20))


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Measure both processes: after their start, and after every VM has polled once."""
    fleet = size.fleet
    data = workspace.shared_fleet(fleet)
    with run_service_process(Task(data=str(workspace.fleet(EMPTY)))) as served:
        empty = resident_bytes(served.pid)
    with run_service_process(Task(data=str(data))) as served:
        started = resident_bytes(served.pid)
        workspace.log(f"    started with {started / 2**20:.0f} MiB, empty {empty / 2**20:.0f} MiB; now every VM asks")
        _let_everyone_ask(served.port, fleet)
        asked = resident_bytes(served.pid)
        if (answered := served.counters().responses[200]) != fleet.vms:
            raise ValueError(f"{answered} of {fleet.vms} VMs were answered")
    each_started, each_asked = ((all_ - empty) / fleet.vms for all_ in (started, asked))
    return BenchmarkResult(
        what=f"memory per VM at {fleet.vms:,} VMs, above the empty process",
        measured=f"{each_started:,.0f} bytes when started, {each_asked:,.0f} when every VM has asked",
        target=f"≤ {TARGET_BYTES:,} bytes",
        met=max(each_started, each_asked) <= TARGET_BYTES,
        figures={
            "bytes_per_vm_started": round(each_started),
            "bytes_per_vm_asked": round(each_asked),
            "empty_bytes": empty,
            "started_bytes": started,
            "asked_bytes": asked,
        },
        note="resident size; each VM has a name, an id, a host, domains and one address; both figures must be met",
    )


def _let_everyone_ask(port: int, fleet: Shape) -> None:
    for scope in range(fleet.scopes):
        for vm in range(fleet.vms_each):
            with connect(port, address_of(fleet, scope, vm)) as connection:
                send_request(connection)
