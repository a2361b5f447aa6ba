"""Every measurement runs at the smallest scale and fills its table. Speed is not checked here."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bench import __main__ as command
from bench import runner
from bench.fleets import Shape
from bench.machine import find_program
from bench.measurements import (
    MEASUREMENTS,
    Measurement,
    agent,
    announcement,
    approvals,
    callers,
    campaign_step,
    cluster_latency,
    cluster_snapshot,
    cluster_store,
    cluster_throughput,
    dashboard,
    first_response,
    fixtures,
    fleet_import,
    help_page,
    imports,
    lateness,
    long_polls,
    memory,
    mixed_load,
    plan,
    saves,
    startup,
    throughput,
)
from bench.result import BenchmarkResult
from bench.workspace import Workspace, create_workspace

pytestmark = pytest.mark.process

SMALL = Shape(scopes=3, vms_each=2)

TINY: dict[str, Callable[[Workspace], BenchmarkResult]] = {
    "throughput": partial(throughput.measure, size=throughput.Size(rounds=1, seconds=1, connections=2)),
    "connections": partial(
        throughput.measure, size=throughput.Size(rounds=1, seconds=1, connections=2), is_closing=True
    ),
    "callers": partial(callers.measure, size=callers.Size(fleet=SMALL, callers=3, in_flight=2, rounds=1, seconds=0.1)),
    "memory": partial(memory.measure, size=memory.Size(fleet=SMALL)),
    "startup": partial(startup.measure, size=startup.Size(fleet=SMALL, rounds=1)),
    "first-answer": partial(first_response.measure, size=first_response.Size(rounds=1)),
    "help": partial(help_page.measure, size=help_page.Size(rounds=1)),
    "saves": partial(saves.measure, size=saves.Size(writers=2, vms_each=1, rounds=1, seconds=0.05)),
    "approvals": partial(approvals.measure, size=approvals.Size(vms=10, rounds=2)),
    "announcement": partial(announcement.measure, size=announcement.Size(fleet=SMALL, events=3)),
    "lateness": partial(lateness.measure, size=lateness.Size(events=2, rounds=1, notice=timedelta(seconds=4))),
    "neighbours": partial(
        fleet_import.measure,
        size=fleet_import.Size(fleet=SMALL, callers=2, per_second=6.0, events_per_second=1, rest_seconds=0.1),
    ),
    "mix": partial(
        mixed_load.measure,
        size=mixed_load.Size(
            fleet=SMALL,
            callers=2,
            per_second=6.0,
            waiting=2,
            watchers=1,
            events_per_second=1,
            rest_seconds=0.5,
            scopes_at_once=1,
        ),
    ),
    "waits": partial(long_polls.measure, size=long_polls.Size(fleet=SMALL, rounds=1)),
    "pages": partial(dashboard.measure_pages, size=dashboard.Size(fleet=SMALL, requests=1)),
    "timeline": partial(dashboard.measure_timeline, size=dashboard.TimelineSize(events=3, requests=1)),
    "stream": partial(dashboard.measure_stream, size=dashboard.Size(fleet=SMALL, changes=3)),
    "streams": partial(
        dashboard.measure_open_streams,
        size=dashboard.StreamsSize(streams=3, rounds=1, seconds=1, seconds_per_change=0.05),
    ),
    "plan": partial(plan.measure, size=plan.Size(fleet=SMALL, rounds=1)),
    "step": partial(campaign_step.measure, size=campaign_step.Size(fleet=SMALL, settled=1.0)),
    "imports": partial(imports.measure, size=imports.Size(rounds=1)),
    "fixture": partial(fixtures.measure_start, size=fixtures.Size(rounds=2)),
    "advance": partial(fixtures.measure_advance, size=fixtures.Size(rounds=2)),
    "cluster-schedule": partial(cluster_latency.measure_schedule, size=cluster_latency.Size(events=2)),
    "cluster-approval": partial(cluster_latency.measure_approval, size=cluster_latency.Size(events=2)),
    "cluster-takeover": partial(cluster_latency.measure_takeover, size=cluster_latency.CrashSize(rounds=1)),
    "cluster-election": partial(cluster_latency.measure_election, size=cluster_latency.CrashSize(rounds=1)),
    "cluster-control": partial(cluster_snapshot.measure_control, size=cluster_snapshot.Size(fleet=SMALL, rounds=1)),
    "cluster-host": partial(cluster_snapshot.measure_host, size=cluster_snapshot.Size(fleet=SMALL, rounds=1)),
    "cluster-changes": partial(
        cluster_throughput.measure_busy, size=cluster_throughput.Size(rounds=1, seconds=1, connections=2)
    ),
    "cluster-hosts": partial(
        cluster_throughput.measure_two_hosts, size=cluster_throughput.Size(rounds=1, seconds=1, connections=2)
    ),
    "cluster-starts": partial(cluster_store.measure_starts, size=cluster_store.StartSize(events=3)),
    "cluster-purge": partial(cluster_store.measure_purge, size=cluster_store.JournalSize(lines=100)),
    "cluster-index": partial(cluster_store.measure_index, size=cluster_store.JournalSize(lines=100)),
    "agent": partial(agent.measure, size=agent.Size(seconds=1.0, looks=1)),
}

FIGURES: dict[str, set[str]] = {
    "throughput": {"ratio", "forewarn_per_second", "nginx_per_second", "answer_bytes"},
    "connections": {"ratio", "forewarn_per_second", "nginx_per_second", "answer_bytes"},
    "callers": {"ratio", "ratio_to_few_connections", "many_per_second", "one_per_second", "few_per_second"},
    "memory": {"bytes_per_vm_started", "bytes_per_vm_asked", "empty_bytes"},
    "startup": {"seconds"},
    "first-answer": {"seconds", "ready_seconds", "processor_seconds"},
    "help": {"seconds", "import_seconds", "ratio"},
    "saves": {"ratio", "together_per_second", "each_per_second"},
    "approvals": {"seconds"},
    "announcement": {"p99_ms", "median_ms"},
    "lateness": {"seen_p99_seconds", "journal_p99_seconds"},
    "neighbours": {"answers_ratio", "lateness_ratio", "rest_answer_p99_ms", "busy_answer_p99_ms", "import_seconds"},
    "mix": {"ratio", "alone_p99_ms", "mixed_p99_ms", "longest_turn_processor_ms", "longest_turn_wall_ms"},
    "waits": {"seconds"},
    "pages": {"seconds", "kilobytes"},
    "timeline": {"seconds", "kilobytes"},
    "stream": {"p99_ms", "ms"},
    "streams": {"ratio", "beside_per_second", "alone_per_second"},
    "plan": {"seconds", "processor_seconds", "waves", "progress_told"},
    "step": {"p99_ms", "p99_processor_ms", "p99_whole_ms", "longest_ms", "saves"},
    "imports": {"bare_ms", "client_ms", "everything_ms"},
    "fixture": {"start_ms", "stop_ms", "first_ms"},
    "advance": {"advance_ms"},
    "cluster-schedule": {"default_p99_ms", "synced_p99_ms"},
    "cluster-approval": {"default_p99_ms", "synced_p99_ms"},
    "cluster-takeover": {"default_seconds", "synced_seconds"},
    "cluster-election": {"default_election_seconds", "synced_election_seconds"},
    "cluster-control": {"default_seconds", "synced_seconds"},
    "cluster-host": {"default_seconds", "synced_seconds", "default_megabytes", "synced_megabytes"},
    "cluster-changes": {"default_ratio", "synced_ratio", "default_host_per_second", "synced_single_per_second"},
    "cluster-hosts": {"default_ratio", "synced_ratio", "default_processor_ratio", "synced_two_per_second"},
    "cluster-starts": {"default_seconds", "synced_seconds"},
    "cluster-purge": {"default_worst_ms", "synced_worst_ms", "default_saves", "synced_saves"},
    "cluster-index": {"default_lines_per_second", "synced_lines_per_second"},
    "agent": {"ratio", "resident_mb", "bare_mb", "percent_of_a_core", "processor_seconds", "asked"},
}

# These figures may be zero at this scale: six VMs use too little memory and time, an event may start within the same
# millisecond, and an agent does next to nothing in a second.
CAN_BE_NOTHING = {
    "bytes_per_vm_started",
    "bytes_per_vm_asked",
    "journal_p99_seconds",
    "percent_of_a_core",
    "processor_seconds",
    "asked",
    "default_megabytes",
    "synced_megabytes",
}


NEEDED = {
    "throughput": ("nginx", "wrk"),
    "connections": ("nginx", "wrk"),
    "cluster-changes": ("wrk",),
    "cluster-hosts": ("wrk",),
}
"""Programs without which a measurement is skipped."""

LONG = {
    "cluster-host",
    "cluster-approval",
    "cluster-takeover",
    "cluster-election",
    "cluster-changes",
    "cluster-hosts",
    "cluster-starts",
    "cluster-purge",
    "neighbours",
}
"""Measurements that wait for leases, elections or due events, or start many processes."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with create_workspace(tmp_path, log=print) as made:
        yield made


