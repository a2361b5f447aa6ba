"""All measurements, in the order of the table."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench.measurements import (
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
from bench.workspace import Workspace


class Measurement(NamedTuple):
    """One row of the table, with a full and a quick size."""

    full: Callable[[Workspace], BenchmarkResult]
    quick: Callable[[Workspace], BenchmarkResult]


MEASUREMENTS: dict[str, Measurement] = {
    "throughput": Measurement(throughput.measure, partial(throughput.measure, size=throughput.QUICK)),
    "connections": Measurement(
        partial(throughput.measure, is_closing=True),
        partial(throughput.measure, size=throughput.QUICK, is_closing=True),
    ),
    "callers": Measurement(callers.measure, partial(callers.measure, size=callers.QUICK)),
    "memory": Measurement(memory.measure, partial(memory.measure, size=memory.QUICK)),
    "startup": Measurement(startup.measure, partial(startup.measure, size=startup.QUICK)),
    "first-answer": Measurement(first_response.measure, partial(first_response.measure, size=first_response.QUICK)),
    "help": Measurement(help_page.measure, partial(help_page.measure, size=help_page.QUICK)),
    "saves": Measurement(saves.measure, partial(saves.measure, size=saves.QUICK)),
    "approvals": Measurement(approvals.measure, partial(approvals.measure, size=approvals.QUICK)),
    "announcement": Measurement(announcement.measure, partial(announcement.measure, size=announcement.QUICK)),
    "lateness": Measurement(lateness.measure, partial(lateness.measure, size=lateness.QUICK)),
    "neighbours": Measurement(fleet_import.measure, partial(fleet_import.measure, size=fleet_import.QUICK)),
    "mix": Measurement(mixed_load.measure, partial(mixed_load.measure, size=mixed_load.QUICK)),
    "waits": Measurement(long_polls.measure, partial(long_polls.measure, size=long_polls.QUICK)),
    "plan": Measurement(plan.measure, partial(plan.measure, size=plan.QUICK)),
    "step": Measurement(campaign_step.measure, partial(campaign_step.measure, size=campaign_step.QUICK)),
    "pages": Measurement(dashboard.measure_pages, partial(dashboard.measure_pages, size=dashboard.QUICK)),
    "timeline": Measurement(
        dashboard.measure_timeline, partial(dashboard.measure_timeline, size=dashboard.QUICK_TIMELINE)
    ),
    "stream": Measurement(dashboard.measure_stream, partial(dashboard.measure_stream, size=dashboard.QUICK)),
    "streams": Measurement(
        dashboard.measure_open_streams, partial(dashboard.measure_open_streams, size=dashboard.QUICK_STREAMS)
    ),
    "imports": Measurement(imports.measure, partial(imports.measure, size=imports.QUICK)),
    "fixture": Measurement(fixtures.measure_start, partial(fixtures.measure_start, size=fixtures.QUICK)),
    "advance": Measurement(fixtures.measure_advance, partial(fixtures.measure_advance, size=fixtures.QUICK)),
    "cluster-schedule": Measurement(
        cluster_latency.measure_schedule, partial(cluster_latency.measure_schedule, size=cluster_latency.QUICK)
    ),
    "cluster-approval": Measurement(
        cluster_latency.measure_approval, partial(cluster_latency.measure_approval, size=cluster_latency.QUICK)
    ),
    "cluster-takeover": Measurement(
        cluster_latency.measure_takeover, partial(cluster_latency.measure_takeover, size=cluster_latency.QUICK_CRASHES)
    ),
    "cluster-election": Measurement(
        cluster_latency.measure_election, partial(cluster_latency.measure_election, size=cluster_latency.QUICK_CRASHES)
    ),
    "cluster-control": Measurement(
        cluster_snapshot.measure_control, partial(cluster_snapshot.measure_control, size=cluster_snapshot.QUICK)
    ),
    "cluster-host": Measurement(
        cluster_snapshot.measure_host, partial(cluster_snapshot.measure_host, size=cluster_snapshot.QUICK)
    ),
    "cluster-changes": Measurement(
        cluster_throughput.measure_busy, partial(cluster_throughput.measure_busy, size=cluster_throughput.QUICK)
    ),
    "cluster-hosts": Measurement(
        cluster_throughput.measure_two_hosts,
        partial(cluster_throughput.measure_two_hosts, size=cluster_throughput.QUICK),
    ),
    "cluster-starts": Measurement(
        cluster_store.measure_starts, partial(cluster_store.measure_starts, size=cluster_store.QUICK_STARTS)
    ),
    "cluster-purge": Measurement(
        cluster_store.measure_purge, partial(cluster_store.measure_purge, size=cluster_store.QUICK_JOURNAL)
    ),
    "cluster-index": Measurement(
        cluster_store.measure_index, partial(cluster_store.measure_index, size=cluster_store.QUICK_JOURNAL)
    ),
    "agent": Measurement(agent.measure, partial(agent.measure, size=agent.QUICK)),
}
