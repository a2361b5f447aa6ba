"""Does an endpoint speak Scheduled Events? Row by row, each with its rule. Needs nothing of the server."""

from forewarn.testing.conformance.examining import Report, examine
from forewarn.testing.conformance.pace import Pace
from forewarn.testing.conformance.reporting import cases, citation, words
from forewarn.testing.conformance.row import Finding, Needs, Row, Verdict
from forewarn.testing.conformance.rows import ROWS

__all__ = ["ROWS", "Finding", "Needs", "Pace", "Report", "Row", "Verdict", "cases", "citation", "examine", "words"]
