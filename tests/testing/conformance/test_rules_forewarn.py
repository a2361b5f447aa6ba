"""Our own service passes every row, and there is no row that it is not put to the test with."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.testing.conformance import RULES, Precondition, Report, Rule, Verdict, examine
from forewarn.testing.service import Forewarn
from tests.guest.running_endpoint import run_endpoint
from tests.testing.conformance.reports import GUARD, finding_lines, no_delay, rule_ids

SHORT = {"simulated.reboot": "1m"}
LIMITED = {"guest.requests_per_second": 5}


def look(forewarn: Forewarn, vm: str, **more: Any) -> Report:
    """Look at the endpoint of a VM."""
    return examine(forewarn.vm(vm).url, **{"pace": no_delay(), "timeout": GUARD, **more})


def quiet() -> Report:
    """Nothing is announced."""
    with Forewarn() as forewarn:
        return look(forewarn, "db-0")


def busy() -> Report:
    """Events of every type, Scheduled and Started, of which one is approved."""
    with Forewarn() as forewarn:
        forewarn.fail("batch_3")
        forewarn.evict("batch_0", notice="1h")
        forewarn.delete("batch_1")
        forewarn.schedule("Freeze", "batch_2", notice="1h", duration="9s")
        forewarn.schedule("Redeploy", "batch_2", notice="1h")
        reboot = forewarn.schedule("Reboot", "batch_2", notice="1h", description="")
        return look(forewarn, "batch_2", approve_event=reboot.id)


def role_instances() -> Report:
    """The events of a cloud service, of which one was approved before."""
    with Forewarn() as forewarn:
        event = forewarn.schedule("Reboot", "FrontEnd_IN_0")
        forewarn.vm("FrontEnd_IN_0").approve(event)
        return look(forewarn, "FrontEnd_IN_0", approve_event=event.id.lower())


def ended() -> Report:
    """An event that is over is approved."""
    with Forewarn(settings=SHORT) as forewarn:
        event = forewarn.schedule("Reboot", "db-0")
        forewarn.vm("db-0").approve(event)
        forewarn.advance("10m")
        assert forewarn.events == []
        return look(forewarn, "db-0", approve_event=event.id)


def held() -> Report:
    """An event is approved and does not start."""
    with Forewarn() as forewarn:
        first = forewarn.schedule("Reboot", "web-0")
        forewarn.vm("web-0").approve(first)
        second = forewarn.schedule("Reboot", "web-1")
        return look(forewarn, "web-1", approve_event=second.id)


def limited() -> Report:
    """A VM may ask five times in a second. Seconds are real here: whoever is sent away comes back after one."""
    with Forewarn(settings=LIMITED) as forewarn:
        some = [row for row in RULES if row.id in {"query", "rate", "unknown-path"}]
        return look(forewarn, "db-0", burst=True, rules=some, pace=None)


async def stranger_to_the_endpoint() -> Report:
    """Who asks is no VM."""
    async with run_endpoint() as endpoint:
        port = await endpoint.server.listen_by_address("another", "127.0.0.1", 0)
        return await asyncio.to_thread(examine, f"http://127.0.0.1:{port}", pace=no_delay(), timeout=GUARD)


def stranger() -> Report:
    return asyncio.run(stranger_to_the_endpoint())


ARRANGEMENTS = {make.__name__: make for make in (quiet, busy, role_instances, ended, held, limited, stranger)}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Look at each arrangement once."""
    return {name: make() for name, make in ARRANGEMENTS.items()}


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_ours_is_right_in_every_row(reports: dict[str, Report], arrangement: str) -> None:
    assert finding_lines(reports[arrangement], Verdict.WRONG, Verdict.DIFFERS) == []


def test_no_row_stays_unchecked(reports: dict[str, Report]) -> None:
    passed = set().union(*(rule_ids(report, Verdict.PASSED) for report in reports.values()))
    assert {row.id for row in RULES} - passed == set()


def test_every_unchecked_row_has_its_reason(reports: dict[str, Report]) -> None:
    unchecked = [finding for report in reports.values() for finding in report.of(Verdict.UNCHECKED)]
    assert unchecked
    assert all(finding.why for finding in unchecked)


MET = {
    "quiet": {Precondition.NOTHING, Precondition.WAIT},
    "busy": set(Precondition)
    - {Precondition.ROLE_INSTANCE, Precondition.ENDED, Precondition.BURST, Precondition.UNKNOWN_CALLER},
    "role_instances": {
        Precondition.NOTHING,
        Precondition.WAIT,
        Precondition.EVENT,
        Precondition.STARTED,
        Precondition.ROLE_INSTANCE,
        Precondition.APPROVE_ANY,
    },
    "ended": {Precondition.NOTHING, Precondition.WAIT, Precondition.ENDED},
    "stranger": {Precondition.UNKNOWN_CALLER},
}
"""What the arrangements have of all that rows need."""


@pytest.mark.parametrize("arrangement", MET)
def test_row_is_checked_where_its_needs_are_met(reports: dict[str, Report], arrangement: str) -> None:
    """What the reference says a row needs is what it needs, no more and no less."""
    expected = {row.id for row in RULES if row.precondition in MET[arrangement]}
    assert rule_ids(reports[arrangement], Verdict.PASSED) == expected


def test_number_of_requests_is_bounded(reports: dict[str, Report]) -> None:
    """About half a minute at the usual pace, whatever there is to be seen."""
    assert max(report.requests for report in reports.values()) <= 160


def test_event_that_does_not_start_is_not_held_against_the_endpoint(reports: dict[str, Report]) -> None:
    """Whatever holds it, the endpoint has to tell nobody."""
    found = {finding.row: finding for finding in reports["held"].findings}
    assert found["approve"].verdict is Verdict.PASSED
    assert found["approve-starts"].verdict is Verdict.UNCHECKED
    assert found["approve-starts"].why == "the event has not started yet; something may hold it"


def test_stranger_is_told_that_it_is_one(reports: dict[str, Report]) -> None:
    assert not reports["stranger"].is_known_here
    assert reports["quiet"].is_known_here


@pytest.fixture(scope="module")
def forewarn() -> Iterator[Forewarn]:
    with Forewarn() as service:
        yield service


def test_burst_without_a_limit_is_no_finding(forewarn: Forewarn) -> None:
    report = look(forewarn, "db-0", burst=True, rules=[_row("rate")])
    (finding,) = report.findings
    assert finding.verdict is Verdict.UNCHECKED
    assert finding.why == "12 requests at once were all served: there is no limit, as in an emulator"


def test_nothing_is_sent_that_could_change_anything(forewarn: Forewarn) -> None:
    """Not without an event that may be approved."""
    event = forewarn.schedule("Reboot", "web-0")
    before = forewarn.api.event(event.id)
    look(forewarn, "web-0")
    unreadable = ""
    assert {seen.method for seen in forewarn.requests("web-0")} == {"GET", "HEAD", "OPTIONS", unreadable}
    assert forewarn.api.event(event.id) == before


def test_only_the_named_event_is_approved(forewarn: Forewarn) -> None:
    named = forewarn.schedule("Reboot", "web-2")
    neighbour = forewarn.schedule("Reboot", "web-5")
    report = look(forewarn, "web-2", approve_event=named.id)
    assert finding_lines(report, Verdict.WRONG, Verdict.DIFFERS) == []
    assert named.state == "Started"
    assert neighbour.state == "Scheduled"


def _row(id_: str) -> Rule:
    return next(row for row in RULES if row.id == id_)
