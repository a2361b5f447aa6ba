"""GET per second with a large fleet and many callers, compared with a single VM; the same generator for both."""

from collections.abc import Mapping
from statistics import median

import msgspec

from bench import load
from bench.figures import format_number, ratio_of_rounds, rounded
from bench.fleets import Shape, address_of
from bench.measurements.throughput import ONE_VM
from bench.process import cpu_seconds, run_child
from bench.result import BenchmarkResult, Figure
from bench.service_main import Task
from bench.service_process import UNREACHED, ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_RATIO = 0.9
LARGE = Shape(scopes=5_000, vms_each=20)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet and duration: many short rounds, because the difference is small."""

    fleet: Shape = LARGE
    callers: int = 1_000
    in_flight: int = 32
    rounds: int = 15
    seconds: float = 1.0


FULL = Size()
QUICK = Size(fleet=Shape(scopes=100, vms_each=20), callers=100, rounds=1, seconds=1.0)


class Run(msgspec.Struct, frozen=True):
    """One run of the generator, and the processor time that the process under test used."""

    done: load.Done
    processor_seconds: float

    @property
    def share(self) -> float:
        """Processor usage of the process under test; 1 is one full processor."""
        return self.processor_seconds / self.done.seconds

    @property
    def generator_share(self) -> float:
        """Processor usage of the generator."""
        return self.done.processor_seconds / self.done.seconds

    @property
    def microseconds_each(self) -> float:
        """Processor time per response in the process under test."""
        return self.processor_seconds / self.done.answers * 1e6


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Load both in turn, with the same number of connections and of requests in flight."""
    many = tuple(address_of(size.fleet, scope) for scope in range(size.callers))
    one = (address_of(ONE_VM, 0),)
    large = Task(data=str(workspace.shared_fleet(size.fleet)), requests_per_second=UNREACHED)
    # In production, a single VM may have fewer connections: here both sides need the same number.
    alone = Task(data=str(workspace.fleet(ONE_VM)), requests_per_second=UNREACHED, connections_per_vm=size.callers)
    with run_service_process(alone) as served_alone, run_service_process(large) as served_large:
        cases = {
            "few": (served_alone, one * size.in_flight),
            "one": (served_alone, one * size.callers),
            "many": (served_large, many),
        }
        runs = _alternate(workspace, size, cases)
    return _finding(size, runs)


def _alternate(
    workspace: Workspace, size: Size, cases: Mapping[str, tuple[ServiceProcess, tuple[str, ...]]]
) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in cases}
    for number in range(1, size.rounds + 1):
        for name, (served, sources) in cases.items():
            runs[name].append(_run(served, sources, size))
        said = ", ".join(f"{name} {format_number(some[-1].done.per_second)}/s" for name, some in runs.items())
        workspace.log(f"    round {number} of {size.rounds}: {said}")
    return runs


def _run(served: ServiceProcess, sources: tuple[str, ...], size: Size) -> Run:
    task = load.Task(port=served.port, sources=sources, in_flight=size.in_flight, seconds=size.seconds)
    with run_child("bench.load", task) as talk:
        talk.receive(load.Began)
        before = cpu_seconds(served.pid)
        done = talk.receive(load.Done)
        used = cpu_seconds(served.pid) - before
    if done.wrong:
        raise ValueError(f"{done.wrong} of {done.answers} answers were not what they should be")
    return Run(done, used)


def _finding(size: Size, runs: Mapping[str, list[Run]]) -> BenchmarkResult:
    rates = {name: [run.done.per_second for run in some] for name, some in runs.items()}
    ratio = ratio_of_rounds(rates["many"], rates["one"])
    to_few = ratio_of_rounds(rates["many"], rates["few"])
    many = runs["many"]
    return BenchmarkResult(
        what=f"the same with {size.fleet.vms:,} VMs in {size.fleet.scopes:,} scopes and {size.callers:,} callers",
        measured=(
            f"{ratio:.2f} × one VM ({format_number(median(rates['many']))}/s : {format_number(median(rates['one']))}/s)"
        ),
        target=f"≥ {TARGET_RATIO} × one VM",
        met=ratio >= TARGET_RATIO,
        figures={"ratio": round(ratio, 3), "ratio_to_few_connections": round(to_few, 3), **_figures(runs)},
        note=(
            f"our own generator, {size.callers:,} connections and {size.in_flight} requests in flight for both; "
            f"with many callers the service used {median(run.share for run in many):.2f} of a processor, the "
            f"generator {median(run.generator_share for run in many):.2f}; one VM over {size.in_flight} connections: "
            f"{format_number(median(rates['few']))}/s, and the many are {to_few:.2f} × that; production limits, but "
            f"for the rate (on, and out of reach) and for the connections of the one VM"
        ),
    )


def _figures(runs: Mapping[str, list[Run]]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for name, some in runs.items():
        figures[f"{name}_per_second"] = rounded(run.done.per_second for run in some)
        figures[f"{name}_processor_microseconds"] = rounded((run.microseconds_each for run in some), 2)
        figures[f"{name}_server_share"] = rounded((run.share for run in some), 2)
        figures[f"{name}_generator_share"] = rounded((run.generator_share for run in some), 2)
    return figures
