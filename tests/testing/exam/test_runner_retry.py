"""Tests of retries: a scenario runs again if the machine may have been slow, but not after a clear mistake."""

import pytest

from forewarn.testing.exam import ExamScenario, Finding, Polarity, Result, Verdict
from forewarn.testing.exam.runner import inconclusive

APPROVES = ("approves-E1", Polarity.MUST)
RUNS = ("keeps-running", Polarity.MUST)
IGNORES = ("approves-E1", Polarity.MUST_NOT)
LEAVES = ("approves-others", Polarity.MUST_NOT)


def result(
    scenario: str,
    broken: tuple[str, Polarity] | None,
    *,
    is_finished: bool = True,
    stalled: float = 0.5,
    is_conclusive: bool = False,
) -> Result:
    demands = (APPROVES, RUNS, LEAVES) if broken is None else (broken,)
    return Result(
        scenario=scenario,
        title="",
        findings=tuple(
            Finding(
                demand=key,
                mood=mood,
                expected="",
                verdict=Verdict.KEPT if broken is None else Verdict.BROKEN,
                seen="",
                is_conclusive=is_conclusive,
            )
            for key, mood in demands
        ),
        seconds=1.0,
        is_finished=is_finished,
        stalled=stalled,
    )


def again(*results: Result) -> list[str]:
    return [
        sheet.name for sheet in inconclusive([ExamScenario(name=one.scenario, checks=()) for one in results], results)
    ]


def test_unfinished_scenario_is_retried_if_the_machine_was_busy() -> None:
    assert again(result("one", None, is_finished=False), result("two", None, is_finished=False, stalled=0.1)) == ["one"]


def test_scenario_in_which_a_program_was_late_is_retried_if_the_machine_was_busy() -> None:
    late = (result("two", APPROVES), result("three", APPROVES, stalled=0.1))
    assert again(result("one", None), *late, result("four", None)) == ["two"]


@pytest.mark.parametrize(
    "broken", [RUNS, IGNORES, LEAVES], ids=["ended", "approved, but ignore was expected", "approved for other VMs"]
)
def test_clear_mistake_is_not_retried(broken: tuple[str, Polarity]) -> None:
    assert again(result("one", None), result("two", broken), result("three", None)) == []


def test_scenario_of_an_api_version_that_hides_the_event_is_not_retried() -> None:
    assert again(result("one", APPROVES, is_conclusive=True), result("two", APPROVES)) == ["two"]


def test_scenario_with_an_uncertain_finding_is_retried() -> None:
    finding = Finding(
        demand="asks-often",
        mood=Polarity.MUST,
        expected="",
        verdict=Verdict.NOT_JUDGED,
        seen="too busy",
        is_uncertain=True,
    )
    unsure = Result(scenario="one", title="", findings=(finding,), seconds=1.0, is_finished=False)
    assert (again(unsure), unsure.is_starved) == (["one"], True)
