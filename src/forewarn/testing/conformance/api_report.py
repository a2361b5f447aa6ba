"""The report of a conformance check as a request of the operator API, with the findings of the text report."""

from forewarn import __version__
from forewarn.api import v1
from forewarn.api.v1 import ReportMark
from forewarn.api.v1.reports import MAX_LINE, MAX_PARAGRAPH, MAX_SUBJECT
from forewarn.testing.conformance.rule import Finding, Verdict
from forewarn.testing.conformance.runner import Report, citation

MARKS = {
    Verdict.PASSED: ReportMark.PASSED,
    Verdict.WRONG: ReportMark.FAILED,
    Verdict.DIFFERS: ReportMark.WARNING,
    Verdict.UNCHECKED: ReportMark.NOT_JUDGED,
}


def api_report(report: Report) -> v1.AddReport:
    """Return the report of a check of one endpoint."""
    return v1.AddReport(
        kind=v1.ReportKind.CONFORMANCE,
        subject=report.endpoint[:MAX_SUBJECT],
        passed=report.is_known_here and not report.of(Verdict.WRONG),
        summary=summary(report)[:MAX_LINE],
        version=__version__,
        problems=[_problem(finding) for verdict in (Verdict.WRONG, Verdict.DIFFERS) for finding in report.of(verdict)],
        findings=[_finding(finding) for finding in report.findings],
    )


def summary(report: Report) -> str:
    """Return how many rows have which verdict, and how many requests were sent, as sentences."""
    counts = ", ".join(_count_text(report.count(verdict), verdict) for verdict in Verdict)
    return f"{len(report.findings)} rows at {report.endpoint}: {counts}. {report.requests} requests."


def _count_text(count: int, verdict: Verdict) -> str:
    return f"{count} differ" if verdict is Verdict.DIFFERS and count != 1 else f"{count} {verdict}"


def _problem(finding: Finding) -> v1.ReportProblem:
    source = f" [{finding.kind}: {finding.source}]" if finding.verdict is Verdict.WRONG else ""
    return v1.ReportProblem(
        title=f"{finding.row}: {finding.verdict}",
        mark=MARKS[finding.verdict],
        expected=f"{citation(finding)}{source}"[:MAX_PARAGRAPH],
        seen=finding.why[:MAX_PARAGRAPH],
        output=[exchange[:MAX_LINE] for exchange in finding.seen],
    )


def _finding(finding: Finding) -> v1.ReportFinding:
    return v1.ReportFinding(
        place=finding.section,
        name=finding.row,
        mark=MARKS[finding.verdict],
        verdict=finding.verdict.value,
        expected=citation(finding).removeprefix(f"{finding.section}: ")[:MAX_PARAGRAPH],
        seen=finding.why[:MAX_PARAGRAPH],
        evidence=[exchange[:MAX_PARAGRAPH] for exchange in finding.seen],
    )
