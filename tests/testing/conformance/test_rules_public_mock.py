"""Microsoft's public mock: the kit finds exactly what contradicts documentation and captures, and nothing else."""

import pytest

from forewarn.testing.conformance import RULES, Pace, Report, Verdict, examine
from forewarn.testing.conformance.rules import requests
from tests.testing.conformance.public_mock import PublicMock, run_public_mock
from tests.testing.conformance.reports import GUARD, no_delay, rule_ids

WRONG = {
    # It needs neither header nor version, and serves forwarded requests.
    "approval-header", "forwarded", "forwarded-approval", "no-header", "version-latest", "version-missing",
    "version-missing-approval", "version-twice", "version-twice-approval", "version-unsupported",
    "version-unsupported-approval",
    # Every version has the same document.
    "description-since", "duration-since", "preview-names", "source-since",
    # The document: sorted keys, a line end, ids in lower case, ISO dates; the headers of a development server.
    "compact", "content-type", "etag", "event-id", "event-keys", "event-keys-older", "not-before", "server",
    # Approvals: only the first StartRequest counts, and the event gets another id.
    "approve-several", "event-id-started",
    # Bodies: it accepts, or fails on, what is malformed.
    "body-no-event-id", "body-no-list", "body-no-object", "body-no-start-requests",
    # Paths that it does not have.
    "instance", "path-case", "versions",
}  # fmt: skip

DIFFERS = {
    "approve-all-or-nothing", "approve-body", "approve-names", "body-too-large", "expect-other", "expect-refused",
    "forwarded-status", "head-too-large", "header-empty", "header-false", "header-other", "header-twice",
    "method-delete", "method-head", "method-options", "method-put", "not-http", "order-forwarded-header",
    "order-header-version", "order-method-header", "order-version-body", "path-any-case", "path-nowhere", "path-slash",
    "preview-query-header", "request-id", "unknown-event", "unknown-path", "version-empty", "version-missing-body",
    "version-twice-status", "version-unsupported-body", "wait-header", "wait-wrong",
}  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Report:
    """The report of the mock. On a busy machine it may take its time to close a connection."""
    mock = PublicMock()
    with run_public_mock(mock) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "CLOSE_TIMEOUT", GUARD)
        return examine(url, approve_event=mock.event_id, burst=True, pace=no_delay(), timeout=GUARD)


def test_exactly_its_rows_are_wrong(report: Report) -> None:
    assert rule_ids(report, Verdict.WRONG) == WRONG


def test_exactly_its_rows_differ(report: Report) -> None:
    assert rule_ids(report, Verdict.DIFFERS) == DIFFERS


def test_every_wrong_row_has_a_source(report: Report) -> None:
    assert [finding.row for finding in report.of(Verdict.WRONG) if not finding.source] == []


def test_closed_connections_are_not_misjudged(report: Report) -> None:
    found = {finding.row: finding for finding in report.findings}
    assert found["keep-alive"].verdict is Verdict.PASSED
    assert found["connection-close"].verdict is Verdict.PASSED
    assert found["rate"].why == "all 12 requests of the burst were served: no rate limit, as in an emulator"


def test_missing_instance_document_is_one_finding(report: Report) -> None:
    about_instance = [finding for finding in report.findings if "instance" in finding.row]
    bad = [finding.row for finding in about_instance if finding.verdict in (Verdict.WRONG, Verdict.DIFFERS)]
    assert bad == ["instance"]


def test_only_the_first_start_request_counts(report: Report) -> None:
    (finding,) = (finding for finding in report.findings if finding.row == "approve-several")
    assert "but at once after one that named it first" in finding.why


def test_start_before_its_time_is_found_under_another_id() -> None:
    """The mock starts events after some seconds, whatever their NotBefore; here, after some queries."""
    mock = PublicMock(starts_after=5)
    rules = [rule for rule in RULES if rule.id == "not-before-unapproved"]
    with run_public_mock(mock) as url:
        report = examine(url, watch_seconds=GUARD, rules=rules, pace=Pace(1e9, sleep=lambda _: None), timeout=GUARD)
    (finding,) = report.findings
    assert finding.verdict is Verdict.WRONG
    assert "before its NotBefore, and the kit did not approve it" in finding.why
