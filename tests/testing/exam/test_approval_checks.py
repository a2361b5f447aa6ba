"""What a handler approves, and when: the verdicts on traces made by hand."""

import pytest

from forewarn.testing.exam import Expectations, Verdict
from forewarn.testing.exam.approval_checks import (
    ApprovalCheck,
    EndedApprovalCheck,
    OtherVmApprovalCheck,
    RepeatedApprovalCheck,
    StartedApprovalCheck,
)
from forewarn.testing.exam.checks import Check, evaluate
from forewarn.testing.exam.trace import HandlerTrace
from tests.testing.exam.traces import (
    BOTH,
    BROKEN,
    DEAD,
    KEPT,
    OPEN,
    OTHERS,
    SCHEDULED,
    SHARED,
    STARTED,
    ask,
    post,
    record,
)

JUDGED: dict[str, tuple[Check, HandlerTrace, Verdict]] = {
    "approved in time": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), post(1.1, "A"), ask(2.0, STARTED)), KEPT),
    "approved too late": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A")), BROKEN),
    "approval crosses the start": (
        ApprovalCheck("E1"),
        record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(2.1, "A")),
        KEPT,
    ),
    "not approved": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ask(2.0, SCHEDULED)), BROKEN),
    "approval was refused": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), post(1.1, "A", status=400)), OPEN),
    "died before it could": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), ended=DEAD), OPEN),
    "time was over": (ApprovalCheck("E1"), record(ask(1.0, SCHEDULED), is_finished=False), OPEN),
    "never told": (ApprovalCheck("E1"), record(ask(1.0)), OPEN),
    "told as Started only": (ApprovalCheck("E1"), record(ask(1.0, STARTED)), OPEN),
    "shared, and nobody said": (ApprovalCheck("E1"), record(ask(1.0, SHARED)), OPEN),
    "like the one before": (
        ApprovalCheck("E2", like="E1"),
        record(ask(1.0, SHARED), post(1.1, "A"), ask(2.0, ("B", "Scheduled", BOTH)), ask(3.0)),
        BROKEN,
    ),
    "approves another's": (OtherVmApprovalCheck(), record(ask(1.0, OTHERS), post(1.1, "A")), BROKEN),
    "leaves another's": (OtherVmApprovalCheck(), record(ask(1.0, OTHERS)), KEPT),
    "shared is no other's": (OtherVmApprovalCheck(), record(ask(1.0, SHARED), post(1.1, "A")), OPEN),
    "approves a failure": (StartedApprovalCheck(), record(ask(1.0, STARTED), post(1.1, "A")), BROKEN),
    "news crosses it": (StartedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(2.1, "A")), KEPT),
    "news is old": (StartedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0, STARTED), post(3.0, "A")), BROKEN),
    "gone for long": (EndedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0), post(3.0, "A")), BROKEN),
    "gone just now": (EndedApprovalCheck(), record(ask(1.0, SCHEDULED), ask(2.0), post(2.1, "A")), KEPT),
    "repeats it once": (RepeatedApprovalCheck(), record(*(post(float(n), "A") for n in (1, 2))), KEPT),
    "repeats it for ever": (RepeatedApprovalCheck(), record(*(post(float(n), "A") for n in range(1, 6))), BROKEN),
    "refusals do not count": (
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
