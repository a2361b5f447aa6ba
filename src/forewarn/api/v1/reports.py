"""Report types: the reports of exams and conformance checks that the emulator shows."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from forewarn.api.v1.common import Request, Response

__all__ = [
    "AddReport",
    "Report",
    "ReportFinding",
    "ReportKind",
    "ReportList",
    "ReportMark",
    "ReportProblem",
    "ReportResult",
    "ReportSummary",
]

MAX_SUBJECT = 1_024
MAX_LINE = 512
MAX_PARAGRAPH = 4_096

Word = Annotated[str, msgspec.Meta(max_length=128)]
Line = Annotated[str, msgspec.Meta(max_length=MAX_LINE)]
Paragraph = Annotated[str, msgspec.Meta(max_length=MAX_PARAGRAPH)]


class ReportKind(StrEnum):
    """What was checked: a handler, or an endpoint."""

    EXAM = "exam"
    CONFORMANCE = "conformance"


class ReportMark(StrEnum):
    """How good a finding is."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    NOT_JUDGED = "not-judged"


class ReportFinding(Response, frozen=True):
    """One check in one scenario, or one rule of the protocol: what is expected, and what was seen.

    `verdict` is the word of the report for its mark, such as `kept` or `differs`. `evidence` are requests with their
    responses.
    """

    place: Word
    name: Word
    mark: ReportMark
    verdict: Word
    expected: Paragraph = ""
    seen: Paragraph = ""
    evidence: Annotated[Sequence[Paragraph], msgspec.Meta(max_length=16)] = ()


class ReportProblem(Response, frozen=True):
    """Findings with the same cause: the first of them, and the scenarios in which they occurred.

    `location` is the place in the program, `output` the last lines that it printed.
    """

    title: Line
    mark: ReportMark
    expected: Paragraph = ""
    seen: Paragraph = ""
    location: Line = ""
    advice: Paragraph = ""
    places: Annotated[Sequence[Word], msgspec.Meta(max_length=256)] = ()
    output: Annotated[Sequence[Line], msgspec.Meta(max_length=16)] = ()


class ReportResult(Response, frozen=True):
    """The result of one scenario. `verdict` is the word of the report; `counts` are its findings by their verdict."""

    name: Word
    title: Line
    mark: ReportMark
    verdict: Word
    counts: Annotated[dict[Word, int], msgspec.Meta(max_length=16)] = msgspec.field(default_factory=dict)
    seconds: float = 0.0


class ReportSummary(Response, frozen=True):
    """A report without its findings. `subject` is the command of the handler, or the URL of the endpoint.

    `created_at` is real time. `version` is the version of Forewarn that made the report.
    """

    id: str
    kind: ReportKind
    subject: str
    passed: bool
    summary: str
    version: str
    created_by: str
    created_at: datetime


class Report(ReportSummary, frozen=True, kw_only=True):
    """A report. `problems` come first: they are what its reader should solve."""

    problems: Sequence[ReportProblem]
    results: Sequence[ReportResult]
    findings: Sequence[ReportFinding]


class ReportList(Response, frozen=True):
    """The reports, newest first. Of many, the newest are kept."""

    reports: Sequence[ReportSummary]


class AddReport(Request, frozen=True):
    """Add a report, as `forewarn exam --upload` and `forewarn conformance --upload` do."""

    kind: ReportKind
    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SUBJECT)]
    passed: bool
    summary: Line
    version: Annotated[str, msgspec.Meta(max_length=64)] = ""
    problems: Annotated[Sequence[ReportProblem], msgspec.Meta(max_length=500)] = ()
    results: Annotated[Sequence[ReportResult], msgspec.Meta(max_length=500)] = ()
    findings: Annotated[Sequence[ReportFinding], msgspec.Meta(max_length=10_000)] = ()
