"""Conformance kit: check an endpoint against the guest protocol, rule by rule, without the extra `[server]`."""

from forewarn.testing.conformance.api_report import api_report, summary
from forewarn.testing.conformance.evidence import Evidence, EvidenceKind
from forewarn.testing.conformance.raw_http import Pace
from forewarn.testing.conformance.rule import Finding, Precondition, Rule, Verdict
from forewarn.testing.conformance.rules import RULES
from forewarn.testing.conformance.runner import Report, cases, citation, examine, plain_text

__all__ = [
    "ROWS",
    "RULES",
    "Evidence",
    "EvidenceKind",
    "Finding",
    "Needs",
    "Pace",
    "Precondition",
    "Report",
    "Row",
    "Rule",
    "Verdict",
    "api_report",
    "cases",
    "citation",
    "examine",
    "plain_text",
    "summary",
    "words",
]

# Earlier public names, kept as aliases.
words = plain_text
Row = Rule
Needs = Precondition
ROWS = RULES
