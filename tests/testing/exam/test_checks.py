"""Evaluation of checks on hand-made traces."""

from forewarn.testing.exam import Expectations, Verdict
from forewarn.testing.exam.approval_checks import ApprovalCheck
from forewarn.testing.exam.checks import evaluate
from forewarn.testing.exam.poll_checks import RateLimitCheck
from tests.testing.exam.traces import EVERY_MOMENT, SCHEDULED, ask, record


def test_check_that_needs_all_requests_is_not_judged_after_dropped_requests() -> None:
    """The rate limit can still be judged."""
    happened = record(ask(1.0, SCHEDULED), ask(2.0), dropped=9)
    assert evaluate(ApprovalCheck("E1"), happened, Expectations()).verdict is Verdict.NOT_JUDGED
    assert evaluate(RateLimitCheck(), record(*EVERY_MOMENT, dropped=9), Expectations()).verdict is Verdict.BROKEN
