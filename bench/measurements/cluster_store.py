"""The store of a cluster under load: guarded starts, the removal of old journal lines, and the index of the journal."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from statistics import median

import msgspec
import uvloop

from bench.cluster import fill_cell, open_store, run_cell
from bench.figures import format_number, percentile, rounded
from bench.fleets import Shape, vm_name
from bench.modes import ModeResults
from bench.process import TIMEOUT
from bench.result import BenchmarkResult
from bench.workspace import Workspace
from forewarn.clock import SystemClock
from forewarn.core.event import EventType, State
from forewarn.core.journal import Entry, EntryKind
from forewarn.core.policy import EMULATOR
from forewarn.core.schedule import ScheduleRequest
from forewarn.fleet.events import new_request_id
from forewarn.fleet.service import Fleet
from forewarn.platform.simulated import SimulatedPlatform
from forewarn.store.nats.store import NatsStore
from forewarn.store.port import JournalQuery, RecordKey, RecordKind, Retention

START_SECONDS = 1.0
DELAY_MILLISECONDS = 250.0
LINES_PER_SECOND = 20_000.0
NOTICE = timedelta(seconds=4)
WRITERS = 50
PAUSE_SECONDS = 0.002


class StartSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many events are due at once."""

    events: int = 1_000


class JournalSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines the journal has."""

    lines: int = 100_000


FULL_STARTS, QUICK_STARTS = StartSize(), StartSize(events=50)
FULL_JOURNAL, QUICK_JOURNAL = JournalSize(), JournalSize(lines=2_000)


def measure_starts(workspace: Workspace, size: StartSize = FULL_STARTS) -> BenchmarkResult:
    """Let many events be due at one moment, and measure until the last one is saved as Started."""
    found = ModeResults(lambda mode: uvloop.run(_start_events(workspace, size, mode)))
    return BenchmarkResult(
        what=f"cluster: {size.events:,} guarded starts of events that are due at once",
        measured=found.describe(lambda seconds: f"{seconds:.2f} s"),
        target=f"≤ {START_SECONDS:.0f} s",
        met=found.all(lambda seconds: seconds <= START_SECONDS),
        figures=found.figures(seconds=lambda seconds: round(seconds, 3)),
        note="each event in a scope of its own; from NotBefore until the last start is saved, under the fleet's hold",
    )


async def _start_events(workspace: Workspace, size: StartSize, mode: str) -> float:
    shape = Shape(scopes=size.events, vms_each=1)
    platform = SimulatedPlatform(SystemClock(), hosts=tuple)
    async with run_cell(workspace, mode=mode) as settings, open_store(workspace, settings) as store:
        await fill_cell(store, shape)
        async with Fleet.run(
            store=store, platform=platform, clock=SystemClock(), policy=EMULATOR, has_duties=False
        ) as fleet:
            not_before = (datetime.now(UTC) + NOTICE).replace(microsecond=0)  # as in a document
            vms = tuple(vm_name(number, 0) for number in range(size.events))
            request = ScheduleRequest(
                id=new_request_id(), type=EventType.REBOOT, vms=vms, by="bench", not_before=not_before
            )
            await fleet.events.schedule(request)
            if datetime.now(UTC) > not_before:
                raise TimeoutError("the events could not be scheduled before they were due")
            await fleet.duties.scheduler.start()
            async with asyncio.timeout(TIMEOUT):
                while _count_started(fleet) < size.events:  # noqa: ASYNC110 - simple
                    await asyncio.sleep(PAUSE_SECONDS)
            seconds = (datetime.now(UTC) - not_before).total_seconds()
    workspace.log(f"    {mode}: {seconds:.2f} s")
    return seconds


def _count_started(fleet: Fleet) -> int:
    scopes = (view.scope for view in fleet.replica.views())
    return sum(event.state is State.STARTED for scope in scopes if scope is not None for event in scope.events)


def measure_purge(workspace: Workspace, size: JournalSize = FULL_JOURNAL) -> BenchmarkResult:
    """Remove all lines while another process saves one change after the other, and measure its slowest save."""
    found = ModeResults(lambda mode: uvloop.run(_purge(workspace, size, mode)))
    return BenchmarkResult(
        what=f"cluster: slowest save while {format_number(size.lines)} journal lines are removed",
        measured=found.describe(
            lambda saves: f"{max(saves):.0f} ms (p99 {percentile(saves, 99):.1f}, median {median(saves):.1f} ms)"
        ),
        target=f"≤ {DELAY_MILLISECONDS:.0f} ms",
        met=found.all(lambda saves: max(saves) <= DELAY_MILLISECONDS),
        figures=found.figures(worst_ms=lambda saves: round(max(saves), 1), saves=len),
        note="one store removes lines as the lease holder does, batch by batch; another one saves without a pause",
    )


async def _purge(workspace: Workspace, size: JournalSize, mode: str) -> list[float]:
    async with (
        run_cell(workspace, mode=mode) as settings,
        open_store(workspace, settings) as pruner,
        open_store(workspace, settings) as writer,
    ):
        await _write_lines(pruner, size.lines)
        await pruner.journal(JournalQuery())  # the index has all lines
        pruning = asyncio.create_task(_prune(pruner))
        milliseconds: list[float] = []
        key, revision = RecordKey(RecordKind.SCOPE, "load"), None
        while not pruning.done() or not milliseconds:
            began_at = time.monotonic()
            revision = await writer.save(key, b"value", [], expected=revision)
            milliseconds.append((time.monotonic() - began_at) * 1e3)
        await pruning
    workspace.log(f"    {mode}: {len(milliseconds)} saves, slowest {max(milliseconds):.0f} ms")
    return milliseconds


async def _prune(store: NatsStore) -> None:
    while await store.prune(Retention(age=None, rows=1), now=datetime.now(UTC)):
        pass


async def _write_lines(store: NatsStore, lines: int) -> None:
    """Write journal lines, each with a save of its own, several at once."""
    entry = Entry(n=1, at=datetime.now(UTC), kind=EntryKind.SCHEDULED, by="bench")

    async def write(number: int) -> None:
        key = RecordKey(RecordKind.SCOPE, f"journal-{number}")
        revision: int | None = None
        for _ in range(lines // WRITERS):
            revision = await store.save(key, b"value", [entry], expected=revision)

    await asyncio.gather(*(write(number) for number in range(WRITERS)))


def measure_index(workspace: Workspace, size: JournalSize = FULL_JOURNAL) -> BenchmarkResult:
    """Open a store with an empty index, and measure until the index has every line."""
    found = ModeResults(lambda mode: uvloop.run(_build_indexes(workspace, size, mode)))
    return BenchmarkResult(
        what=f"cluster: the index of {format_number(size.lines)} journal lines is built again",
        measured=found.describe(
            lambda rates: f"{format_number(median(rates))} lines/s (slowest {format_number(min(rates))}/s)"
        ),
        target=f"≥ {format_number(LINES_PER_SECOND)} lines/s",
        met=found.all(lambda rates: median(rates) >= LINES_PER_SECOND),
        figures=found.figures(lines_per_second=rounded),
        note="each line was saved by itself; three NATS servers on this machine; median of three in each mode",
    )


async def _build_indexes(workspace: Workspace, size: JournalSize, mode: str) -> list[float]:
    rates = []
    async with run_cell(workspace, mode=mode) as settings:
        async with open_store(workspace, settings) as store:
            await _write_lines(store, size.lines)
            expected = (await store.extent()).last
        for _ in range(3):
            began_at = time.monotonic()
            async with open_store(workspace, settings) as store:
                async with asyncio.timeout(TIMEOUT):
                    while (await store.extent()).last != expected:  # noqa: ASYNC110 - another task fills the index
                        await asyncio.sleep(PAUSE_SECONDS)
                rates.append(size.lines / (time.monotonic() - began_at))
            workspace.log(f"    {mode}: {format_number(rates[-1])} lines/s")
    return rates
