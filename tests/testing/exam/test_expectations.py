"""What is expected of a handler turns the verdicts on it round."""

import pytest

from forewarn.testing.exam import Verdict, parse_expectations
from forewarn.testing.exam.approval_checks import (
    ApprovalCheck,
    OtherVmApprovalCheck,
)
from forewarn.testing.exam.checks import evaluate
from tests.testing.exam.traces import (
    BROKEN,
    KEPT,
    OPEN,
    OTHERS,
    SCHEDULED,
    SHARED,
    ask,
    post,
    record,
)

WISHED: dict[str, tuple[list[str], bool, Verdict]] = {
    "approves what is to be ignored": (["ignore"], True, BROKEN),
    "ignores what is to be ignored": (["Reboot=ignore"], False, KEPT),
    "another type does not matter": (["Freeze=ignore"], True, KEPT),
    "either is right": (["either"], False, OPEN),
    "what is said later counts": (["ignore", "reboot=approve"], True, KEPT),
    "a word for all takes back what was said": (["Reboot=ignore", "approve"], False, BROKEN),
}


@pytest.mark.parametrize(("said", "approves", "verdict"), WISHED.values(), ids=WISHED)
def test_wishes_turn_a_demand_round(said: list[str], approves: bool, verdict: Verdict) -> None:
    happened = record(ask(1.0, SCHEDULED), *([post(1.5, "A")] if approves else []), ask(2.0, SCHEDULED))
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations(said)).verdict is verdict


def test_shared_events_are_judged_where_that_is_wanted() -> None:
    happened = record(ask(1.0, SHARED), ask(2.0, SHARED))
    assert evaluate(ApprovalCheck("E1"), happened, parse_expectations(["shared=approve"])).verdict is BROKEN


def test_leader_may_approve_for_others() -> None:
    happened = record(ask(1.0, OTHERS), post(1.1, "A"))
    assert evaluate(OtherVmApprovalCheck(), happened, parse_expectations([], for_others=True)).verdict is OPEN
