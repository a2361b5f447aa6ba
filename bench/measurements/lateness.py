"""Many events in as many scopes, all due in the same second: how late each starts, and how late guests see it."""

from datetime import UTC, datetime, timedelta
from statistics import median
from typing import NamedTuple

import msgspec

from bench import burst
from bench.figures import percentile, rounded
from bench.fleets import Shape, address_of, vm_name
from bench.journal import starts
from bench.process import run_child
from bench.result import BenchmarkResult
from bench.service_main import Task
from bench.service_process import ServiceProcess, run_service_process
from bench.workspace import Workspace

TARGET_SECONDS = 0.2
ATTEMPTS = 4


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """Number of scopes, of rounds, and the notice of the events.

    The notice must be long enough to schedule all events and to start a long poll in each scope.
    """

    events: int = 1_000
    rounds: int = 5
    notice: timedelta = timedelta(seconds=10)


FULL = Size()
QUICK = Size(events=50, rounds=1, notice=timedelta(seconds=5))


class Round(NamedTuple):
    """How late each event was, in seconds: as its guest saw it, and when its start was decided."""

    seen: list[float]
    decided: list[float]


class NotReady(Exception):
    """The events became due before all guests had started their long polls."""


def measure(workspace: Workspace, size: Size = FULL) -> BenchmarkResult:
    """Schedule the events, let guests wait for them, and compare with the journal; several times."""
    rounds: list[Round] = []
    for number in range(1, size.rounds + 1):
        rounds.append(_measure_round(workspace, size))
        workspace.log(f"    round {number} of {size.rounds}: p99 {percentile(rounds[-1].seen, 99):.3f} s")
    return _finding(size, rounds)


def _measure_round(workspace: Workspace, size: Size) -> Round:
    for notice in (size.notice * 2**attempt for attempt in range(ATTEMPTS)):
        try:
            return _measure(workspace, size, notice)
        except NotReady:
            workspace.log(f"    {notice.seconds} s were not enough to prepare it")
    raise NotReady("this machine is too slow, or too busy, to prepare it")


def _measure(workspace: Workspace, size: Size, notice: timedelta) -> Round:
    fleet = Shape(scopes=size.events, vms_each=5)
    data = workspace.fleet(fleet)
    with run_service_process(Task(data=str(data))) as served:
        not_before = (datetime.now(UTC) + notice).replace(microsecond=0)
        served.schedule(tuple(vm_name(scope, 0) for scope in range(size.events)), not_before=not_before)
        seen = _seen(workspace, served, fleet, not_before)
    decided = [start.late for start in starts(data)]
    if len(decided) != size.events:
        raise ValueError(f"the journal has {len(decided)} starts of {size.events}")
    return Round(seen, decided)


def _seen(workspace: Workspace, served: ServiceProcess, fleet: Shape, not_before: datetime) -> list[float]:
    """Start a long poll of one VM per scope, and return how late each saw its event as Started."""
    sources = tuple(address_of(fleet, scope) for scope in range(fleet.scopes))
    task = burst.Task(port=served.port, sources=sources, contains='"EventStatus":"Started"')
    with run_child("bench.burst", task) as talk:
        talk.receive(burst.RequestsSent)
        while served.counters().long_polls < fleet.scopes:
            if datetime.now(UTC) >= not_before:
                raise NotReady
        workspace.log(f"    {fleet.scopes:,} guests wait for their events, due at {not_before:%H:%M:%SZ}")
        answered = talk.receive(burst.ResponsesReceived)
    if answered.wrong:
        raise ValueError(f"{answered.wrong} guests got an unexpected response")
    return [at + answered.wall_offset - not_before.timestamp() for at in answered.answered_at]


def _finding(size: Size, rounds: list[Round]) -> BenchmarkResult:
    late = [percentile(each.seen, 99) for each in rounds]
    decided = [percentile(each.decided, 99) for each in rounds]
    return BenchmarkResult(
        what=f"{size.events:,} events in as many scopes due in the same second: lateness of Started",
        measured=f"p99 {median(late):.3f} s as guests see it (worst p99 of {size.rounds}: {max(late):.3f} s)",
        target=f"p99 ≤ {TARGET_SECONDS} s in every round",
        met=max(late) <= TARGET_SECONDS,
        figures={
            "seen_p99_seconds": rounded(late, 4),
            "seen_median_seconds": rounded([median(each.seen) for each in rounds], 4),
            "seen_worst_seconds": rounded([max(each.seen) for each in rounds], 4),
            "journal_p99_seconds": rounded(decided, 4),
            "journal_worst_seconds": rounded([max(each.decided) for each in rounds], 4),
        },
        note=(
            f"real clock, SQLite; seen: from NotBefore to the end of the answer to a held request, one per scope; "
            f"in the journal, which says when it was decided: p99 {median(decided):.3f} s"
        ),
    )
