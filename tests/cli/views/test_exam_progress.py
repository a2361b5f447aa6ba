"""Progress of an exam on stderr."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.cli.views.exam_progress import ExamProgress


def scenario(name: str) -> Any:
    return SimpleNamespace(name=name)


def result(name: str, *broken: str, problem: str | None = None, tries: int = 1) -> Any:
    return SimpleNamespace(
        scenario=name,
        is_passed=not broken and problem is None,
        broken=[SimpleNamespace(demand=demand) for demand in broken],
        problem=problem,
        tries=tries,
    )


def test_plan_and_each_result_are_a_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ExamProgress(30.0) as progress:
        progress.planned([scenario("a"), scenario("b"), scenario("c")], at_once=2, tries=1)
        progress.began(scenario("a"))
        progress.stepped(scenario("a"), "schedule Reboot")
        progress.ended(result("a"))
        progress.ended(result("b", "polls", "approves"))
        progress.ended(result("c", problem="too slow", tries=2))
    plan, *lines = capsys.readouterr().err.splitlines()
    assert plan == "3 scenarios, 2 at a time: at most 1m if it polls every second."
    assert lines[:2] == ["✓ a", "✗ b: polls, approves"]
    assert lines[2].startswith("? c")
    assert lines[2].endswith(": too slow")


def test_plan_of_a_single_scenario_has_no_concurrency(capsys: pytest.CaptureFixture[str]) -> None:
    ExamProgress(30.0).planned([scenario("a")], at_once=4, tries=1)
    assert capsys.readouterr().err == "1 scenario: at most 30s if it polls every second.\n"


def test_second_round_names_its_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    ExamProgress(30.0).planned([scenario("a"), scenario("b")], at_once=1, tries=2)
    message = capsys.readouterr().err
    assert "a, b" in message
    assert "1m" in message


def test_terminal_shows_the_step_in_one_line_that_is_wiped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with ExamProgress(30.0) as progress:
        progress.planned([scenario("a")], at_once=1, tries=1)
        progress.stepped(scenario("a"), "schedule\x1b[2J Reboot")
    shown = capsys.readouterr().err
    assert "a: schedule" in shown
    assert "\x1b[2J" not in shown
    assert shown.endswith("\r\x1b[K")
