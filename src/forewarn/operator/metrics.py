"""Prometheus metrics, collected on request, and the middleware that counts responses by status.

No id, name or time is ever a label.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from forewarn import __version__
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.event import EventType, State
from forewarn.core.event_type import RELEASED_TYPES
from forewarn.core.impact import STUCK
from forewarn.fleet.metrics import COUNTED_CHANGES, COUNTED_OUTCOMES, Histogram
from forewarn.fleet.service import Fleet
from forewarn.operator.counters import Counters
from forewarn.operator.state import GuestCounters
from forewarn.operator.views.campaigns import count_waves


class StatusCounterMiddleware:
    """ASGI middleware that counts responses by status."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self._app = app
        self._responses = counters.responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request and count the status of the response."""

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._responses[message["status"]] += 1
            await send(message)

        await self._app(scope, receive, send_and_count if scope["type"] == ScopeType.HTTP else send)


R = TypeVar("R", bound=Enum)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def metrics_text(fleet: Fleet, guests: GuestCounters, operators: Counters) -> bytes:
    """Return all metrics in Prometheus text format. Counting the waves of campaigns yields to the event loop."""
    waves: Counter[WaveState] = Counter()
    for campaign in fleet.campaigns.all():
        if not campaign.state.is_over:
            for states in (await count_waves(fleet, campaign)).states:
                waves.update(states)
    registry = CollectorRegistry()
    registry.register(FleetCollector(fleet, guests, operators, waves))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class FleetCollector(Collector):
    """Collects the metrics. Its cost does not grow with the fleet; `waves` are counted before."""

    def __init__(
        self, fleet: Fleet, guests: GuestCounters, operators: Counters, waves: Mapping[WaveState, int]
    ) -> None:
        self._fleet = fleet
        self._guests = guests
        self._operators = operators
        self._waves = waves

    def describe(self) -> Iterable[Metric]:
        """Return the metrics, whose names are always the same."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its current value."""
        yield from self._service()
        yield from self._operator_port()
        yield from self._endpoint()
        yield from self._inventory()
        yield from self._events()
        yield from self._campaigns()
        yield from self._store()

    def _service(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("forewarn_build_info", "The running version.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield _gauge(
            "forewarn_overdue_seconds",
            "How late the scheduler is with due work.",
            self._fleet.duties.overdue.total_seconds(),
        )
        if (offset := self._fleet.cluster.clock_offset) is not None and (seconds := offset.seconds) is not None:
            yield _gauge("forewarn_clock_offset_seconds", "How far the clock is ahead of the NATS servers.", seconds)
        yield _gauge("forewarn_journal_feeds", "Open journal streams.", self._fleet.journal.open)

    def _operator_port(self) -> Iterator[Metric]:
        operators = self._operators
        yield _by_status("forewarn_operator_answers", "Responses to operators by status.", operators.responses)
        yield _gauge("forewarn_operator_connections", "Open connections of operators.", operators.connections)
        yield _counter(
            "forewarn_operator_connections_accepted", "Accepted connections of operators.", operators.accepted
        )
        yield _by_reason(
            "forewarn_operator_connections_refused", "Connections of operators over a limit.", operators.refusals
        )
        yield _counter(
            "forewarn_operator_connections_cut_off",
            "Connections of operators closed by a timeout.",
            operators.timed_out,
        )
        yield _by_reason(
            "forewarn_operator_protocol_errors", "Invalid HTTP or TLS of operators.", operators.protocol_errors
        )
        yield _counter(
            "forewarn_operator_wrong_tokens", "Requests of operators with a wrong token.", operators.wrong_tokens
        )

    def _endpoint(self) -> Iterator[Metric]:
        guests = self._guests
        yield _by_status("forewarn_guest_answers", "Responses to guests by status.", guests.responses)
        yield _by_reason("forewarn_guest_refusals", "Refused requests of guests.", guests.refusals)
        yield _counter(
            "forewarn_guest_contested",
            "Requests refused because several VMs claim the address.",
            guests.ambiguous_callers,
        )
        yield _counter(
            "forewarn_guest_failures", "Requests of guests that failed with an internal error.", guests.failures
        )
        yield _counter("forewarn_guest_connections_accepted", "Accepted connections of guests.", guests.accepted)
        yield _counter(
            "forewarn_guest_connections_cut_off", "Connections of guests closed by a timeout.", guests.timed_out
        )
        yield _gauge("forewarn_guest_connections", "Open connections of guests.", guests.connections)
        yield _gauge("forewarn_guest_held_requests", "Long polls of guests that wait for a change.", guests.long_polls)

    def _inventory(self) -> Iterator[Metric]:
        counts = self._fleet.metrics.counts
        yield _gauge("forewarn_scopes", "Scopes.", counts.scopes)
        yield _gauge("forewarn_scopes_enabled", "Scopes whose VMs poll for events.", counts.enabled)
        yield _gauge("forewarn_scopes_held", "Scopes whose maintenance is held.", counts.held)
        yield _gauge("forewarn_vms", "VMs.", self._fleet.replica.vms)
        yield _gauge("forewarn_fleet_held", "1 while all maintenance is held.", self._fleet.holds.current is not None)

    def _events(self) -> Iterator[Metric]:
        counts, metrics = self._fleet.metrics.counts, self._fleet.metrics
        events = GaugeMetricFamily("forewarn_events_open", "Open events.", labels=["type", "status"])
        stuck = GaugeMetricFamily(
            "forewarn_impacts_stuck",
            "Impacts that are failed or unknown and need an operator.",
            labels=["type", "state"],
        )
        changes = CounterMetricFamily("forewarn_event_changes", "State changes of events.", labels=["type", "change"])
        outcomes = CounterMetricFamily("forewarn_impacts", "Impacts by outcome.", labels=["type", "outcome"])
        allows_unreleased = self._fleet.scopes.rule_context.policy.allows_unreleased
        for type_ in EventType if allows_unreleased else RELEASED_TYPES:
            for state in (State.SCHEDULED, State.STARTED):
                events.add_metric([type_.value, state.value], counts.events[type_, state])
            for impact in sorted(STUCK):
                stuck.add_metric([type_.value, impact.value], counts.stuck[type_, impact])
            for did in COUNTED_CHANGES:
                changes.add_metric([type_.value, did.value], metrics.changes[type_, did])
            for did in COUNTED_OUTCOMES:
                outcome = did.value.removeprefix("impact-")
                outcomes.add_metric([type_.value, outcome], metrics.outcomes[type_, did])
        yield from (events, stuck, changes, outcomes)
        notice = HistogramMetricFamily(
            "forewarn_notice_seconds",
            "Time from the announcement of an event to its not_before.",
            labels=["type", "cause"],
        )
        for (type_, cause), histogram in metrics.notice.items():
            _fill(notice, [type_.value, cause.value], histogram)
        yield notice
        yield _by_type(
            "forewarn_approval_latency_seconds", "Time from the creation of an event to an approval.", metrics.approval
        )
        yield _by_type(
            "forewarn_start_lateness_seconds", "Time from the due time of an event to its start.", metrics.lateness
        )
        yield _by_type("forewarn_impact_seconds", "Time from the begin of an impact to its end.", metrics.impact)

    def _campaigns(self) -> Iterator[Metric]:
        campaigns = GaugeMetricFamily("forewarn_campaigns", "Campaigns.", labels=["state"])
        waves = GaugeMetricFamily("forewarn_campaign_waves", "Waves of open campaigns.", labels=["state"])
        known = self._fleet.campaigns.all()
        not_over = [campaign for campaign in known if not campaign.state.is_over]
        states = Counter(campaign.state for campaign in known)
        for state in CampaignState:
            campaigns.add_metric([state.value], states[state])
        for wave in WaveState:
            waves.add_metric([wave.text], self._waves[wave])
        yield from (campaigns, waves)
        yield _gauge(
            "forewarn_campaigns_gate_shut",
            "Campaigns that wait for their gate.",
            sum(campaign.gate is not None for campaign in not_over),
        )

    def _store(self) -> Iterator[Metric]:
        metrics = self._fleet.metrics
        saves = HistogramMetricFamily("forewarn_store_save_seconds", "Time until a save is durable.")
        _fill(saves, [], metrics.saves)
        yield saves
        yield _counter("forewarn_store_failures", "Failed saves.", metrics.failures)
        yield _counter(
            "forewarn_store_conflicts",
            "Saves that conflicted with another process and were retried.",
            metrics.conflicts,
        )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(name, meaning, value=value)


def _by_status(name: str, meaning: str, counts: Mapping[int, int]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=["status"])
    for status, count in sorted(counts.items()):
        family.add_metric([str(status)], count)
    return family


def _by_reason(name: str, meaning: str, counts: Mapping[R, int]) -> Metric:
    family = CounterMetricFamily(name, meaning, labels=["reason"])
    for reason, count in counts.items():
        family.add_metric([reason.value], count)
    return family


def _by_type(name: str, meaning: str, histograms: Mapping[EventType, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, meaning, labels=["type"])
    for type_, histogram in histograms.items():
        _fill(family, [type_.value], histogram)
    return family


def _fill(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    buckets = [(_bound(bound), count) for bound, count in histogram.cumulative()]
    family.add_metric(labels, buckets=buckets, sum_value=histogram.sum)


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(float(bound))