def need(name: str) -> None:
    """Skip measurements whose programs are not installed; `make bench` installs them."""
    for program in NEEDED.get(name, ()):
        try:
            find_program(program)
        except FileNotFoundError as error:
            pytest.skip(str(error))


def test_every_measurement_has_a_test() -> None:
    assert TINY.keys() == FIGURES.keys() == MEASUREMENTS.keys()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in TINY]
)
def test_measurement_returns_its_figures(name: str, workspace: Workspace) -> None:
    need(name)
    finding = TINY[name](workspace)
    assert FIGURES[name] <= finding.figures.keys()
    for figure in FIGURES[name] - CAN_BE_NOTHING:
        value = finding.figures[figure]
        assert not isinstance(value, str)
        assert min(value if isinstance(value, list) else [value]) > 0, figure


def finding(what: str) -> BenchmarkResult:
    return BenchmarkResult(
        what=what, measured="1 s", target="≤ 2 s", met=True, figures={"seconds": [1.0]}, note="as seen"
    )


def breaks(_: Workspace) -> BenchmarkResult:
    raise ValueError("no such luck")


@pytest.fixture
def two_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "broken": Measurement(breaks, breaks),
        "good": Measurement(lambda _: finding("in earnest"), lambda _: finding("quickly")),
    }
    for module in (runner, command):
        monkeypatch.setattr(module, "MEASUREMENTS", made)


@pytest.mark.usefixtures("two_measurements")
def test_failed_measurement_does_not_stop_the_others(workspace: Workspace) -> None:
    found, broken = runner.run_all(["broken", "good"], workspace)
    assert (found, broken) == ({"good": finding("in earnest")}, {"broken": "ValueError: no such luck"})


@pytest.mark.usefixtures("two_measurements")
def test_command_writes_what_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some" / "figures.json"
    status = command.main(["--quick", "--only", "good", "--json", str(path), "--data", str(tmp_path)])
    written = msgspec.json.decode(path.read_bytes())
    assert (status, written["quick"], written["broken"]) == (0, True, {})
    assert written["findings"] == {"good": msgspec.to_builtins(finding("quickly"))}
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("quickly", "1 s", "≤ 2 s", "yes", "as seen"))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "some"]


@pytest.mark.usefixtures("two_measurements")
def test_command_fails_when_a_measurement_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = command.main(["--json", str(tmp_path / "figures.json"), "--data", str(tmp_path)])
    assert (status, "no such luck" in capsys.readouterr().out) == (1, True)
