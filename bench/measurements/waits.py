"""Very many held requests: how long from a change until all are answered."""

import time
from statistics import median

import msgspec

from bench import burst
from bench.figures import rounded
from bench.finding import Finding
from bench.fleets import Shape, address_of, vm_name
from bench.process import talking
from bench.served import Served, serving
from bench.service import Task
from bench.workplace import Workplace

TARGET_SECONDS = 1.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How many VMs wait, in how many scopes, and how often."""

    fleet: Shape = Shape(scopes=10, vms_each=1_000)
    rounds: int = 5


FULL = Size()
QUICK = Size(fleet=Shape(scopes=2, vms_each=100), rounds=1)


def measure(place: Workplace, size: Size = FULL) -> Finding:
    """Let every VM wait, then let one request of an operator change all scopes."""
    fleet = size.fleet
    seconds: list[float] = []
    with serving(Task(data=str(place.fleet(fleet)))) as served:
        for number in range(1, size.rounds + 1):
            seconds.append(_change(served, fleet, vm=number))
            place.say(f"    round {number} of {size.rounds}: {seconds[-1]:.3f} s")
    return Finding(
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


def _change(served: Served, fleet: Shape, *, vm: int) -> float:
    sources = tuple(address_of(fleet, scope, each) for scope in range(fleet.scopes) for each in range(fleet.vms_each))
    task = burst.Task(port=served.port, sources=sources, contains=f"_{vm}")
    with talking("bench.burst", task) as talk:
        talk.hear(burst.Asked)
        served.wait_until_held(fleet.vms)
        changed_at = time.monotonic()
        served.schedule(tuple(vm_name(scope, vm) for scope in range(fleet.scopes)))
        answered = talk.hear(burst.Answered)
    if answered.wrong:
        raise ValueError(f"{answered.wrong} of {fleet.vms} guests were told something else")
    return max(answered.answered_at) - changed_at
