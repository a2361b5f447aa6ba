"""Cost of a service per test: start, stop, and the whole lifecycle of an event."""

import time
from collections.abc import Callable
from statistics import median

import msgspec

from bench.figures import percentile, rounded
from bench.result import BenchmarkResult
from bench.workspace import Workspace
from forewarn.testing import Forewarn

TARGET_START_MS = 150.0
TARGET_ADVANCE_MS = 20.0


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of rounds."""

    rounds: int = 100


FULL = Size()
QUICK = Size(rounds=10)


def measure_start(_: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Start a service with the demonstration fleet repeatedly, as the fixture does for each test."""
    first = _milliseconds(_started_and_stopped)
    starts: list[float] = []
    stops: list[float] = []
    for _round in range(size.rounds):
        forewarn = Forewarn()
        starts.append(_milliseconds(forewarn.start))
        stops.append(_milliseconds(forewarn.stop))
    return BenchmarkResult(
        what="start of the pytest fixture: a service with 15 VMs on ports of their own",
        measured=f"{median(starts):.0f} ms (99 %: {percentile(starts, 99):.0f} ms); its end {median(stops):.0f} ms",
        target=f"≤ {TARGET_START_MS:.0f} ms",
        met=percentile(starts, 99) <= TARGET_START_MS,
        figures={"start_ms": rounded(starts, 1), "stop_ms": rounded(stops, 1), "first_ms": round(first)},
        note=f"the first one of a process takes {first:.0f} ms: it puts the operator API together, once for all",
    )


def measure_advance(_: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Advance over notice, start, reboot and end of an event, as a test does that has scheduled it."""
    lives: list[float] = []
    with Forewarn() as forewarn:
        for _round in range(size.rounds):
            event = forewarn.schedule("Reboot", "web-0", notice="15m")
            lives.append(_milliseconds(lambda: forewarn.advance("20m")))
            if event.state != "completed":
                raise ValueError(f"the event is {event.state}")
    return BenchmarkResult(
        what="advance over the whole life of an event, by the operator API",
        measured=f"{median(lives):.1f} ms (99 %: {percentile(lives, 99):.1f} ms)",
        target=f"≤ {TARGET_ADVANCE_MS:.0f} ms",
        met=percentile(lives, 99) <= TARGET_ADVANCE_MS,
        figures={"advance_ms": rounded(lives, 2)},
        note="20 minutes by the service's clock: the notice, the start, the reboot, the end",
    )


def _started_and_stopped() -> None:
    with Forewarn():
        pass


def _milliseconds(act: Callable[[], object]) -> float:
    began_at = time.perf_counter()
    act()
    return (time.perf_counter() - began_at) * 1000
