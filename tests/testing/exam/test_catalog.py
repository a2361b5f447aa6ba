"""Tests of the exam's catalog: it is complete, its scenarios run on the core, and they fit the time limit."""

from collections import Counter
from datetime import timedelta

import pytest

from forewarn.testing.exam import LIMIT, ExamScenario, HandlerMissing, exam_scenarios, own_scenario
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


@pytest.mark.parametrize("sheet", exam_scenarios(), ids=name_of)
def test_scenario_has_essential_checks(sheet: ExamScenario) -> None:
    assert sheet.essential_checks
    assert set(sheet.essential_checks) <= {check.key for check in sheet.checks}


INCIDENT = """\
# Last month: two reboots within an hour.
platform automatic
scope web availability-set
vm web-0 domain 0
vm web-1 domain 1
handler web-1

wait 2h
schedule Reboot web-0
wait 1h
schedule Reboot web-1 in 30m
approve E2 by web-1
expect E2 Completed within 40m
fail web-1
expect E3 Completed within 10m
"""


def test_own_scenario_has_checks_for_the_events_of_its_handler() -> None:
    incident = own_scenario("incident", INCIDENT)
    keys = [check.key for check in incident.checks]
    assert [key for key in keys if "-E" in key] == ["approves-E2", "prepares-E2", "recovers-E2"]
    assert "approves-others" in keys
    assert (incident.lead_in, incident.notice) == (timedelta(hours=3), timedelta(minutes=30))
    assert incident.scenario("web-0").handler == "web-1"


def test_own_scenario_in_which_the_vm_is_removed_needs_no_recovery() -> None:
    text = "platform automatic\nscope web placement-group priority low\nvm web-0\nhandler web-0\nevict web-0\n"
    keys = [check.key for check in own_scenario("eviction", text).checks]
    assert [key for key in keys if "-E" in key] == ["approves-E1", "prepares-E1"]


def test_own_scenario_needs_a_handler() -> None:
    with pytest.raises(HandlerMissing, match="scenario quiet has no line `handler VM`"):
        own_scenario("quiet", "scope web availability-set\n")
