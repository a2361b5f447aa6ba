"""Many approvals at once on one large scope, each over its own connection: how long until all are answered."""

from statistics import median

import msgspec

from bench import burst
from bench.figures import rounded
from bench.fleets import UPDATE_DOMAINS, Shape, address_of, vm_name
from bench.process import run_child
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace
from forewarn.core.scope import ApprovalRule
from forewarn.wire.approval import encode_approval

TARGET_SECONDS = 1.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the scope, and number of rounds."""

    vms: int = 1_000
    rounds: int = 5


FULL = Size()
QUICK = Size(vms=100, rounds=1)


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Let all VMs of an update domain approve their event at once, with a policy that requires all approvals."""
    fleet = Shape(scopes=size.rounds, vms_each=size.vms, approval=ApprovalRule.ALL)
    approvers = range(0, size.vms, UPDATE_DOMAINS)
    seconds: list[float] = []
    with run_service_process(Task(data=str(workspace.fleet(fleet)))) as served:
        for scope in range(size.rounds):
            seconds.append(_approve(served, fleet, scope, approvers))
            workspace.log(f"    round {scope + 1} of {size.rounds}: {seconds[-1]:.3f} s")
    return BenchmarkResult(
        what=f"{len(approvers)} approvals at once on a {size.vms:,}-VM scope, all answered",
        measured=f"{median(seconds):.3f} s (worst of {size.rounds}: {max(seconds):.3f} s)",
        target=f"≤ {TARGET_SECONDS:.0f} s",
        met=max(seconds) <= TARGET_SECONDS,
        figures={"seconds": rounded(seconds, 3)},
        note=(
            "over HTTP on SQLite, a connection and a source address each; every affected VM has to approve, so that "
            "every approval changes the record; from the first request sent to the last answer; production limits"
        ),
    )


def _approve(served: ServiceProcess, fleet: Shape, scope: int, approvers: range) -> float:
    ((_, event),) = served.schedule(tuple(vm_name(scope, vm) for vm in approvers))
    sources = tuple(address_of(fleet, scope, vm) for vm in approvers)
    task = burst.Task(port=served.port, sources=sources, body=encode_approval([event]).decode())
    with run_child("bench.burst", task) as talk:
        talk.receive(burst.RequestsSent)
        answered = talk.receive(burst.ResponsesReceived)
    if answered.wrong:
        raise ValueError(f"{answered.wrong} of {len(approvers)} approvals were refused")
    return max(answered.answered_at) - answered.began_at
