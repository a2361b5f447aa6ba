"""Helpers for conformance tests: a pace without delays, and rule ids and findings of a report."""

from forewarn.testing.conformance import Pace, Report, Verdict

GUARD = 30.0
"""How many seconds a response may take; no test measures it."""


def no_delay() -> Pace:
    """Return a pace that never waits."""
    return Pace(1e9, sleep=lambda _: None)


def rule_ids(report: Report, verdict: Verdict) -> set[str]:
    """Return the ids of the rules with this verdict."""
    return {finding.row for finding in report.of(verdict)}


def finding_lines(report: Report, *verdicts: Verdict) -> list[str]:
    """Return the findings with these verdicts as lines, for the message of a failed test."""
    return [
        f"{finding.row} {finding.verdict}: {finding.why} {finding.seen}"
        for finding in report.findings
        if finding.verdict in verdicts
    ]
