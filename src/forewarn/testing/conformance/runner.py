"""Run all conformance rules against one endpoint and report a finding for each, also as JUnit cases."""

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from forewarn.client.endpoint import Endpoint, parse_endpoint
from forewarn.client.errors import NotAnEndpoint, Unreachable
from forewarn.testing.conformance.approval import run_approval
from forewarn.testing.conformance.document import CheckSkipped, Mismatch
from forewarn.testing.conformance.probe import Probe
from forewarn.testing.conformance.raw_http import DEFAULT_RATE, Pace, RequestFailed
from forewarn.testing.conformance.rule import Finding, Precondition, Rule, Verdict
from forewarn.testing.conformance.rules import RULES
from forewarn.testing.conformance.rules.requests import VERSIONS, WHOLE_INSTANCE
from forewarn.testing.junit import Case, CaseStatus

DEFAULT_TIMEOUT = 10.0
"""How many seconds a response may take."""

MAX_EXCHANGES = 6
"""How many exchanges a finding shows."""

UNKNOWN_CALLER = "the endpoint does not know this machine: it responds with 403"

OnFinding = Callable[[Finding], None]

REQUIRED_REQUESTS = {
    Precondition.INSTANCE: ("instance", WHOLE_INSTANCE),
    Precondition.VERSIONS: ("versions", VERSIONS),
}
"""What other rules about the same path depend on: the row of the plain request, and the request."""

CASE_STATUSES = {
    Verdict.PASSED: CaseStatus.PASSED,
    Verdict.WRONG: CaseStatus.FAILED,
    Verdict.DIFFERS: CaseStatus.SKIPPED,
    Verdict.UNCHECKED: CaseStatus.SKIPPED,
}
"""A rule that differs is neither failed nor passed."""

LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, in the order of the rules."""

    endpoint: str
    requests: int
    seconds: float = 0.0
    """The total time, including the first request and the approval, which belong to no rule."""
    findings: tuple[Finding, ...]
    is_known_here: bool = True
    """Whether the endpoint knows this machine as a VM."""

    def count(self, verdict: Verdict) -> int:
        """Return how many rules have this verdict."""
        return len(self.of(verdict))

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings with this verdict."""
        return tuple(finding for finding in self.findings if finding.verdict is verdict)


def examine(
    endpoint: str | Endpoint,
    *,
    approve_event: str | None = None,
    approve_second: str | None = None,
    burst: bool = False,
    watch_seconds: float = 0.0,
    pace: Pace | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    rules: Sequence[Rule] = RULES,
    on_finding: OnFinding = lambda _: None,
) -> Report:
    """Check an endpoint rule by rule. Without `approve_event`, only GET, HEAD and OPTIONS are sent.

    `approve_event` is the id of an event to approve: its impact then starts. `approve_second` is another one, which an
    approval of both names. `burst` sends more than 5 requests in a second, once. `watch_seconds` is how long to watch,
    before anything else, whether Scheduled events start before their time. Raises `client.Unreachable` without an HTTP
    response, and `client.NotAnEndpoint`.
    """
    target = parse_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    if target.path:
        raise NotAnEndpoint(str(target))
    probe = Probe(
        target,
        pace=pace or Pace(DEFAULT_RATE),
        timeout=timeout,
        burst=burst,
        watch_seconds=watch_seconds,
        approves=[id_ for id_ in (approve_event, approve_second) if id_ is not None],
    )
    began_at = probe.pace.now()
    try:
        first_response = probe.send_first()
    except RequestFailed as error:
        raise Unreachable(str(target), str(error)) from error
    is_unknown_caller = first_response.status == 403
    findings: dict[str, Finding] = {}

    def check(selected: Iterable[Rule]) -> None:
        for rule in selected:
            rule_began_at = probe.pace.now()
            finding = (
                _skipped(rule, UNKNOWN_CALLER)
                if is_unknown_caller and rule.precondition is not Precondition.UNKNOWN_CALLER
                else check_rule(rule, probe)
            )
            findings[rule.id] = msgspec.structs.replace(finding, seconds=probe.pace.now() - rule_began_at)
            on_finding(findings[rule.id])

    # First, because a watched event may be due soon, and approval and the other rules take half a minute.
    check(rule for rule in rules if rule.precondition is Precondition.WATCH)
    if approve_event is not None and not is_unknown_caller:
        probe.approval = run_approval(probe, approve_event, approve_second)
    check(rule for rule in rules if rule.id not in findings)
    return Report(
        endpoint=str(target),
        requests=probe.pace.requests,
        seconds=probe.pace.now() - began_at,
        findings=tuple(findings[rule.id] for rule in rules),
        is_known_here=not is_unknown_caller,
    )


def check_rule(rule: Rule, probe: Probe) -> Finding:
    """Check one rule."""
    probe.exchanges.clear()
    try:
        _require_served(rule, probe)
        rule.check(probe)
    except CheckSkipped as error:
        return _skipped(rule, str(error))
    except (Mismatch, RequestFailed) as error:
        verdict = Verdict.DIFFERS if rule.is_own else Verdict.WRONG
        return _finding(rule, verdict, why=str(error), seen=tuple(probe.exchanges[-MAX_EXCHANGES:]))
    return _finding(rule, Verdict.PASSED)


def _require_served(rule: Rule, probe: Probe) -> None:
    """Raise CheckSkipped if the endpoint lacks what the rule is about: the row of that request has the finding."""
    if rule.precondition not in REQUIRED_REQUESTS:
        return
    row, request = REQUIRED_REQUESTS[rule.precondition]
    try:
        is_served = probe.send_once(request).status == 200
    except RequestFailed:
        is_served = False
    probe.exchanges.clear()
    if not is_served:
        path = request.target.partition("?")[0]
        raise CheckSkipped(f"the endpoint does not serve {path}: see row {row}")


def _skipped(rule: Rule, why: str) -> Finding:
    return _finding(rule, Verdict.UNCHECKED, why=why)


def _finding(rule: Rule, verdict: Verdict, *, why: str = "", seen: tuple[str, ...] = ()) -> Finding:
    return Finding(
        row=rule.id,
        section=rule.section,
        rule=rule.text,
        is_own=rule.is_own,
        verdict=verdict,
        why=why,
        seen=seen,
        kind=rule.evidence.kind,
        source=rule.evidence.source,
        anchor=rule.anchor,
    )


def citation(finding: Finding) -> str:
    """Return the section and the text of the rule."""
    return f"{finding.section}: {plain_text(finding.rule)}"


def plain_text(rule: str) -> str:
    """Return the text of a rule without the Markdown of tables and links."""
    cells = (cell.removeprefix("|").strip() for cell in LINK.sub(r"\1", rule).split(" |"))
    return " · ".join(cell for cell in cells if cell)


def cases(report: Report) -> list[Case]:
    """Return one case for every rule."""
    return [_case(finding) for finding in report.findings]


def _case(finding: Finding) -> Case:
    suite = finding.section.lower().replace(" ", "-")
    evidence = f"Evidence: {finding.kind}{f', {finding.source}' if finding.source else ''}"
    lines = [f"Rule: {finding.anchor}, {citation(finding)}", evidence, finding.why, *finding.seen]
    return Case(
        name=finding.row,
        classname=f"conformance.{suite}",
        status=CASE_STATUSES[finding.verdict],
        message=f"{finding.verdict}: {finding.why}" if finding.why else "",
        details="\n".join(line for line in lines if line),
        seconds=finding.seconds,
    )
