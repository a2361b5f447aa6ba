"""Memory per VM of a large fleet, above the same process with an empty one."""

import msgspec

from bench.finding import Finding
from bench.fleets import Shape, address_of
from bench.guest import ask, connect
from bench.measurements.callers import LARGE
from bench.process import resident_bytes
from bench.served import serving
from bench.service import Task
from bench.workplace import Workplace

TARGET_BYTES = 2048
EMPTY = Shape(scopes=0, vms_each=0)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large the fleet is."""

    fleet: Shape = LARGE


FULL = Size()
QUICK = Size(fleet=Shape(scopes=200, vms_each=20))


def measure(place: Workplace, size: Size = FULL) -> Finding:
    """Weigh both processes: when they have started, and when every VM has asked once."""
    fleet = size.fleet
    data = place.kept_fleet(fleet)
    with serving(Task(data=str(place.fleet(EMPTY)))) as served:
        empty = resident_bytes(served.pid)
    with serving(Task(data=str(data))) as served:
        started = resident_bytes(served.pid)
        place.say(f"    started with {started / 2**20:.0f} MiB, empty {empty / 2**20:.0f} MiB; now every VM asks")
        _let_everyone_ask(served.port, fleet)
        asked = resident_bytes(served.pid)
        if (answered := served.look().answers[200]) != fleet.vms:
            raise ValueError(f"{answered} of {fleet.vms} VMs were answered")
    each_started, each_asked = ((all_ - empty) / fleet.vms for all_ in (started, asked))
    return Finding(
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
                ask(connection)
