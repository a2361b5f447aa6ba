"""Who is tried once more: where the machine may have been slow, and never for what a program has done."""

import pytest

from forewarn.testing.exam import ExamScenario, Finding, Polarity, Result, Verdict
from forewarn.testing.exam.runner import inconclusive

APPROVES = ("approves-E1", Polarity.MUST)
RUNS = ("keeps-running", Polarity.MUST)
IGNORES = ("approves-E1", Polarity.MUST_NOT)
LEAVES = ("approves-others", Polarity.MUST_NOT)


def result(scenario: str, broken: tuple[str, Polarity] | None, *, is_finished: bool = True) -> Result:
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
            )
            for key, mood in demands
        ),
        seconds=1.0,
        is_finished=is_finished,
    )


def again(*results: Result) -> list[str]:
    return [
        sheet.name for sheet in inconclusive([ExamScenario(name=one.scenario, checks=()) for one in results], results)
    ]


def test_story_that_was_not_over_is_played_again() -> None:
    assert again(result("one", None, is_finished=False)) == ["one"]


def test_program_that_was_too_late_once_is_tried_again() -> None:
    assert again(result("one", None), result("two", APPROVES), result("three", None)) == ["two"]


def test_program_that_never_approves_is_not_tried_again() -> None:
    assert again(result("one", APPROVES), result("two", APPROVES)) == []


@pytest.mark.parametrize("broken", [RUNS, IGNORES, LEAVES], ids=["ended", "approves the ignored", "approves others'"])
def test_what_a_program_has_done_is_beyond_doubt(broken: tuple[str, Polarity]) -> None:
    assert again(result("one", None), result("two", broken), result("three", None)) == []
