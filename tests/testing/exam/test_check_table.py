"""The explanation of the exam lists every check once."""

from forewarn.testing.exam import ExamScenario, exam_scenarios
from forewarn.testing.exam.approval_checks import ApprovalCheck, OtherVmApprovalCheck
from forewarn.testing.exam.check_table import check_row, check_rows, differences, own_events, usual_rows
from forewarn.testing.exam.poll_checks import ExitCheck, PollCheck, RunningCheck

SCENARIOS = (
    ExamScenario(name="a", checks=(PollCheck(), RunningCheck(), ApprovalCheck("E1"))),
    ExamScenario(name="b", checks=(PollCheck(), RunningCheck(), ApprovalCheck("E2"))),
    ExamScenario(name="c", checks=(PollCheck(), ExitCheck(), OtherVmApprovalCheck())),
)


def test_every_check_is_listed_once_the_usual_ones_first() -> None:
    assert [(row.key, places) for row, places in check_rows(SCENARIOS)] == [
        ("asks", "every scenario"),
        ("keeps-running", "most scenarios"),
        ("approves-E…", "most scenarios"),
        ("keeps-running", "c"),
        ("approves-others", "c"),
    ]
    rows = [row for row, _ in check_rows(exam_scenarios())]
    assert len(rows) == len(set(rows))
    assert {check_row(check) for scenario in exam_scenarios() for check in scenario.checks} == set(rows)


def test_scenario_shows_its_events_and_its_differences_from_most() -> None:
    usual = usual_rows(SCENARIOS)
    assert [(own_events(scenario), differences(scenario, usual)) for scenario in SCENARIOS] == [
        (["E1"], {}),
        (["E2"], {}),
        ([], {"also": ["approves-others"], "another": ["keeps-running"], "without": ["approves-E…"]}),
    ]
