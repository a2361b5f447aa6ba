"""Verdicts of the approval checks on hand-made traces."""

import pytest

from forewarn.testing.exam import Expectations, Verdict, parse_expectations
from forewarn.testing.exam.approval_checks import (
    ApprovalCheck,
    EndedApprovalCheck,
    OtherVmApprovalCheck,
    RepeatedApprovalCheck,
    StartedApprovalCheck,
)
from forewarn.testing.exam.checks import Check, evaluate
from forewarn.testing.exam.stall_watcher import Stall
from forewarn.testing.exam.trace import EventKind, HandlerTrace
from tests.testing.exam.traces import (
    BOTH,
    BROKEN,
    DEAD,
    KEPT,
    OPEN,
    OTHER,
    OTHERS,
    OWN,
    PATH,
    SCHEDULED,
    SHARED,
    STARTED,
    WARNED,
    ask,
    looks,
    post,
    record,
    seen,
)

JUDGED: dict[str, tuple[Check, HandlerTrace, Verdict]] = {
    "approved in time": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), post(1.1, "A"), ask(2.0, STARTED)), KEPT),
    "approved too late": (
        ApprovalCheck("E1"),
        record(*looks(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A")),
        BROKEN,
    ),
    "long poll after the event": (
        ApprovalCheck("E1"),
        record(ask(1.0, SCHEDULED), seen(1.1, "GET", f"{PATH}&wait=60", None)),
        BROKEN,
    ),
    "too few looks to approve": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ask(2.0, STARTED)), OPEN),
    "approval crosses the start": (
        ApprovalCheck("E1"),
        record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(2.1, "A")),
        KEPT,
    ),
    "not approved": (ApprovalCheck("E1"), record(*looks(1.0, SCHEDULED)), BROKEN),
    "approval was refused": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), post(1.1, "A", status=400)), OPEN),
    "ended before it approved": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ended=DEAD), OPEN),
    "scenario not finished": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), is_finished=False), OPEN),
    "event never received": (ApprovalCheck("E1"), record(ask(1.0)), OPEN),
    "received only as Started": (ApprovalCheck("E1"), record(ask(1.0, STARTED)), OPEN),
    "shared, without an expectation": (ApprovalCheck("E1"), record(ask(1.0, SHARED)), OPEN),
    "shared, and it approved the event before": (
        ApprovalCheck("E2", like="E1"),
        record(ask(1.0, SHARED), post(1.1, "A"), *looks(2.0, ("B", "Scheduled", BOTH)), ask(3.0)),
        BROKEN,
    ),
    "approves an event of another VM": (OtherVmApprovalCheck(), record(ask(1.0, OTHERS), post(1.1, "A")), BROKEN),
    "ignores an event of another VM": (OtherVmApprovalCheck(), record(ask(1.0, OTHERS)), KEPT),
    "shared event is not another VM's": (OtherVmApprovalCheck(), record(ask(1.0, SHARED), post(1.1, "A")), OPEN),
    "approves a hardware failure": (StartedApprovalCheck(), record(ask(1.0, STARTED), post(1.1, "A")), WARNED),
    "start received just now": (
        StartedApprovalCheck(),
        record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(2.1, "A")),
        KEPT,
    ),
    "start received a second ago": (
        StartedApprovalCheck(),
        record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A")),
        WARNED,
    ),
    "start received during a stall": (
        StartedApprovalCheck(),
        record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A"), stalls=[Stall(2.0, 3.0, 0.9)]),
        KEPT,
    ),
    "event ended a second ago": (EndedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0), post(3.0, "A")), WARNED),
    "event ended just now": (EndedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0), post(2.1, "A")), KEPT),
    "repeats it once": (RepeatedApprovalCheck(), record(*(post(float(n), "A") for n in (1, 2))), KEPT),
    "repeats it four times": (RepeatedApprovalCheck(), record(*(post(float(n), "A") for n in range(1, 6))), WARNED),
    "refused approvals do not count": (
        RepeatedApprovalCheck(),
        record(*(post(float(n), "A", status=500) for n in range(6))),
        OPEN,
    ),
}


@pytest.mark.parametrize(("demand", "happened", "verdict"), JUDGED.values(), ids=JUDGED)
def test_verdict(demand: Check, happened: HandlerTrace, verdict: Verdict) -> None:
    finding = evaluate(demand, happened, Expectations())
    assert finding.verdict is verdict, finding
    assert finding.seen


OLD = PATH.replace("2020-07-01", "2017-08-01")
PREEMPT = {"A": EventKind("Preempt", "Platform")}


@pytest.mark.parametrize(
    ("expected", "verdict", "is_exercised"), [("approve", BROKEN, True), ("ignore", KEPT, True), ("either", OPEN, True)]
)
def test_old_version_hides_the_event(expected: str, verdict: Verdict, is_exercised: bool) -> None:
    happened = record(*(ask(float(second), target=OLD) for second in range(6)), kinds=PREEMPT)
    finding = evaluate(ApprovalCheck("E1"), happened, parse_expectations([f"Preempt={expected}"]))
    assert (finding.verdict, finding.is_exercised) == (verdict, is_exercised)
    assert finding.seen.startswith("it asks with 2017-08-01, in which Preempt events are not shown")
    assert ("use 2017-11-01 or newer" in finding.seen) == (verdict is BROKEN)
    assert finding.is_conclusive == (verdict is BROKEN)


def test_event_that_a_new_version_never_showed_is_not_exercised() -> None:
    finding = evaluate(ApprovalCheck("E1"), record(ask(1.0), kinds=PREEMPT), Expectations())
    assert (finding.verdict, finding.is_exercised) == (OPEN, False)


def test_finding_says_where_the_event_was_in_the_document() -> None:
    both = (("B", "Scheduled", OTHER), ("A", "Scheduled", OWN))
    finding = evaluate(ApprovalCheck("E1"), record(*looks(1.0, *both)), Expectations())
    assert finding.seen.endswith("; E1 was second in the list, behind E2 of web-1")
    assert (finding.event_kind, finding.advice) == ("Reboot", "if that is intended: --expect Reboot=ignore")


@pytest.mark.parametrize(
    ("happened", "expected", "reason"),
    [
        (
            record(ask(1.0, SHARED), post(1.1, "A")),
            "shared=either",
            "E1 also names other VMs (see --expect shared); it approved E1",
        ),
        (record(ask(1.0, SCHEDULED)), "either", "either is expected; it did not approve E1"),
    ],
    ids=["shared", "either"],
)
def test_reason_why_an_approval_is_not_judged_is_the_same_in_all_scenarios(
    happened: HandlerTrace, expected: str, reason: str
) -> None:
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations([expected])).seen == reason
