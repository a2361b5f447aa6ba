"""Findings as cases of a JUnit report."""

from forewarn.testing.conformance.examining import Report
from forewarn.testing.conformance.row import Finding, Verdict
from forewarn.testing.reports import Case, CaseStatus

STATUSES = {
    Verdict.PASSED: CaseStatus.PASSED,
    Verdict.WRONG: CaseStatus.FAILED,
    Verdict.DIFFERS: CaseStatus.SKIPPED,
    Verdict.UNCHECKED: CaseStatus.SKIPPED,
}
"""What differs is no failure, and must not look like a pass either."""


def cases(report: Report) -> list[Case]:
    """Return one case for every row."""
    return [_case(finding) for finding in report.findings]


def _case(finding: Finding) -> Case:
    folder = finding.section.lower().replace(" ", "-")
    return Case(
        name=finding.row,
        classname=f"conformance.{folder}",
        status=STATUSES[finding.verdict],
        message=f"{finding.verdict}: {finding.why}" if finding.why else "",
        details="\n".join(
            [f"{finding.section}: {finding.rule}", *([finding.why] if finding.why else []), *finding.seen]
        ),
    )
