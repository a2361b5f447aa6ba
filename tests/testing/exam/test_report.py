"""The report of an exam, as JSON and as JUnit cases."""

from typing import Any

from forewarn.testing.exam.checks import Finding, Polarity, Verdict
from forewarn.testing.exam.report import Report, cases
from forewarn.testing.exam.scenario_run import Result
from forewarn.testing.junit import CaseStatus


def a_finding(verdict: Verdict, demand: str = "polls") -> Finding:
    polarity = next(iter(Polarity))
    return Finding(demand=demand, mood=polarity, expected="polls", verdict=verdict, seen="it has polled")


def a_result(*findings: Finding, **fields: Any) -> Result:
    values: dict[str, Any] = {"scenario": "reboot", "title": "T.", "seconds": 2.5, "is_finished": True}
    return Result(findings=findings, **values | fields)


KEPT, WARNED, BROKEN, UNKNOWN = map(a_finding, Verdict)


def test_report_passes_if_every_scenario_ended_and_no_check_is_broken() -> None:
    assert Report(results=(a_result(KEPT, UNKNOWN),)).is_passed
    assert not Report(results=(a_result(KEPT), a_result(BROKEN))).is_passed
    assert not Report(results=(a_result(KEPT, is_finished=False),)).is_passed


def test_scenario_that_did_not_end_is_unfinished_unless_a_check_is_broken() -> None:
    lost, broken = a_result(KEPT, is_finished=False), a_result(BROKEN, is_finished=False)
    report = Report(results=(lost, broken))
    assert (report.unfinished, report.broken) == ((lost,), frozenset({("reboot", "polls")}))
    assert report.findings == (("reboot", KEPT), ("reboot", BROKEN))


def test_json_counts_the_verdicts() -> None:
    found = Report(results=(a_result(KEPT, KEPT, WARNED, BROKEN, UNKNOWN),)).as_json
    assert {key: found[key] for key in found if key != "scenarios"} == {
        "passed": False,
        **{verdict.value.replace(" ", "_"): count for verdict, count in zip(Verdict, (2, 1, 1, 1), strict=True)},
    }
    scenarios: Any = found["scenarios"]
    assert [(each["scenario"], each["passed"]) for each in scenarios] == [("reboot", False)]


def test_each_finding_is_a_case_and_the_first_has_the_time() -> None:
    report = Report(results=(a_result(KEPT, WARNED, BROKEN, UNKNOWN, output="Traceback\n"),))
    found = cases(report)
    assert [(case.name, case.status, case.seconds) for case in found] == [
        ("polls", CaseStatus.PASSED, 2.5),
        ("polls", CaseStatus.PASSED, 0.0),
        ("polls", CaseStatus.FAILED, 0.0),
        ("polls", CaseStatus.SKIPPED, 0.0),
    ]
    assert ["Traceback" in case.details for case in found] == [False, False, True, False]
    assert ["Warning: Azure tolerates this." in case.details for case in found] == [False, True, False, False]


def test_scenario_that_did_not_end_is_a_failed_case_of_its_own() -> None:
    *_, last = cases(Report(results=(a_result(KEPT, is_finished=False, problem="too slow"),)))
    assert (last.name, last.classname, last.status, last.message) == (
        "finished",
        "exam.reboot",
        CaseStatus.FAILED,
        "too slow",
    )


def test_scenario_with_a_broken_check_is_not_unfinished_as_well() -> None:
    found = cases(Report(results=(a_result(BROKEN, is_finished=False, problem="too slow"),)))
    assert [case.name for case in found] == ["polls"]


def test_scenario_whose_situation_did_not_occur_does_not_fail_the_exam() -> None:
    skipped = a_result(UNKNOWN, is_exercised=False)
    report = Report(results=(a_result(KEPT), skipped))
    assert (report.is_passed, report.unexercised, skipped.is_passed) == (True, (skipped,), False)
