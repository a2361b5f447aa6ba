"""The report of an exam as a request of the operator API, with the findings of the text report."""

from collections.abc import Sequence
from shlex import join

from forewarn import __version__
from forewarn.api import v1
from forewarn.api.v1 import ReportMark
from forewarn.api.v1.reports import MAX_LINE, MAX_PARAGRAPH, MAX_SUBJECT
from forewarn.testing.exam.causes import Cause, causes
from forewarn.testing.exam.checks import Verdict
from forewarn.testing.exam.report import (
    FAILED,
    NOT_FINISHED,
    NOT_JUDGED,
    PASSED,
    Report,
    result_word,
    summary,
    unexercised_reason,
    with_labels,
)
from forewarn.testing.exam.scenario_run import Result

LAST_LINES = 10
"""How many lines of a program's output a problem has."""

MARKS = {
    Verdict.KEPT: ReportMark.PASSED,
    Verdict.WARNING: ReportMark.WARNING,
    Verdict.BROKEN: ReportMark.FAILED,
    Verdict.NOT_JUDGED: ReportMark.NOT_JUDGED,
}
RESULT_MARKS = {
    PASSED: ReportMark.PASSED,
    FAILED: ReportMark.FAILED,
    NOT_JUDGED: ReportMark.NOT_JUDGED,
    NOT_FINISHED: ReportMark.WARNING,
}


def api_report(report: Report, command: Sequence[str]) -> v1.AddReport:
    """Return the report of an exam of this command."""
    return v1.AddReport(
        kind=v1.ReportKind.EXAM,
        subject=join(command)[:MAX_SUBJECT],
        passed=report.is_passed,
        summary=summary(report),
        version=__version__,
        problems=[
            *(_problem(cause, report) for cause in causes(report)),
            *(_open_result(result, unexercised_reason(result), NOT_JUDGED) for result in report.unexercised),
            *(_open_result(result, result.problem or "", NOT_FINISHED) for result in report.unfinished),
        ],
        results=[_result(result) for result in report.results],
        findings=[
            v1.ReportFinding(
                place=result.scenario,
                name=finding.demand,
                mark=MARKS[finding.verdict],
                verdict=finding.verdict.value,
                expected=f"it {finding.expected}"[:MAX_PARAGRAPH],
                seen=with_labels(finding.seen, result)[:MAX_PARAGRAPH],
            )
            for result in report.results
            for finding in result.findings
        ],
    )


def _problem(cause: Cause, report: Report) -> v1.ReportProblem:
    result = next(result for result in report.results if result.scenario == cause.scenarios[0])
    printed = result.output.strip().splitlines()[-LAST_LINES:] if result.exit_code is not None else []
    return v1.ReportProblem(
        title=f"{cause.demand}: {cause.summary}" if cause.summary else cause.demand,
        mark=MARKS[cause.finding.verdict],
        expected=f"it {cause.finding.expected}"[:MAX_PARAGRAPH],
        seen=with_labels(cause.finding.seen, result)[:MAX_PARAGRAPH],
        location=(cause.frame or "")[-MAX_LINE:],  # its end has the line
        advice=cause.finding.advice[:MAX_PARAGRAPH],
        places=cause.scenarios,
        output=[with_labels(line, result)[:MAX_LINE] for line in printed],
    )


def _open_result(result: Result, reason: str, word: str) -> v1.ReportProblem:
    return v1.ReportProblem(
        title=f"{result.scenario}: {word}",
        mark=RESULT_MARKS[word],
        seen=reason[:MAX_PARAGRAPH],
        places=[result.scenario],
    )


def _result(result: Result) -> v1.ReportResult:
    word = result_word(result)
    counts = {
        Verdict.KEPT: result.kept,
        Verdict.WARNING: result.warnings,
        Verdict.BROKEN: result.broken,
        Verdict.NOT_JUDGED: result.not_judged,
    }
    return v1.ReportResult(
        name=result.scenario,
        title=result.title[:MAX_LINE],
        mark=RESULT_MARKS[word],
        verdict=word,
        counts={verdict.value: len(found) for verdict, found in counts.items()},
        seconds=round(result.seconds, 1),
    )
