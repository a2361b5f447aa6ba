"""Verdicts of the prepare and recover checks on hand-made traces."""

import pytest

from forewarn.testing.exam import Expectations, Verdict, parse_expectations
from forewarn.testing.exam.checks import Check, evaluate
from forewarn.testing.exam.effect_checks import PrepareCheck, RecoverCheck
from forewarn.testing.exam.trace import HandlerTrace
from tests.testing.exam.traces import BROKEN, KEPT, OPEN, SCHEDULED, SHARED, ask, looks, post, record

JUDGED: dict[str, tuple[Check, HandlerTrace, Verdict]] = {
    "prepared first": (PrepareCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A"), prepared=[1.5]), KEPT),
    "approved first": (PrepareCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A"), prepared=[2.5]), BROKEN),
    "prepared before the event": (
        PrepareCheck("E1"),
        record(*looks(5.0, SCHEDULED), post(7.0, "A"), prepared=[1.0]),
        BROKEN,
    ),
    "neither prepared nor approved, although it must approve": (
        PrepareCheck("E1"),
        record(*looks(5.0, SCHEDULED), prepared=[]),
        OPEN,
    ),
    "did not prepare for an event that also names other VMs": (
        PrepareCheck("E1"),
        record(*looks(5.0, SHARED), prepared=[]),
        BROKEN,
    ),
    "too few looks to prepare": (PrepareCheck("E1"), record(ask(5.0, SCHEDULED), prepared=[]), OPEN),
    "no marker": (PrepareCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A")), OPEN),
    "recovered": (RecoverCheck("E1"), record(ask(1.0, SCHEDULED), post(2.0, "A"), ask(3.0), recovered=[3.2]), KEPT),
    "recovered too early": (
        RecoverCheck("E1"),
        record(ask(1.0, SCHEDULED), post(2.0, "A"), ask(9.0), recovered=[2.2]),
        BROKEN,
    ),
    "neither prepared nor approved, so it need not recover": (
        RecoverCheck("E1"),
        record(ask(1.0, SCHEDULED), ask(3.0), recovered=[]),
        OPEN,
    ),
}


@pytest.mark.parametrize(("demand", "happened", "verdict"), JUDGED.values(), ids=JUDGED)
def test_verdict(demand: Check, happened: HandlerTrace, verdict: Verdict) -> None:
    finding = evaluate(demand, happened, Expectations())
    assert finding.verdict is verdict, finding
    assert finding.seen


def test_handler_that_need_not_approve_must_prepare() -> None:
    happened = record(*looks(5.0, SCHEDULED), prepared=[])
    assert evaluate(PrepareCheck("E1"), happened, parse_expectations(["either"])).verdict is BROKEN
