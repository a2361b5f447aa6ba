"""Guest latency and event lateness during a fleet export and import, compared with an idle operator."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from statistics import median

import msgspec

from bench import fleet_import, paced_load
from bench.figures import percentile
from bench.fleets import Shape, address_of, vm_name
from bench.journal import Start, starts
from bench.process import run_child
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_RATIO = 2.0

UNNOTICED_MS = 20.0
"""A p99 of lateness below this counts as met, whatever the ratio: a rise from 1 to 10 ms does no harm."""
AHEAD = timedelta(seconds=2)
"""How long before its NotBefore an event is scheduled."""

SHORTEST = 3.0
"""Minimum seconds of a phase, so that some events become due in it; a full import takes far longer."""

JOURNAL_MS = 1.0
"""The journal has lateness in whole milliseconds: less counts as one."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet, number of guests and their request rate, and rate of events."""

    fleet: Shape = Shape(scopes=5_000, vms_each=20)
    callers: int = 500
    per_second: float = 500.0
    events_per_second: int = 10
    rest_seconds: float = 30.0


FULL = Size()
QUICK = Size(fleet=Shape(scopes=50, vms_each=20), callers=20, per_second=50.0, rest_seconds=4.0)


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Response times of guests and lateness of events, in milliseconds."""

    answers: list[float]
    lateness: list[float]


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Let guests poll and events start: at rest, during export and import, and at rest again."""
    data = workspace.fleet(size.fleet)
    worked: list[fleet_import.ImportFinished] = []
    with run_service_process(Task(data=str(data))) as served:
        events = Events(served, size)
        rest = partial(time.sleep, size.rest_seconds)
        work = lambda: worked.append(import_fleet(served))  # noqa: E731 - a name for one of three things to do
        phases = [_phase(served, size, events, do) for do in (rest, work, rest)]
    late = starts(data)
    before, busy, after = (Phase(answers=took, lateness=_within(late, span)) for took, span in phases)
    at_rest = Phase(answers=before.answers + after.answers, lateness=before.lateness + after.lateness)
    return _finding(size, at_rest, busy, worked[0])


class Span(msgspec.Struct, frozen=True):
    """Start and end of a phase."""

    began_at: datetime
    ended_at: datetime


class Events:
    """Events that become due continuously, a few every second, each in a different scope."""

    def __init__(self, served: ServiceProcess, size: Size) -> None:
        self._served = served
        self._size = size
        self._scopes = (number % size.fleet.scopes for number in count())

    @contextmanager
    def schedule_continuously(self) -> Iterator[None]:
        """Let events start while the context is open."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._make, args=(is_over,))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _make(self, is_over: threading.Event) -> None:
        while not is_over.wait(1.0):
            vms = tuple(vm_name(next(self._scopes), 0) for _ in range(self._size.events_per_second))
            self._served.schedule(vms, not_before=(datetime.now(UTC) + AHEAD).replace(microsecond=0))


def _phase(served: ServiceProcess, size: Size, events: Events, do: Callable[[], None]) -> tuple[list[float], Span]:
    with events.schedule_continuously():
        time.sleep(AHEAD.total_seconds() * 2)
        sources = tuple(address_of(size.fleet, scope) for scope in range(size.callers))
        task = paced_load.Task(port=served.port, sources=sources, per_second=size.per_second)
        with run_child("bench.paced_load", task) as talk:
            talk.receive(paced_load.Began)
            began_at = datetime.now(UTC)
            do()
            time.sleep(max(0.0, SHORTEST - (datetime.now(UTC) - began_at).total_seconds()))
            span = Span(began_at, datetime.now(UTC))
            talk.close()
            done = talk.receive(paced_load.Done)
    if done.wrong:
        raise ValueError(f"{done.wrong} guests got an unexpected response")
    return [seconds * 1000 for seconds in done.took], span


def import_fleet(served: ServiceProcess) -> fleet_import.ImportFinished:
    """Export the fleet, change every VM, and import it, from another process."""
    mark = f"rack{datetime.now(UTC):%H%M%S}"
    with run_child(
        "bench.fleet_import", fleet_import.Task(url=served.operator_url, token=served.token, mark=mark)
    ) as talk:
        return talk.receive(fleet_import.ImportFinished)


def _within(late: Sequence[Start], span: Span) -> list[float]:
    found = [max(start.late * 1000, JOURNAL_MS) for start in late if span.began_at <= start.at <= span.ended_at]
    if not found:
        raise ValueError("no event became due: the phase was too short")
    return found


def _finding(size: Size, rest: Phase, busy: Phase, worked: fleet_import.ImportFinished) -> BenchmarkResult:
    if worked.changed < size.fleet.vms or worked.refused:
        raise ValueError(f"the import has changed {worked.changed} VMs of {size.fleet.vms}, refused {worked.refused}")
    answers = percentile(busy.answers, 99) / percentile(rest.answers, 99)
    lateness = percentile(busy.lateness, 99) / percentile(rest.lateness, 99)
    return BenchmarkResult(
        what=f"guests and clock while {size.fleet.vms:,} VMs are exported and imported, against the same at rest",
        measured=f"answers p99 {answers:.2f} ×, lateness of starts p99 {lateness:.2f} ×",
        target=f"both ≤ {TARGET_RATIO:.0f} ×, or lateness below {UNNOTICED_MS:.0f} ms",
        met=answers <= TARGET_RATIO and (lateness <= TARGET_RATIO or percentile(busy.lateness, 99) < UNNOTICED_MS),
        figures={
            "answers_ratio": round(answers, 3),
            "lateness_ratio": round(lateness, 3),
            **_figures("rest", rest),
            **_figures("busy", busy),
            "export_seconds": round(worked.export_seconds, 2),
            "import_seconds": round(worked.import_seconds, 2),
            "file_bytes": worked.file_bytes,
        },
        note=(
            f"{size.per_second:.0f} questions/s of {size.callers} guests, {size.events_per_second} events due every "
            f"second; p99 of answers {percentile(rest.answers, 99):.2f} → {percentile(busy.answers, 99):.2f} ms, of "
            f"lateness {percentile(rest.lateness, 99):.0f} → {percentile(busy.lateness, 99):.0f} ms; export "
            f"{worked.export_seconds:.1f} s, import {worked.import_seconds:.1f} s of {worked.file_bytes >> 20} MiB, "
            "every VM changed"
        ),
    )


def _figures(name: str, phase: Phase) -> dict[str, float]:
    return {
        f"{name}_answer_p99_ms": round(percentile(phase.answers, 99), 3),
        f"{name}_answer_median_ms": round(median(phase.answers), 3),
        f"{name}_answer_worst_ms": round(max(phase.answers), 3),
        f"{name}_late_p99_ms": round(percentile(phase.lateness, 99), 1),
        f"{name}_late_median_ms": round(median(phase.lateness), 1),
        f"{name}_late_worst_ms": round(max(phase.lateness), 1),
    }
