"""Tests of the exam's catalog: it is complete, its scenarios run on the core, and they fit the time limit."""

from collections import Counter

import pytest

from forewarn.testing.exam import LIMIT, ExamScenario, exam_scenarios
from forewarn.testing.scenario import CoreBackend, library_scenarios, run_script


def name_of(sheet: ExamScenario) -> str:
    return sheet.name


def test_every_shipped_scenario_with_a_handler_is_in_the_exam_once() -> None:
    names = [sheet.name for sheet in exam_scenarios()]
    assert {scenario.name for scenario in library_scenarios() if scenario.handler} <= set(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("sheet", exam_scenarios(), ids=name_of)
def test_checks_of_a_scenario_have_unique_names(sheet: ExamScenario) -> None:
    assert [key for key, times in Counter(demand.key for demand in sheet.checks).items() if times > 1] == []


@pytest.mark.parametrize("sheet", exam_scenarios(), ids=name_of)
@pytest.mark.parametrize("vm", ["web-0", "web-1", "frontend_3"])
def test_scenario_runs_with_a_handler_vm_of_any_name(sheet: ExamScenario, vm: str) -> None:
    scenario = sheet.scenario(vm)
    assert scenario.handler == vm
    for _ in run_script(scenario.script, CoreBackend()):
        pass


@pytest.mark.parametrize("sheet", exam_scenarios(), ids=name_of)
def test_program_may_approve_at_the_last_moment(sheet: ExamScenario) -> None:
    assert sheet.real_notice.total_seconds() < sheet.approval_timeout < LIMIT / 2
