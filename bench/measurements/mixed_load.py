"""Everything at once in a large fleet: how long guests wait for their documents, and the longest turn of the loop."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import msgspec

from bench import background_load, paced_load
from bench.figures import percentile
from bench.fleets import Shape, address_of
from bench.loop_monitor import Turns
from bench.measurements.fleet_import import Events, import_fleet
from bench.measurements.fleet_import import Size as EventsSize
from bench.process import run_child
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace
from forewarn.api import v1
from forewarn.api.client import ApiClient

TARGET_RATIO = 10.0
TARGET_TURN_MS = 20.0

READ_INTERVAL = 1.0
"""Seconds between two looks of the operator who lists events and VMs."""

NOTICE = "10s"
"""The notice of a wave of the campaign."""


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the fleet, request rate of the polling guests, and numbers of waiting guests and of watchers."""

    fleet: Shape = Shape(scopes=5_000, vms_each=20)
    callers: int = 1_000
    per_second: float = 2_000.0
    waiting: int = 1_000
    watchers: int = 10
    events_per_second: int = 10
    rest_seconds: float = 20.0
    scopes_at_once: int = 100
    """How many scopes the campaign works on at once."""


FULL = Size()
QUICK = Size(
    fleet=Shape(scopes=50, vms_each=20),
    callers=20,
    per_second=40.0,
    waiting=20,
    watchers=2,
    rest_seconds=4.0,
    scopes_at_once=5,
)


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Let guests poll alone; then with waiting guests, watchers, events, a campaign, an operator and an import."""
    data = workspace.fleet(size.fleet)
    with run_service_process(Task(data=str(data))) as served:
        alone = _poll(served, size, is_mixed=False)
        workspace.log(f"    alone: p99 {percentile(alone, 99):.2f} ms")
        with _background(served, size), Events(served, _events_size(size)).schedule_continuously(), _operator(served):
            _start_campaign(served, size)
            mixed = _poll(served, size, is_mixed=True)
            turns = served.turns()
    for turn in sorted(turns.long_turns, key=lambda turn: -turn.processor_ms)[:20]:
        workspace.log(
            f"    a turn of {turn.processor_ms:.1f} ms ({turn.wall_ms:.1f} ms by the clock, garbage collection "
            f"{turn.gc_ms:.1f} ms): {turn.stack}"
        )
    return _finding(size, alone, mixed, turns)


def _events_size(size: Size) -> EventsSize:
    return EventsSize(fleet=size.fleet, events_per_second=size.events_per_second)


def _poll(served: ServiceProcess, size: Size, *, is_mixed: bool) -> list[float]:
    """Let guests poll at rest, or during an import, and return their response times in milliseconds."""
    sources = tuple(address_of(size.fleet, scope) for scope in range(size.callers))
    task = paced_load.Task(port=served.port, sources=sources, per_second=size.per_second, is_mixed=is_mixed)
    with run_child("bench.paced_load", task) as talk:
        talk.receive(paced_load.Began)
        served.reset_turns()
        if is_mixed:
            import_fleet(served)
        else:
            time.sleep(size.rest_seconds)
        talk.close()
        done = talk.receive(paced_load.Done)
    if done.wrong:
        raise ValueError(f"{done.wrong} guests got an unexpected response")
    return [seconds * 1000 for seconds in done.took]


@contextmanager
def _background(served: ServiceProcess, size: Size) -> Iterator[None]:
    """Keep guests in long polls and operators watching while the context is open."""
    scopes = range(size.fleet.scopes - size.waiting, size.fleet.scopes)
    task = background_load.Task(
        port=served.port,
        sources=tuple(address_of(size.fleet, scope, 1) for scope in scopes),
        operator_url=served.operator_url,
        token=served.token,
        watchers=size.watchers,
    )
    with run_child("bench.background_load", task) as talk:
        talk.receive(background_load.Began)
        yield
        talk.close()
        done = talk.receive(background_load.Done)
    if done.wrong or not done.watched_bytes:
        raise ValueError(f"{done.wrong} wrong answers to long polls, {done.watched_bytes} bytes watched")


@contextmanager
def _operator(served: ServiceProcess) -> Iterator[None]:
    """Let an operator list events and VMs while the context is open."""
    client = ApiClient(served.operator_url, served.token)
    is_over = threading.Event()

    def read() -> None:
        while not is_over.wait(READ_INTERVAL):
            next(iter(client.events()), None)
            next(iter(client.vms()), None)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _start_campaign(served: ServiceProcess, size: Size) -> None:
    request = {
        "name": "mix",
        "type": "Freeze",
        "selection": {"all": True},
        "policy": {"notice": NOTICE, "scopes_at_once": size.scopes_at_once, "gap": "1s"},
    }
    ApiClient(served.operator_url, served.token).start_campaign(msgspec.convert(request, v1.StartCampaign))


def _finding(size: Size, alone: list[float], mixed: list[float], turns: Turns) -> BenchmarkResult:
    ratio = percentile(mixed, 99) / percentile(alone, 99)
    return BenchmarkResult(
        what=f"GET beside an import of {size.fleet.vms:,} VMs, a campaign, {size.waiting:,} held requests and "
        f"{size.watchers} watchers, against GET alone",
        measured=f"p99 {ratio:.1f} × ({percentile(alone, 99):.2f} → {percentile(mixed, 99):.2f} ms); longest turn of "
        f"the event loop {turns.longest_processor_ms:.1f} ms",
        target=f"p99 ≤ {TARGET_RATIO:.0f} ×, turn ≤ {TARGET_TURN_MS:.0f} ms",
        met=ratio <= TARGET_RATIO and turns.longest_processor_ms <= TARGET_TURN_MS,
        figures={
            "ratio": round(ratio, 2),
            "alone_p99_ms": round(percentile(alone, 99), 3),
            "alone_median_ms": round(median(alone), 3),
            "mixed_p99_ms": round(percentile(mixed, 99), 3),
            "mixed_p999_ms": round(percentile(mixed, 99.9), 3),
            "mixed_median_ms": round(median(mixed), 3),
            "mixed_worst_ms": round(max(mixed), 3),
            "longest_turn_processor_ms": round(turns.longest_processor_ms, 1),
            "longest_turn_wall_ms": round(turns.longest_wall_ms, 1),
            "turns_over_10_ms": len(turns.long_turns),
        },
        note=(
            f"{size.per_second:.0f} requests/s of {size.callers:,} guests, one in five not a GET of the events, "
            f"{size.events_per_second} events due every second, an operator who lists events and VMs; p99.9 "
            f"{percentile(mixed, 99.9):.1f} ms; the turn is measured in processor time "
            f"(by the clock {turns.longest_wall_ms:.1f} ms)"
        ),
    )
