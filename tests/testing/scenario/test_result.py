"""Results of steps: what was expected, what happened, and at most so many facts."""

from forewarn.api import v1
from forewarn.testing.scenario import CoreBackend, parse, run_script, step_result, verdict_of

SCRIPT = """# T.
scope web availability-set
vm web-0 domain 0
restart web-0  →  E1 Scheduled not_before 10:15 by user, incarnation 2
expect E1 Started within 1m
"""


def test_result_has_the_facts_and_what_was_awaited() -> None:
    *_, restarted, expected = (step_result(played) for played in run_script(parse(SCRIPT), CoreBackend()))
    assert restarted == v1.ScenarioStep(
        line=4,
        text="restart web-0",
        expected=("E1 Scheduled not_before 10:15 by user, incarnation 2",),
        facts=("E1 Scheduled not_before 10:15 by user, incarnation 2",),
        passed=True,
    )
    assert (expected.passed, expected.awaited) == (False, "E1 Started within 1m")
    assert (verdict_of([restarted]), verdict_of([restarted, expected])) == ("passed", "failed")


def test_facts_beyond_the_limit_are_counted() -> None:
    played = list(run_script(parse(SCRIPT), CoreBackend()))[2]
    assert step_result(played, max_facts=0).facts == ("… and 1 more",)
