"""Tests of expectations: they change the verdicts of checks."""

import pytest

from forewarn.testing.exam import InvalidExpectation, Verdict, parse_expectations
from forewarn.testing.exam.approval_checks import (
    ApprovalCheck,
    OtherVmApprovalCheck,
)
from forewarn.testing.exam.checks import evaluate
from forewarn.testing.exam.trace import EventKind
from tests.testing.exam.traces import (
    BROKEN,
    KEPT,
    OPEN,
    OTHERS,
    SCHEDULED,
    SHARED,
    ask,
    looks,
    post,
    record,
)

REBOOT = {"A": EventKind("Reboot", "Platform")}

EXPECTED: dict[str, tuple[list[str], bool, Verdict]] = {
    "approves, but ignore is expected": (["ignore"], True, BROKEN),
    "ignores, as expected": (["Reboot=ignore"], False, KEPT),
    "expectation for another type": (["Freeze=ignore"], True, KEPT),
    "expectation for this type and source": (["Reboot/Platform=ignore"], False, KEPT),
    "expectation for another source": (["Reboot/User=ignore"], True, KEPT),
    "expectation for the source takes precedence": (
        ["Reboot/Platform=approve", "ignore", "Reboot/platform=approve"],
        True,
        KEPT,
    ),
    "expectation for the type replaces that for the source": (["Reboot/Platform=ignore", "Reboot=approve"], True, KEPT),
    "either is right": (["either"], False, OPEN),
    "later expectation wins": (["ignore", "reboot=approve"], True, KEPT),
    "expectation for all types replaces earlier ones": (["Reboot=ignore", "approve"], False, BROKEN),
}


@pytest.mark.parametrize(("values", "approves", "verdict"), EXPECTED.values(), ids=EXPECTED)
def test_expectation_decides_the_verdict(values: list[str], approves: bool, verdict: Verdict) -> None:
    happened = record(
        ask(0.5, SCHEDULED), *([post(0.7, "A")] if approves else []), *looks(1.0, SCHEDULED), kinds=REBOOT
    )
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations(values)).verdict is verdict


def test_shared_events_are_judged_with_an_expectation() -> None:
    happened = record(*looks(1.0, SHARED))
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations(["shared=approve"])).verdict is BROKEN


def test_leader_may_approve_for_others() -> None:
    happened = record(ask(1.0, OTHERS), post(1.1, "A"))
    assert evaluate(OtherVmApprovalCheck(), happened, parse_expectations([], for_others=True)).verdict is OPEN


@pytest.mark.parametrize("value", ["Freeze/User=ignore", "Reboot/Owner=ignore", "Reboot/=ignore", "/User=ignore"])
def test_type_without_this_source_is_refused(value: str) -> None:
    with pytest.raises(InvalidExpectation, match="Reboot/User"):
        parse_expectations([value])
