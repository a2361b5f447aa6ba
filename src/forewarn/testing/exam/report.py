"""Exam results as JUnit cases."""

from forewarn.testing.exam.checks import Finding, Verdict
from forewarn.testing.exam.runner import Report
from forewarn.testing.exam.scenario_run import Result
from forewarn.testing.junit import Case, CaseStatus

CASE_STATUSES = {
    Verdict.KEPT: CaseStatus.PASSED,
    Verdict.BROKEN: CaseStatus.FAILED,
    Verdict.NOT_JUDGED: CaseStatus.SKIPPED,
}


def cases(report: Report) -> list[Case]:
    """Return one case for every finding, and one for every scenario that could not be played to its end."""
    return [case for result in report.results for case in _cases(result)]


def _cases(result: Result) -> list[Case]:
    # The time is that of the whole scenario: its first case has it, so that the sum is right.
    times = [result.seconds, *(0.0 for _ in result.findings[1:])]
    found = [_case(result, finding, seconds) for finding, seconds in zip(result.findings, times, strict=True)]
    return found if result.is_finished else [*found, _unfinished_case(result)]


def _case(result: Result, finding: Finding, seconds: float) -> Case:
    lines = [f"{result.scenario}: {result.title}", f"Expected: it {finding.expected}", f"Seen: {finding.seen}"]
    if finding.verdict is Verdict.BROKEN and result.output.strip():
        lines += ["", "What the program printed last:", result.output.rstrip()]
    return Case(
        name=finding.demand,
        classname=f"exam.{result.scenario}",
        status=CASE_STATUSES[finding.verdict],
        message="" if finding.verdict is Verdict.KEPT else f"it {finding.expected}; {finding.seen}",
        details="\n".join(lines),
        seconds=seconds,
    )


def _unfinished_case(result: Result) -> Case:
    return Case(
        name="finished",
        classname=f"exam.{result.scenario}",
        status=CaseStatus.FAILED,
        message=result.problem or "the story was not played to its end",
        details=result.output,
    )
