"""Prometheus metrics: all documented families, closed label values, constant cost."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import NoReturn

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from forewarn import __version__
from forewarn.core.campaign.record import CampaignState, WaveState
from forewarn.core.event import Cause, EventType
from forewarn.core.policy import PRODUCTION
from forewarn.fleet.event_loop import iterate_gradually
from forewarn.fleet.metrics import COUNTED_CHANGES, COUNTED_OUTCOMES
from forewarn.fleet.service import Fleet
from forewarn.guest.counters import Counters
from forewarn.operator.counters import STATUSES, ProtocolError, RefuseReason
from forewarn.operator.counters import Counters as OperatorCounters
from forewarn.operator.metrics import metrics_text
from forewarn.operator.views import campaigns
from forewarn.wire.error_responses import REASON_PHRASES, ErrorReason
from tests.core.sample_scopes import schedule_request, scope, vm, web_scope
from tests.fleet.campaign.campaigns import campaign_spec, start_campaign
from tests.fleet.fleets import run_fleet

LABELS: dict[str, set[str]] = {
    "version": {__version__},
    "status": {str(status) for status in (*REASON_PHRASES, *STATUSES)} | {"Scheduled", "Started"},
    "reason": {reason.value for reasons in (ErrorReason, RefuseReason, ProtocolError) for reason in reasons},
    "type": {type_.value for type_ in EventType},
    "cause": {cause.value for cause in Cause},
    "state": {"failed", "unknown", *CampaignState, *(state.text for state in WaveState)},
    "change": {did.value for did in COUNTED_CHANGES},
    "outcome": {did.value.removeprefix("impact-") for did in COUNTED_OUTCOMES},
}
"""Every label with all its possible values."""


async def read(fleet: Fleet, guests: Counters) -> dict[str, Metric]:
    operators = OperatorCounters()
    operators.responses[401] = 1
    operators.connections, operators.accepted, operators.timed_out, operators.wrong_tokens = 3, 9, 2, 7
    operators.refusals[RefuseReason.ADDRESS] = 4
    operators.protocol_errors[ProtocolError.TLS] = 5
    text = (await metrics_text(fleet, guests, operators)).decode()
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


def value(metrics: dict[str, Metric], family: str, sample: str | None = None, **labels: str) -> float:
    [found] = [
        each.value for each in metrics[family].samples if each.name == (sample or family) and each.labels == labels
    ]
    return float(found)


def busy_guests() -> Counters:
    guests = Counters()
    guests.responses[200] = 5
    guests.responses[403] = 2
    guests.refusals[ErrorReason.UNKNOWN_CALLER] = 2
    guests.ambiguous_callers, guests.failures, guests.accepted, guests.connections = 1, 3, 9, 4
    guests.timed_out, guests.long_polls = 6, 7
    return guests


async def lived_through(fleet: Fleet) -> None:
    """Produce events that affect every metric."""
    await fleet.events.schedule(schedule_request(EventType.FREEZE, "web-0", notice=timedelta(minutes=15)))
    await fleet.time.advance(timedelta(minutes=30))
    [(_, event)] = await fleet.events.schedule(
        schedule_request(EventType.REBOOT, "web-1", number=2, notice=timedelta(minutes=15))
    )
    await fleet.events.approve("web", "web-1", [event])
    await fleet.holds.set(by="ada", reason="audit")


async def test_guest_requests_are_counted() -> None:
    async with run_fleet(web_scope()) as fleet:
        metrics = await read(fleet, busy_guests())
    assert value(metrics, "forewarn_guest_answers", "forewarn_guest_answers_total", status="200") == 5
    assert value(metrics, "forewarn_operator_answers", "forewarn_operator_answers_total", status="401") == 1
    assert value(metrics, "forewarn_guest_refusals", "forewarn_guest_refusals_total", reason="unknown-caller") == 2
    plain = {
        name: value(metrics, f"forewarn_guest_{name}", f"forewarn_guest_{name}_total")
        for name in ("contested", "failures", "connections_accepted", "connections_cut_off")
    }
    assert plain == {"contested": 1, "failures": 3, "connections_accepted": 9, "connections_cut_off": 6}
    assert value(metrics, "forewarn_guest_connections") == 4
    assert value(metrics, "forewarn_guest_held_requests") == 7


async def test_fleet_metrics_are_updated() -> None:
    async with run_fleet(web_scope()) as fleet:
        await lived_through(fleet)
        metrics = await read(fleet, Counters())
        saves = fleet.metrics.saves.count
    assert value(metrics, "forewarn_build_info", version=__version__) == 1
    assert (value(metrics, "forewarn_scopes"), value(metrics, "forewarn_vms")) == (1, 6)
    assert (value(metrics, "forewarn_fleet_held"), value(metrics, "forewarn_scopes_held")) == (1, 0)
    assert value(metrics, "forewarn_events_open", type="Reboot", status="Started") == 1
    assert value(metrics, "forewarn_events_open", type="Freeze", status="Started") == 0
    changes = "forewarn_event_changes_total"
    assert value(metrics, "forewarn_event_changes", changes, type="Freeze", change="completed") == 1
    assert value(metrics, "forewarn_impacts", "forewarn_impacts_total", type="Freeze", outcome="done") == 1
    assert value(metrics, "forewarn_impacts_stuck", type="Freeze", state="failed") == 0
    for name, labels in {
        "forewarn_notice_seconds": {"type": "Freeze", "cause": "maintenance"},
        "forewarn_approval_latency_seconds": {"type": "Reboot"},
        "forewarn_start_lateness_seconds": {"type": "Freeze"},
        "forewarn_impact_seconds": {"type": "Freeze"},
    }.items():
        assert value(metrics, name, f"{name}_count", **labels) == 1
        assert value(metrics, name, f"{name}_bucket", le="+Inf", **labels) == 1
    assert value(metrics, "forewarn_store_save_seconds", "forewarn_store_save_seconds_count") == saves
    assert value(metrics, "forewarn_store_failures", "forewarn_store_failures_total") == 0


async def test_waves_are_counted_while_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "iterate_gradually", partial(iterate_gradually, time_slice=0))
    rounds = 0

    def count_round() -> None:
        nonlocal rounds
        rounds += 1
        asyncio.get_running_loop().call_soon(count_round)

    idle = scope("idle", vm("idle-0"))
    async with run_fleet(web_scope(), idle, policy=PRODUCTION) as fleet:
        await start_campaign(fleet, campaign_spec(), unannounced=True)
        enabled = fleet.last_seen.record_request(fleet.replica.view("web"))
        assert enabled is not None
        await enabled
        await fleet.time.advance(timedelta(0))
        count_round()
        metrics = await read(fleet, Counters())
        rounds_of_scrape = rounds
    counts = {state: value(metrics, "forewarn_campaign_waves", state=state.text) for state in WaveState}
    assert counts == dict.fromkeys(WaveState, 0) | {
        WaveState.ANNOUNCED: 1,
        WaveState.UNANNOUNCED: 1,
        WaveState.PLANNED: 2,
    }
    assert rounds_of_scrape > 2


async def test_labels_are_closed_enumerations() -> None:
    """No id, name or time is a label, so the number of series is bounded."""
    async with run_fleet(web_scope()) as fleet:
        await lived_through(fleet)
        metrics = await read(fleet, busy_guests())
    own = [metric for name, metric in metrics.items() if name.startswith("forewarn_")]
    used = {(label, each) for metric in own for label, each in _labels(metric)}
    assert {label for label, _ in used} == set(LABELS)
    assert {(label, each) for label, each in used if each not in LABELS[label]} == set()


def _labels(metric: Metric) -> Iterator[tuple[str, str]]:
    for sample in metric.samples:
        yield from ((label, text) for label, text in sample.labels.items() if label != "le")


async def test_metric_families_never_change() -> None:
    async with run_fleet(web_scope()) as fleet:
        before = {name: metric.type for name, metric in (await read(fleet, Counters())).items()}
        await lived_through(fleet)
        assert {name: metric.type for name, metric in (await read(fleet, busy_guests())).items()} == before


async def test_metrics_do_not_iterate_over_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a scrape must not look at every scope")

    async with run_fleet(web_scope()) as fleet:
        await lived_through(fleet)
        for method in ("views", "hosts", "find"):
            monkeypatch.setattr(fleet.replica, method, refuse)
        assert b"forewarn_vms 6.0" in await metrics_text(fleet, Counters(), OperatorCounters())
        monkeypatch.undo()
