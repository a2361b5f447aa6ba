"""GET per second with a large fleet and many callers, against one VM that is alone; the same generator for both."""

from collections.abc import Mapping
from statistics import median

import msgspec

from bench import load
from bench.figures import thousands
from bench.finding import Finding, per_second
from bench.fleets import Shape, address_of
from bench.measurements.throughput import ONE_VM
from bench.process import talking
from bench.served import UNREACHED, Served, serving
from bench.service import Task
from bench.workplace import Workplace

TARGET_RATIO = 0.9
LARGE = Shape(scopes=5_000, vms_each=20)


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How large the fleet is and how long to measure."""

    fleet: Shape = LARGE
    callers: int = 1_000
    in_flight: int = 32
    rounds: int = 5
    seconds: float = 3.0


FULL = Size()
QUICK = Size(fleet=Shape(scopes=100, vms_each=20), callers=100, rounds=1, seconds=1.0)


class Run(msgspec.Struct, frozen=True):
    """One run of the generator, and the share of a processor that the process under test had meanwhile."""

    done: load.Done
    processor_seconds: float

    @property
    def share(self) -> float:
        """How busy the process under test was: 1 is a whole processor."""
        return self.processor_seconds / self.done.seconds

    @property
    def microseconds_each(self) -> float:
        """Processor time per answer in the process under test."""
        return self.processor_seconds / self.done.answers * 1e6


def measure(place: Workplace, size: Size = FULL) -> Finding:
    """Let the generator ask both in turn, over as many connections and with as many requests in flight."""
    many = tuple(address_of(size.fleet, scope) for scope in range(size.callers))
    one = (address_of(ONE_VM, 0),)
    large = Task(data=str(place.kept_fleet(size.fleet)), requests_per_second=UNREACHED)
    # A single VM may have fewer connections in production: here both sides need as many.
    alone = Task(data=str(place.fleet(ONE_VM)), requests_per_second=UNREACHED, connections_per_vm=size.callers)
    with serving(alone) as served_alone, serving(large) as served_large:
        cases = {
            "few": (served_alone, one * size.in_flight),
            "one": (served_alone, one * size.callers),
            "many": (served_large, many),
        }
        runs = _alternate(place, size, cases)
    return _finding(size, runs)


def _alternate(
    place: Workplace, size: Size, cases: Mapping[str, tuple[Served, tuple[str, ...]]]
) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {name: [] for name in cases}
    for number in range(1, size.rounds + 1):
        for name, (served, sources) in cases.items():
            runs[name].append(_run(served, sources, size))
        said = ", ".join(f"{name} {thousands(some[-1].done.per_second)}/s" for name, some in runs.items())
        place.say(f"    round {number} of {size.rounds}: {said}")
    return runs


def _run(served: Served, sources: tuple[str, ...], size: Size) -> Run:
    task = load.Task(port=served.port, sources=sources, in_flight=size.in_flight, seconds=size.seconds)
    with talking("bench.load", task) as talk:
        talk.hear(load.Began)
        before = served.cpu_seconds()
        done = talk.hear(load.Done)
        used = served.cpu_seconds() - before
    if done.wrong:
        raise ValueError(f"{done.wrong} of {done.answers} answers were not what they should be")
    return Run(done, used)


def _finding(size: Size, runs: Mapping[str, list[Run]]) -> Finding:
    rate = {name: median(run.done.per_second for run in some) for name, some in runs.items()}
    ratio = rate["many"] / rate["one"]
    return Finding(
        what=f"the same with {size.fleet.vms:,} VMs in {size.fleet.scopes:,} scopes and {size.callers:,} callers",
        measured=f"{ratio:.2f} × one VM ({thousands(rate['many'])}/s : {thousands(rate['one'])}/s)",
        target=f"≥ {TARGET_RATIO} × one VM",
        met=ratio >= TARGET_RATIO,
        figures={
            "ratio": round(ratio, 3),
            "ratio_to_few_connections": round(rate["many"] / rate["few"], 3),
            **{f"{name}_per_second": per_second([run.done.per_second for run in some]) for name, some in runs.items()},
            **{f"{name}_server_share": _shares(some) for name, some in runs.items()},
            **{f"{name}_server_microseconds": _microseconds(some) for name, some in runs.items()},
            **{f"{name}_generator_share": _generator_shares(some) for name, some in runs.items()},
        },
        note="",
    )


def _shares(runs: list[Run]) -> list[float]:
    return [round(run.share, 2) for run in runs]


def _microseconds(runs: list[Run]) -> list[float]:
    return [round(run.microseconds_each, 2) for run in runs]


def _generator_shares(runs: list[Run]) -> list[float]:
    return [round(run.done.processor_seconds / run.done.seconds, 2) for run in runs]
