"""Findings in words, and as cases of a JUnit report."""

import re

from forewarn.testing.conformance.examining import Report
from forewarn.testing.conformance.row import Finding, Verdict
from forewarn.testing.reports import Case, CaseStatus

PAGE = "docs/reference/guest-protocol.md"

STATUSES = {
    Verdict.PASSED: CaseStatus.PASSED,
    Verdict.WRONG: CaseStatus.FAILED,
    Verdict.DIFFERS: CaseStatus.SKIPPED,
    Verdict.UNCHECKED: CaseStatus.SKIPPED,
}
"""What differs is no failure, and must not look like a pass either."""

LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def citation(finding: Finding) -> str:
    """Say where the rule is, and what it says."""
    return f"{finding.section}: {words(finding.rule)}"


def words(rule: str) -> str:
    """Return a rule without the marks of its page's tables and links."""
    cells = (cell.removeprefix("|").strip() for cell in LINK.sub(r"\1", rule).split(" |"))
    return " · ".join(cell for cell in cells if cell)


def cases(report: Report) -> list[Case]:
    """Return one case for every row."""
    return [_case(finding) for finding in report.findings]


def _case(finding: Finding) -> Case:
    folder = finding.section.lower().replace(" ", "-")
    lines = [f"Rule: {PAGE}, {citation(finding)}", finding.why, *finding.seen]
    return Case(
        name=finding.row,
        classname=f"conformance.{folder}",
        status=STATUSES[finding.verdict],
        message=f"{finding.verdict}: {finding.why}" if finding.why else "",
        details="\n".join(line for line in lines if line),
        seconds=finding.seconds,
    )
