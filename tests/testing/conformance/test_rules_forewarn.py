"""Forewarn itself passes every rule, and every rule is checked at least once."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.testing.conformance import RULES, Pace, Precondition, Report, Rule, Verdict, examine
from forewarn.testing.service import Forewarn
from tests.guest.running_endpoint import run_endpoint
from tests.testing.conformance.reports import GUARD, finding_lines, no_delay, rule_ids

SHORT = {"simulated.reboot": "1m"}
LIMITED = {"guest.requests_per_second": 5}


def run_kit(forewarn: Forewarn, vm: str, **more: Any) -> Report:
    """Run the kit on the endpoint of a VM."""
    return examine(forewarn.vm(vm).url, **{"pace": no_delay(), "timeout": GUARD, **more})


def quiet() -> Report:
    """Examine an endpoint without events."""
    with Forewarn() as forewarn:
        return run_kit(forewarn, "db-0")


def busy() -> Report:
    """Examine an endpoint with events of every type, Scheduled and Started, and approve one of them."""
    with Forewarn() as forewarn:
        forewarn.fail("batch_3")
        forewarn.evict("batch_0", notice="1h")
        forewarn.delete("batch_1")
        forewarn.schedule("Freeze", "batch_2", notice="1h", duration="9s")
        forewarn.schedule("Redeploy", "batch_2", notice="1h")
        reboot = forewarn.schedule("Reboot", "batch_2", notice="1h", description="")
        return run_kit(forewarn, "batch_2", approve_event=reboot.id)


def two_events() -> Report:
    """Approve two events of one VM, the second one together with the first."""
    with Forewarn() as forewarn:
        first = forewarn.schedule("Reboot", "db-0", notice="1h")
        second = forewarn.schedule("Freeze", "db-0", notice="1h")
        return run_kit(forewarn, "db-0", approve_event=first.id, approve_second=second.id.lower())


def watched() -> Report:
    """Watch an event until its NotBefore. Each pause of the kit advances the time of the service."""
    with Forewarn() as forewarn:
        forewarn.schedule("Freeze", "db-0", notice="30s")
        some = [row for row in RULES if row.precondition is Precondition.WATCH]

        def advance(_: float) -> None:
            forewarn.advance("10s")

        pace = Pace(1e9, sleep=advance)
        return run_kit(forewarn, "db-0", watch_seconds=GUARD, rules=some, pace=pace)


def role_instances() -> Report:
    """Examine the endpoint of a cloud service with an event that was already approved."""
    with Forewarn() as forewarn:
        event = forewarn.schedule("Reboot", "FrontEnd_IN_0")
        forewarn.vm("FrontEnd_IN_0").approve(event)
        return run_kit(forewarn, "FrontEnd_IN_0", approve_event=event.id.lower())


def ended() -> Report:
    """Approve an event that has ended."""
    with Forewarn(settings=SHORT) as forewarn:
        event = forewarn.schedule("Reboot", "db-0")
        forewarn.vm("db-0").approve(event)
        forewarn.advance("10m")
        assert forewarn.events == []
        return run_kit(forewarn, "db-0", approve_event=event.id)


def held() -> Report:
    """Approve an event that does not start, because another update domain has a turn."""
    with Forewarn() as forewarn:
        first = forewarn.schedule("Reboot", "web-0")
        forewarn.vm("web-0").approve(first)
        second = forewarn.schedule("Reboot", "web-1")
        return run_kit(forewarn, "web-1", approve_event=second.id)


def limited() -> Report:
    """Examine an endpoint with a rate limit of five requests per second, with real pauses of the kit."""
    with Forewarn(settings=LIMITED) as forewarn:
        some = [row for row in RULES if row.id in {"query", "rate", "rate-response", "unknown-path"}]
        return run_kit(forewarn, "db-0", burst=True, rules=some, pace=None)


async def examine_as_unknown_caller() -> Report:
    """Examine an endpoint from an address that is not a VM's."""
    async with run_endpoint() as endpoint:
        port = await endpoint.server.listen_by_address("another", "127.0.0.1", 0)
        return await asyncio.to_thread(examine, f"http://127.0.0.1:{port}", pace=no_delay(), timeout=GUARD)


def unknown_caller() -> Report:
    return asyncio.run(examine_as_unknown_caller())


