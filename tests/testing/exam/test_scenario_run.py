"""Tests of one run of an exam scenario: how it ends, and its result."""

import sys
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from forewarn.testing.exam import ExamOptions, Expectations, LaunchOptions, Markers, exam_scenarios
from forewarn.testing.exam.checks import CheckResult, Finding, Polarity, Verdict
from forewarn.testing.exam.handler_process import LaunchFailed
from forewarn.testing.exam.scenario_run import Result, ScenarioRun
from forewarn.testing.exam.trace import HandlerTrace

RESTART = next(scenario for scenario in exam_scenarios() if scenario.name == "user-restart")
TITLE = RESTART.scenario("web-0").title

SHOW_TYPES = """
import json, os, time, urllib.request
url = os.environ["URL"] + "/metadata/scheduledevents?api-version=2020-07-01"
shown = set()
while True:
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    for event in json.load(urllib.request.urlopen(request))["Events"]:
        kind = event["Resources"][0] + ":" + event["EventType"]
        if kind not in shown:
            shown.add(kind)
            print(kind, flush=True)
        if kind == "web-0:Reboot":
            raise SystemExit
    time.sleep(0.5 if shown else 0.0)
"""
"""A program that notices the first event at once, shows the types of all events, and ends with its own."""

NEVER = 1e6
"""A pace at which no timeout of the exam is reached."""


def options(script: str, *, limit: float = 600.0, markers: Markers | None = None) -> ExamOptions:
    command = (sys.executable, "-c", script)
    return ExamOptions(
        way=LaunchOptions(command=command, url_variable="URL"), limit=limit, pace=NEVER, markers=markers or Markers()
    )


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        (Markers(), False),
        (Markers(prepared=Path("{dir}/prepared"), recovered=Path("{dir}/recovered")), False),
        (Markers(prepared=Path("/run/prepared")), True),
        (Markers(prepared=Path("prepared")), True),
        (Markers(prepared=Path("{dir}/prepared"), recovered=Path("/run/recovered")), True),
    ],
)
def test_markers_are_shared_unless_they_are_in_the_directory_of_the_run(markers: Markers, expected: bool) -> None:
    assert markers.are_shared == expected


def finding(name: str, verdict: Verdict) -> Finding:
    return Finding(demand=name, mood=Polarity.MUST, expected="polls", verdict=verdict, seen="")


def test_result_groups_its_findings_by_verdict() -> None:
    findings = tuple(finding(str(verdict), verdict) for verdict in Verdict)
    result = Result(scenario="s", title="t", findings=findings, seconds=1.0, is_finished=True)
    groups = (result.kept, result.warnings, result.broken, result.not_judged)
    assert [[each.verdict for each in group] for group in groups] == [
        [Verdict.KEPT],
        [Verdict.WARNING],
        [Verdict.BROKEN],
        [Verdict.NOT_JUDGED],
    ]


@pytest.mark.parametrize(
    ("verdict", "is_finished", "expected"),
    [
        (Verdict.KEPT, True, True),
        (Verdict.NOT_JUDGED, True, True),
        (Verdict.WARNING, True, True),
        (Verdict.BROKEN, True, False),
        (Verdict.KEPT, False, False),
    ],
)
def test_result_is_passed_if_finished_without_a_broken_check(
    verdict: Verdict, is_finished: bool, expected: bool
) -> None:
    result = Result(scenario="s", title="t", findings=(finding("f", verdict),), seconds=1.0, is_finished=is_finished)
    assert result.is_passed == expected


def test_scenario_whose_situation_did_not_occur_is_not_passed() -> None:
    findings = (finding("f", Verdict.KEPT),)
    result = Result(scenario="s", title="t", findings=findings, seconds=1.0, is_finished=True, is_exercised=False)
    assert not result.is_passed


def test_run_that_was_stopped_before_it_began_starts_no_program() -> None:
    run = ScenarioRun(options("raise SystemExit(9)"), RESTART)
    run.stop()
    result = run.run()
    assert (result.scenario, result.title) == ("user-restart", TITLE)
    assert (result.is_finished, result.exit_code, result.problem, result.output) == (False, None, None, "")


@pytest.mark.process
def test_run_ends_when_the_program_ends() -> None:
    steps: list[str] = []
    result = ScenarioRun(options("print('bye'); raise SystemExit(3)"), RESTART, steps.append).run()
    assert (result.is_finished, result.exit_code, result.problem, result.output) == (True, 3, None, "bye\n")
    assert "keeps-running" in {each.demand for each in result.broken}
    assert not result.is_passed
    assert "handler web-0" in steps


class UncertainCheck(msgspec.Struct, frozen=True):
    """A check that the machine was too busy for."""

    key: ClassVar[str] = "asks-often"
    polarity: ClassVar[Polarity] = Polarity.MUST
    needs_all_requests: ClassVar[bool] = False
    description: ClassVar[str] = "poll often"

    def evaluate(self, _: HandlerTrace, __: Expectations) -> CheckResult:
        return CheckResult(Verdict.NOT_JUDGED, "too busy to measure its pauses", is_uncertain=True)


@pytest.mark.process
def test_run_with_an_uncertain_finding_is_not_finished() -> None:
    unsure = msgspec.structs.replace(RESTART, checks=(UncertainCheck(),), essential=("none",))
    result = ScenarioRun(options("pass"), unsure).run()
    assert (result.is_finished, result.problem, result.is_starved) == (False, "too busy to measure its pauses", True)


@pytest.mark.process
def test_program_gets_the_scenario_and_its_markers() -> None:
    script = "import os; [print(name, os.environ[name]) for name in sorted(os.environ) if 'FOREWARN_EXAM_' in name]"
    markers = Markers(prepared=Path("{dir}/prepared"), recovered=Path("here/recovered"))
    lines = ScenarioRun(options(script, markers=markers), RESTART).run().output.splitlines()
    given = dict(line.split(" ", 1) for line in lines)
    directory = given.pop("FOREWARN_EXAM_DIR")
    assert given == {
        "FOREWARN_EXAM_PREPARED": f"{directory}/prepared",
        "FOREWARN_EXAM_RECOVERED": str(Path.cwd() / "here/recovered"),
        "FOREWARN_EXAM_SCENARIO": "user-restart",
    }
    assert not Path(directory).exists()


@pytest.mark.process
def test_own_event_never_has_the_unknown_type() -> None:
    scenario = next(each for each in exam_scenarios() if each.name == "unknown-event-type")
    types = set(ScenarioRun(options(SHOW_TYPES), scenario).run().output.split())
    assert types == {"web-0:Reboot", "web-1:Hibernate", "web-1:Reboot"}


@pytest.mark.process
def test_run_ends_at_its_time_limit() -> None:
    result = ScenarioRun(options("import signal; signal.pause()", limit=0.0), RESTART).run()
    assert (result.is_finished, result.exit_code) == (False, None)
    assert result.problem is not None
    assert result.problem.startswith(
        "the machine was too slow" if result.is_starved else "the scenario did not end within 0 s"
    )


@pytest.mark.process
def test_missing_program_cannot_be_launched(tmp_path: Path) -> None:
    way = LaunchOptions(command=(str(tmp_path / "missing"),), url_variable="URL")
    with pytest.raises(LaunchFailed, match="No such file or directory"):
        ScenarioRun(ExamOptions(way=way), RESTART).run()
