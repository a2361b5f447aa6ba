"""Conformance runs without delays, and rule ids and findings out of their reports."""

from forewarn.testing.conformance import Pace, Report, Verdict

GUARD = 30.0
"""For how many seconds an answer may take; nothing is measured by it."""


def no_delay() -> Pace:
    """Make a pace that never waits."""
    return Pace(1e9, sleep=lambda _: None)


def rule_ids(report: Report, verdict: Verdict) -> set[str]:
    """Return the rows that came out like this."""
    return {finding.row for finding in report.of(verdict)}


def finding_lines(report: Report, *verdicts: Verdict) -> list[str]:
    """Write down the findings of these kinds, for a person who has to find out why."""
    return [
        f"{finding.row} {finding.verdict}: {finding.why} {finding.seen}"
        for finding in report.findings
        if finding.verdict in verdicts
    ]