ARRANGEMENTS = {
    make.__name__: make
    for make in (quiet, busy, two_events, watched, role_instances, ended, held, limited, unknown_caller)
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Examine each arrangement once."""
    return {name: make() for name, make in ARRANGEMENTS.items()}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_forewarn_passes_every_rule(reports: dict[str, Report], arrangement: str) -> None:
    assert finding_lines(reports[arrangement], Verdict.WRONG, Verdict.DIFFERS) == []


def test_every_rule_is_checked_at_least_once(reports: dict[str, Report]) -> None:
    passed = set().union(*(rule_ids(report, Verdict.PASSED) for report in reports.values()))
    assert {row.id for row in RULES} - passed == set()


def test_every_unchecked_rule_has_a_reason(reports: dict[str, Report]) -> None:
    unchecked = [finding for report in reports.values() for finding in report.of(Verdict.UNCHECKED)]
    assert unchecked
    assert all(finding.why for finding in unchecked)


ALWAYS = {Precondition.NOTHING, Precondition.INSTANCE, Precondition.VERSIONS, Precondition.WAIT}

MET = {
    "quiet": ALWAYS,
    "busy": set(Precondition)
    - {
        Precondition.ROLE_INSTANCE,
        Precondition.APPROVE_SEVERAL,
        Precondition.ENDED,
        Precondition.WATCH,
        Precondition.BURST,
        Precondition.UNKNOWN_CALLER,
    },
    "role_instances": ALWAYS
    | {Precondition.EVENT, Precondition.STARTED, Precondition.ROLE_INSTANCE, Precondition.APPROVE_ANY},
    "ended": ALWAYS | {Precondition.ENDED},
    "unknown_caller": {Precondition.UNKNOWN_CALLER},
}
"""The preconditions that each arrangement meets."""


@pytest.mark.parametrize("arrangement", MET)
def test_rules_are_checked_if_their_preconditions_are_met(reports: dict[str, Report], arrangement: str) -> None:
    """The preconditions in the reference are exact."""
    expected = {row.id for row in RULES if row.precondition in MET[arrangement]}
    assert rule_ids(reports[arrangement], Verdict.PASSED) == expected


def test_number_of_requests_is_bounded(reports: dict[str, Report]) -> None:
    """At most about half a minute at the default pace, with any number of events."""
    assert max(report.requests for report in reports.values()) <= 160


def test_event_that_does_not_start_is_no_failure(reports: dict[str, Report]) -> None:
    """The endpoint need not say what blocks an event."""
    found = {finding.row: finding for finding in reports["held"].findings}
    assert found["approve"].verdict is Verdict.PASSED
    assert found["approve-starts"].verdict is Verdict.UNCHECKED
    assert found["approve-starts"].why == "the event has not started yet; something else may block it"


def test_report_shows_whether_the_endpoint_knows_this_machine(reports: dict[str, Report]) -> None:
    assert not reports["unknown_caller"].is_known_here
    assert reports["quiet"].is_known_here


@pytest.fixture(scope="module")
def forewarn() -> Iterator[Forewarn]:
    with Forewarn() as service:
        yield service


def test_burst_without_a_rate_limit_is_not_checked(forewarn: Forewarn) -> None:
    report = run_kit(forewarn, "db-0", burst=True, rules=[_row("rate")])
    (finding,) = report.findings
    assert finding.verdict is Verdict.UNCHECKED
    assert finding.why == "all 12 requests of the burst were served: no rate limit, as in an emulator"


def test_kit_sends_only_safe_methods_without_approve(forewarn: Forewarn) -> None:
    """Only `approve_event` permits other methods."""
    event = forewarn.schedule("Reboot", "web-0")
    before = forewarn.api.event(event.id)
    run_kit(forewarn, "web-0")
    unreadable = ""
    assert {seen.method for seen in forewarn.requests("web-0")} == {"GET", "HEAD", "OPTIONS", unreadable}
    assert forewarn.api.event(event.id) == before


def test_only_the_named_event_is_approved(forewarn: Forewarn) -> None:
    named = forewarn.schedule("Reboot", "web-2")
    neighbour = forewarn.schedule("Reboot", "web-5")
    report = run_kit(forewarn, "web-2", approve_event=named.id)
    assert finding_lines(report, Verdict.WRONG, Verdict.DIFFERS) == []
    assert named.state == "Started"
    assert neighbour.state == "Scheduled"


def _row(id_: str) -> Rule:
    return next(row for row in RULES if row.id == id_)
