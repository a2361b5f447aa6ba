"""The whole examination: one look at an endpoint, and a finding for every row."""

from collections.abc import Callable, Sequence

import msgspec

from forewarn.client.endpoint import Endpoint, parse_endpoint
from forewarn.client.errors import Unreachable
from forewarn.testing.conformance.approving import approve
from forewarn.testing.conformance.document import NotChecked, Otherwise
from forewarn.testing.conformance.pace import USUAL, Pace
from forewarn.testing.conformance.row import Finding, Needs, Row, Verdict
from forewarn.testing.conformance.rows import ROWS
from forewarn.testing.conformance.seen import Seen
from forewarn.testing.conformance.talking import Unanswered

TIMEOUT = 10.0
"""How many seconds an answer may take."""

NOTES = 6
"""How many exchanges a finding quotes."""

STRANGER = "the endpoint does not know this machine: it answers with 403"

OnFinding = Callable[[Finding], None]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, in the order of the rows."""

    endpoint: str
    requests: int
    seconds: float = 0.0
    """How long it took altogether, with the beginning and the approval, which belong to no row."""
    findings: tuple[Finding, ...]
    is_known_here: bool = True
    """Whether the endpoint serves this machine at all."""

    def count(self, verdict: Verdict) -> int:
        """Tell how many rows came out like this."""
        return len(self.of(verdict))

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings that came out like this."""
        return tuple(finding for finding in self.findings if finding.verdict is verdict)


def examine(
    endpoint: str | Endpoint,
    *,
    approve_event: str | None = None,
    burst: bool = False,
    pace: Pace | None = None,
    timeout: float = TIMEOUT,
    rows: Sequence[Row] = ROWS,
    on_finding: OnFinding = lambda _: None,
) -> Report:
    """Check an endpoint row by row. Without `approve_event` nothing is sent but GET, HEAD and OPTIONS.

    With it, the event of that id is approved: what it announces will happen. `burst` sends more than 5 requests in a
    second, once. Raises `client.Unreachable` if nobody answers in HTTP, and `client.NotAnEndpoint`.
    """
    where = parse_endpoint(endpoint) if isinstance(endpoint, str) else endpoint
    seen = Seen(where, pace=pace or Pace(USUAL), timeout=timeout, burst=burst)
    began_at = seen.pace.now()
    try:
        first = seen.begin()
    except Unanswered as error:
        raise Unreachable(str(where), str(error)) from error
    is_stranger = first.status == 403
    if approve_event is not None and not is_stranger:
        seen.approval = approve(seen, approve_event)
    findings = []
    for row in rows:
        turned_to_at = seen.pace.now()
        finding = _unchecked(row, STRANGER) if is_stranger and row.needs is not Needs.STRANGER else find(row, seen)
        finding = msgspec.structs.replace(finding, seconds=seen.pace.now() - turned_to_at)
        findings.append(finding)
        on_finding(finding)
    return Report(
        endpoint=str(where),
        requests=seen.pace.requests,
        seconds=seen.pace.now() - began_at,
        findings=tuple(findings),
        is_known_here=not is_stranger,
    )


def find(row: Row, seen: Seen) -> Finding:
    """Check one row."""
    seen.noted.clear()
    try:
        row.check(seen)
    except NotChecked as error:
        return _unchecked(row, str(error))
    except (Otherwise, Unanswered) as error:
        verdict = Verdict.DIFFERS if row.is_own else Verdict.WRONG
        return _finding(row, verdict, why=str(error), seen=tuple(seen.noted[-NOTES:]))
    return _finding(row, Verdict.PASSED)


def _unchecked(row: Row, why: str) -> Finding:
    return _finding(row, Verdict.UNCHECKED, why=why)


def _finding(row: Row, verdict: Verdict, *, why: str = "", seen: tuple[str, ...] = ()) -> Finding:
    return Finding(
        row=row.id, section=row.section, rule=row.rule, is_own=row.is_own, verdict=verdict, why=why, seen=seen
    )
