"""GET per second, one process and one VM, compared with nginx and a constant response of the same size: with keep-alive
connections, and with a new connection for each request.
"""

from statistics import median

import msgspec

from bench import nginx, wrk
from bench.figures import format_number, ratio_of_rounds, rounded
from bench.fleets import Shape
from bench.guest_client import CLOSING_QUERY, QUERY, TARGET, Response
from bench.process import cpu_seconds
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import UNREACHED, ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_RATIO = 0.75
TARGET_RATIO_CLOSING = 0.8
ONE_VM = Shape(scopes=1, vms_each=1)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How long to measure."""

    rounds: int = 5
    seconds: int = 3
    connections: int = 32


FULL = Size()
QUICK = Size(rounds=1, seconds=1)


class Run(msgspec.Struct, frozen=True):
    """One run of wrk, and the processor time that the server under test used."""

    summary: wrk.Summary
    processor_seconds: float

    @property
    def per_second(self) -> float:
        """Responses per second."""
        return self.summary.per_second

    @property
    def microseconds_each(self) -> float:
        """Processor time per response in the server."""
        return self.processor_seconds / self.summary.requests * 1e6


def measure(workspace: Workspace, size: Size = FULL, *, is_closing: bool = False) -> BenchmarkResult:
    """Run wrk against both alternately. With `is_closing`, every request opens a new connection."""
    task = Task(data=str(workspace.fleet(ONE_VM)), requests_per_second=UNREACHED)
    query = CLOSING_QUERY if is_closing else QUERY
    with run_service_process(task) as served:
        answer = nginx.sample(served.port, query)
        with nginx.run_nginx(workspace.empty_directory(), answer, query) as constant:
            theirs, ours = _alternate(workspace, size, constant, served, answer.size, is_closing=is_closing)
    return _finding(size, answer, theirs, ours, is_closing=is_closing)


def _alternate(
    workspace: Workspace,
    size: Size,
    constant: nginx.Nginx,
    served: ServiceProcess,
    answer_bytes: int,
    *,
    is_closing: bool,
) -> tuple[list[Run], list[Run]]:
    theirs: list[Run] = []
    ours: list[Run] = []
    before = served.counters().responses[200]
    for number in range(1, size.rounds + 1):
        theirs.append(_ask(constant.port, constant.pid, size, answer_bytes, is_closing=is_closing))
        ours.append(_ask(served.port, served.pid, size, answer_bytes, is_closing=is_closing))
        workspace.log(
            f"    round {number} of {size.rounds}: nginx {format_number(theirs[-1].per_second)}/s, "
            f"Forewarn {format_number(ours[-1].per_second)}/s"
        )
    if served.counters().responses[200] - before < sum(run.summary.requests for run in ours):
        raise ValueError("Forewarn has counted fewer answers than wrk")
    return theirs, ours


def _ask(port: int, pid: int, size: Size, answer_bytes: int, *, is_closing: bool) -> Run:
    before = cpu_seconds(pid)
    command = wrk.command(
        port, connections=size.connections, seconds=size.seconds, target=TARGET, is_closing=is_closing
    )
    summary = wrk.run(command)
    used = cpu_seconds(pid) - before
    wrk.check(summary, answer_bytes=answer_bytes, connections=size.connections)
    return Run(summary, used)


def _finding(size: Size, answer: Response, theirs: list[Run], ours: list[Run], *, is_closing: bool) -> BenchmarkResult:
    their_rates, our_rates = ([run.per_second for run in runs] for runs in (theirs, ours))
    their_costs, our_costs = ([run.microseconds_each for run in runs] for runs in (theirs, ours))
    ratio = ratio_of_rounds(our_rates, their_rates)
    target = TARGET_RATIO_CLOSING if is_closing else TARGET_RATIO
    way, option = (", a new connection for each", " -H 'Connection: close'") if is_closing else ("", "")
    return BenchmarkResult(
        what=f"GET/s{way}, one process, one VM, against nginx",
        measured=f"{ratio:.2f} × nginx ({format_number(median(our_rates))}/s : {format_number(median(their_rates))}/s)",
        target=f"≥ {target} × nginx",
        met=ratio >= target,
        figures={
            "ratio": round(ratio, 3),
            "forewarn_per_second": rounded(our_rates),
            "nginx_per_second": rounded(their_rates),
            "forewarn_processor_microseconds": rounded(our_costs, 2),
            "nginx_processor_microseconds": rounded(their_costs, 2),
            "answer_bytes": answer.size,
        },
        note=(
            f"wrk -t1 -c{size.connections} -d{size.seconds}s{option} against both in turn, median of {size.rounds} "
            f"rounds' ratios; every answer a 200 of {answer.size} bytes with {len(answer.headers)} headers; production "
            f"limits, the rate limit on but so high that it refuses nothing; processor time per answer: Forewarn "
            f"{median(our_costs):.1f} µs, nginx {median(their_costs):.1f} µs"
        ),
    )
