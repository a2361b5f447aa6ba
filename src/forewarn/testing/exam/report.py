"""The report of an exam: the results of all scenarios, as JSON and as JUnit cases."""

import re
from collections import Counter

import msgspec

from forewarn.core.text import count_text
from forewarn.testing.exam.checks import Finding, Verdict
from forewarn.testing.exam.scenario_run import Result
from forewarn.testing.junit import Case, CaseStatus

CASE_STATUSES = {
    Verdict.KEPT: CaseStatus.PASSED,
    Verdict.WARNING: CaseStatus.PASSED,
    Verdict.BROKEN: CaseStatus.FAILED,
    Verdict.NOT_JUDGED: CaseStatus.SKIPPED,
}


PASSED, FAILED, NOT_JUDGED, NOT_FINISHED = "passed", "failed", "not judged", "not finished"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all scenarios, in order."""

    results: tuple[Result, ...]

    @property
    def is_passed(self) -> bool:
        """Whether every scenario ran to its end and no check was broken. A scenario may be not judged."""
        return all(result.is_finished and not result.broken for result in self.results)

    @property
    def unfinished(self) -> tuple[Result, ...]:
        """Results of scenarios that did not run to their end, and in which no check was broken."""
        return tuple(result for result in self.results if not result.is_finished and not result.broken)

    @property
    def unexercised(self) -> tuple[Result, ...]:
        """Results of scenarios that ended, but whose situation did not occur."""
        found = (result for result in self.results if result.is_finished and not result.broken)
        return tuple(result for result in found if not result.is_exercised)

    @property
    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """All findings, each with its scenario."""
        return tuple((result.scenario, finding) for result in self.results for finding in result.findings)

    @property
    def broken(self) -> frozenset[tuple[str, str]]:
        """Scenario and check of every broken finding."""
        return frozenset((result.scenario, finding.demand) for result in self.results for finding in result.broken)

    @property
    def as_json(self) -> dict[str, object]:
        """The report for programs."""
        return {
            "passed": self.is_passed,
            **{verdict.replace(" ", "_"): self._count(verdict) for verdict in Verdict},
            "scenarios": [{"passed": result.is_passed, **msgspec.to_builtins(result)} for result in self.results],
        }

    def _count(self, verdict: Verdict) -> int:
        return sum(finding.verdict is verdict for _, finding in self.findings)


def result_word(result: Result) -> str:
    """Return the result of a scenario in a word."""
    if result.broken:
        return FAILED
    return NOT_FINISHED if not result.is_finished else PASSED if result.is_exercised else NOT_JUDGED


def summary(report: Report) -> str:
    """Return how many scenarios have which result, as a sentence."""
    counts = Counter(map(result_word, report.results))
    words = [f"{counts[word]} {word}" for word in (PASSED, FAILED, NOT_JUDGED, NOT_FINISHED) if counts[word]]
    return f"{count_text(len(report.results), 'scenario')}: {', '.join(words)}."


def unexercised_reason(result: Result) -> str:
    """Return why the situation of a scenario did not occur."""
    essential = (finding for finding in result.findings if finding.demand in result.essential)
    return next(finding.seen for finding in essential if not finding.is_exercised)


def with_labels(text: str, result: Result) -> str:
    """Replace event ids by the labels of the scenario."""
    for label, id_ in result.labels.items():
        text = re.sub(re.escape(id_), label, text, flags=re.IGNORECASE)
    return text


def cases(report: Report) -> list[Case]:
    """Return one case for every finding, and one for every unfinished scenario in which no check was broken."""
    return [case for result in report.results for case in _cases(result)]


def _cases(result: Result) -> list[Case]:
    # Only the time of the whole scenario is known. Its first case gets it, so that the sum is right.
    times = [result.seconds, *(0.0 for _ in result.findings[1:])]
    found = [_case(result, finding, seconds) for finding, seconds in zip(result.findings, times, strict=True)]
    return found if result.is_finished or result.broken else [*found, _unfinished_case(result)]


def _case(result: Result, finding: Finding, seconds: float) -> Case:
    lines = [f"{result.scenario}: {result.title}", f"Expected: it {finding.expected}", f"Seen: {finding.seen}"]
    if finding.verdict is Verdict.WARNING:
        lines.append("Warning: Azure tolerates this.")
    if finding.advice and finding.verdict is Verdict.BROKEN:
        lines.append(f"Advice: {finding.advice}")
    if finding.verdict is Verdict.BROKEN and result.output.strip():
        lines += ["", "Last output of the program:", result.output.rstrip()]
    return Case(
        name=finding.demand,
        classname=f"exam.{result.scenario}",
        status=CASE_STATUSES[finding.verdict],
        message="" if CASE_STATUSES[finding.verdict] is CaseStatus.PASSED else f"it {finding.expected}; {finding.seen}",
        details="\n".join(lines),
        seconds=seconds,
    )


def _unfinished_case(result: Result) -> Case:
    return Case(
        name="finished",
        classname=f"exam.{result.scenario}",
        status=CaseStatus.FAILED,
        message=result.problem or "the scenario did not run to its end",
        details=result.output,
    )
