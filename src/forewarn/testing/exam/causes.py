"""Causes of broken checks and warnings: findings of several scenarios that have the same reason are one cause."""

import re
from collections.abc import Sequence, Set
from pathlib import Path

import msgspec

from forewarn.testing.exam.checks import Finding, Polarity, Verdict
from forewarn.testing.exam.report import Report
from forewarn.testing.exam.scenario_run import Result

PYTHON_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
NODE_FRAME = re.compile(r"^\s+at (?:(?P<function>.+) \()?(?:file://)?(?P<file>/[^():]+):(?P<line>\d+):\d+\)?$")
FOREIGN_FILE = re.compile(r"[/\\](site-packages|dist-packages|node_modules|lib[/\\]python\d[\d.]*)[/\\]|^<")
"""Files of installed packages and of the language itself."""

VARIABLE = re.compile(r"\([^()]*\)|\d+(\.\d+)?")
"""Parts of a finding that differ between scenarios: numbers, and remarks in parentheses."""

EVENT = re.compile(r"-E\d+$")
CRASH_CHECKS = ("keeps-running", "asks")
"""Checks that a program breaks by ending."""

SHOWN = (Verdict.BROKEN, Verdict.WARNING)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for one or more findings. `finding` is the first of them, in the first of the scenarios."""

    demand: str
    """The check; `approves-E…` if it is about events with different labels."""
    finding: Finding
    scenarios: tuple[str, ...]
    summary: str = ""
    """What all findings have in common, if it is more than that they look alike."""
    frame: str | None = None
    """The last place in the program's own files, if the program printed a traceback and ended."""

    @property
    def is_broken(self) -> bool:
        """Whether it is not only a warning."""
        return self.finding.verdict is Verdict.BROKEN


def causes(report: Report) -> tuple[Cause, ...]:
    """Return the causes of all broken checks, then those of all warnings, each by the number of its scenarios."""
    approved: Set[str | None] = {
        finding.event_kind
        for _, finding in report.findings
        if _is_approval(finding) and finding.verdict is Verdict.KEPT and finding.event_kind
    }
    groups: dict[tuple[object, ...], list[tuple[Result, Finding]]] = {}
    for result in report.results:
        for finding in result.findings:
            if finding.verdict in SHOWN:
                groups.setdefault(_key(result, finding, approved), []).append((result, finding))
    found = [_cause(members, approved) for members in groups.values()]
    return tuple(sorted(found, key=lambda cause: (not cause.is_broken, -len(cause.scenarios))))


def last_own_frame(output: str, directory: Path) -> str | None:
    """Return the last place in the user's own files in a traceback of Python or Node: `handler.py:12 in poll`."""
    lines = output.splitlines()
    # Python prints the innermost frame last, Node prints it first.
    for pattern, ordered in ((PYTHON_FRAME, reversed(lines)), (NODE_FRAME, iter(lines))):
        for match in filter(None, map(pattern.match, ordered)):
            if not FOREIGN_FILE.search(match["file"]):
                path = Path(match["file"])
                shown = path.relative_to(directory) if path.is_relative_to(directory) else path
                return f"{shown}:{match['line']}" + (f" in {match['function']}" if match["function"] else "")
    return None


def _is_approval(finding: Finding) -> bool:
    return finding.demand.startswith("approves-E") and finding.mood is Polarity.MUST


def _is_never_approved(finding: Finding, approved: Set[str | None]) -> bool:
    """Return whether the handler received an event of a kind of which it approved no event in any scenario."""
    return _is_approval(finding) and bool(finding.advice) and finding.event_kind not in approved


def _key(result: Result, finding: Finding, approved: Set[str | None]) -> tuple[object, ...]:
    demand = EVENT.sub("", finding.demand)
    if _is_never_approved(finding, approved):
        return demand, finding.event_kind
    frame = _frame(result)
    if frame is not None and finding.demand in CRASH_CHECKS:
        return demand, finding.verdict, frame, _error_type(result.output)
    return demand, finding.verdict, finding.event_kind, VARIABLE.sub("#", finding.seen), frame


def _frame(result: Result) -> str | None:
    return None if result.exit_code is None else last_own_frame(result.output, Path.cwd())


def _error_type(output: str) -> str:
    """Return the type of the error in the last line of a traceback, without its message."""
    return output.strip().splitlines()[-1].partition(":")[0]


def _cause(members: Sequence[tuple[Result, Finding]], approved: Set[str | None]) -> Cause:
    result, finding = members[0]
    demands = {finding.demand for _, finding in members}
    type_, _, source = (finding.event_kind or "").partition("/")
    never = f"it approved no {type_}" + (f" of source {source}" if source else "")
    return Cause(
        demand=finding.demand if len(demands) == 1 else EVENT.sub("-E…", finding.demand),
        finding=finding,
        scenarios=tuple(dict.fromkeys(result.scenario for result, _ in members)),
        summary=never if _is_never_approved(finding, approved) else "",
        frame=_frame(result) if finding.demand in CRASH_CHECKS else None,
    )
