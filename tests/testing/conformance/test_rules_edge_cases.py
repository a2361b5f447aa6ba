"""Mock endpoints with errors in HTTP, names, limits and the extension. With them, every rule fails at least once."""

import socket
from typing import Any

import pytest

from forewarn.testing.conformance import RULES, Report, Verdict, examine
from forewarn.testing.conformance.rules.error_responses import BURST_SIZE
from forewarn.testing.conformance.rules.requests import INSTANCE_VERSION
from tests.testing.conformance import test_rules_wrong_endpoints
from tests.testing.conformance.mock import (
    NO_VERSION,
    VERSIONS,
    Headers,
    MockEndpoint,
    MockRequest,
    MockResponse,
    Refused,
    error,
    run_mock,
)
from tests.testing.conformance.reports import GUARD, no_delay, rule_ids
from tests.testing.conformance.test_rules_wrong_endpoints import NO_EXTENSION, Case

Fields = dict[str, Any]

CANNOT_FAIL = {"approve-starts"}
"""An endpoint need not say what blocks an event, so this rule is either passed or not checked."""


def run_kit(mock: MockEndpoint) -> Report:
    with run_mock(mock) as url:
        return examine(url, approve_event=mock.events[0]["EventId"], burst=True, pace=no_delay(), timeout=GUARD)


class NormalizesPaths(MockEndpoint):
    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        kept: list[str] = []
        for segment in asked.path.replace("%2F", "/").split("/"):
            if segment == "..":
                kept.pop()
            elif segment not in ("", "."):
                kept.append(segment)
        return super().resolve_path(asked._replace(target="/" + "/".join(kept)))


class ComparesParametersByCase(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        if "api-version=" not in asked.target:
            raise Refused(self.bad_version(400, NO_VERSION))
        return super().check_version(asked, is_instance=is_instance)


class RefusesOtherParameters(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        others = {name for name, _ in asked.parameters} - {"api-version", "wait"}
        return error(400, "unknown parameter") if others else super().query(asked, version)


class RefusesHttp10(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        return error(505, "too old") if asked.http == "1.0" else super().answer(asked, body)


class KeepsTheUnderscoreInALaterVersion(MockEndpoint):
    def name(self, vm: str, version: str) -> str:
        return vm if version > VERSIONS[1] or "_IN_" in vm else f"_{vm}"


class HasAnUnknownDocumentKey(MockEndpoint):
    def document(self, version: str) -> Fields:
        return super().document(version) | {"Title": "events"}


class HasOtherIdsInOlderVersions(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        shown = super().event(each, version)
        return shown | ({"EventId": f"{each['EventId'][:-1]}-"} if version < VERSIONS[-1] else {})


class SendsChunks(MockEndpoint):
    def written(self, asked: MockRequest | None, reply: MockResponse) -> bytes:
        if reply.status != 200 or not reply.body:
            return super().written(asked, reply)
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(reply.body), reply.body)
        return super().written(asked, reply._replace(body=chunks))

    def usual_headers(self, reply: MockResponse) -> Headers:
        usual = super().usual_headers(reply)
        return [("Transfer-Encoding", "chunked"), *usual[1:]] if reply.status == 200 and reply.body else usual


class ForgetsEndedEvents(MockEndpoint):
    def start(self, each: Fields) -> None:
        self.events = [other for other in self.events if other is not each]
        self.incarnation += 2


class OmitsRetryAfter(MockEndpoint):
    answers = 0

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        self.answers += 1
        return error(429, "slower") if self.answers % 9 == 0 else super().answer(asked, body)


class LimitsTheRateWith403(MockEndpoint):
    """Refuses one query while others are pending. Only one: connections of a burst may be open for a while longer."""

    def __init__(self) -> None:
        super().__init__()
        self.pending = 0
        self.has_refused = False

    def serve(self, line: socket.socket) -> None:
        with self.lock:
            self.pending += 1
        try:
            super().serve(line)
        finally:
            with self.lock:
                self.pending -= 1

    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        is_refused = self.pending >= BURST_SIZE and not self.has_refused  # the caller has the lock
        self.has_refused |= is_refused
        return error(403, "slower") if is_refused else super().answer(asked, body)


class ChecksTheMethodFirst(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        self.check_method(asked, ("GET", "POST"))
        return super().answer(asked, body)


class ChecksTheHeaderFirst(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        self.check_header(asked)
        return super().answer(asked, body)


class RespondsWith500ToInvalidHttp(MockEndpoint):
    """Responds with 500 to heads and bodies that are too large, and to bytes that are not HTTP."""

    def read_and_answer(
        self, line: socket.socket, head: bytes, unread: bytes
    ) -> tuple[MockResponse, MockRequest | None, bytes]:
        reply, asked, rest = super().read_and_answer(line, head, unread)
        is_refused = asked is None or reply.status in (413, 431)
        return (error(500, "failed")._replace(closes=True), asked, rest) if is_refused else (reply, asked, rest)


class ComparesPathsExactly(MockEndpoint):
    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        return None if asked.path.endswith("/") or "%" in asked.path else super().resolve_path(asked)


class IgnoresWait(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        return super().query(asked._replace(target=asked.target.partition("&wait")[0]), version)


class HasNumbersInTheInstanceDocument(MockEndpoint):
    def instance(self, asked: MockRequest, path: list[str]) -> MockResponse:
        found = super().instance(asked, path)
        return found._replace(body=found.body.replace(b'"interface":[]', b'"interface":[7]'))


class SupportsOneInstanceVersion(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        version = super().check_version(asked, is_instance=is_instance)
        if is_instance and version != INSTANCE_VERSION:
            raise Refused(self.bad_version(404, "unsupported"))
        return version


class IgnoresTheFormat(MockEndpoint):
    def instance(self, asked: MockRequest, path: list[str]) -> MockResponse:
        return super().instance(asked._replace(target=asked.target.partition("&format")[0]), path)


class RefusesTheJsonFormat(MockEndpoint):
    def instance(self, asked: MockRequest, path: list[str]) -> MockResponse:
        return error(400, "format") if asked.parameter("format") == ["json"] else super().instance(asked, path)


class IgnoresOtherExpectations(MockEndpoint):
    def expect(self, asked: MockRequest) -> None:
        if asked.values("expect") == ["100-continue"]:
            super().expect(asked)


class AcceptsAnyVersionOfAnApproval(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        given = asked.parameter("api-version")
        if asked.method == "POST" and len(given) == 1:
            return given[0]
        return super().check_version(asked, is_instance=is_instance)


class HasEveryInstancePath(MockEndpoint):
    def instance(self, asked: MockRequest, path: list[str]) -> MockResponse:
        found = super().instance(asked, path)
        return MockResponse(200, b'""') if found.status == 404 else found


CASES = [
    Case(NormalizesPaths, set(), {"path-nowhere"}),
    Case(ComparesParametersByCase, set(), {"parameter-case"}),
    Case(RefusesOtherParameters, set(), {"parameter-other"}),
    Case(RefusesHttp10, set(), {"http-1.0", "http-1.0-keep-alive"}),
    Case(KeepsTheUnderscoreInALaterVersion, {"names"}),
    Case(HasAnUnknownDocumentKey, {"document-keys"}),
    Case(HasOtherIdsInOlderVersions, {"event-id-versions", "preempt-since", "terminate-since"}),
    Case(SendsChunks, {"content-length"}),
    Case(ForgetsEndedEvents, set(), {"approve-ended"}),
    Case(OmitsRetryAfter, set(), {"rate-response"}),
    Case(LimitsTheRateWith403, {"rate"}, {"rate-response"}),
    Case(ChecksTheMethodFirst, set(), {"order-path-method"}),
    Case(ChecksTheHeaderFirst, set(), {"order-path-header", "order-method-header", "order-forwarded-header"}),
    Case(RespondsWith500ToInvalidHttp, set(), {"body-too-large", "head-too-large", "not-http"}),
    Case(ComparesPathsExactly, set(), {"path-encoded", "path-slash"}),
    Case(IgnoresWait, set(), {"wait-wrong"}),
    Case(HasNumbersInTheInstanceDocument, {"instance-strings"}),
    Case(SupportsOneInstanceVersion, set(), {"instance-versions"}),
    Case(IgnoresTheFormat, {"instance-leaf-text"}, {"format-wrong", "instance-names", "instance-path-case"}),
    Case(RefusesTheJsonFormat, {"instance-json"}, {"instance-leaf-json"}),
    Case(IgnoresOtherExpectations, set(), {"expect-other"}),
    Case(AcceptsAnyVersionOfAnApproval, {"version-unsupported-approval"}, {"order-version-body"}),
    Case(HasEveryInstancePath, set(), {"instance-nowhere", "path-nowhere"}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mock.__name__)
def test_wrong_endpoint_fails_exactly_its_rules(case: Case) -> None:
    report = run_kit(case.mock())
    assert rule_ids(report, Verdict.WRONG) == case.wrong
    assert rule_ids(report, Verdict.DIFFERS) == case.differs | NO_EXTENSION


class AnnouncesLongPollsWithoutHolding(MockEndpoint):
    """Sends Forewarn-Wait with each 200, but holds no request."""

    def query(self, asked: MockRequest, version: str) -> MockResponse:
        reply = super().query(asked, version)
        offered = (("Forewarn-Wait", "60"),) if reply.status == 200 else ()
        return reply._replace(headers=(*reply.headers, *offered))


class RespondsToEveryLongPollWith304(AnnouncesLongPollsWithoutHolding):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        reply = super().query(asked, version)
        return MockResponse(304) if asked.parameter("wait") and reply.status == 200 else reply


class RespondsToEveryLongPollWith200(AnnouncesLongPollsWithoutHolding):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        fresh = asked._replace(headers=[("Metadata", "true")])
        return super().query(fresh if asked.parameter("wait") else asked, version)


WAITING = [
    Case(AnnouncesLongPollsWithoutHolding, set(), {"wait-header-304", "wait-holds", "wait-ends-with-change"}),
    Case(
        RespondsToEveryLongPollWith304,
        set(),
        {"wait-header-304", "wait-holds", "wait-ends-with-change", "wait-other-etag", "wait-without-etag"},
    ),
    Case(RespondsToEveryLongPollWith200, set(), {"wait-header-304", "wait-too-many"}),
]


@pytest.mark.parametrize("case", WAITING, ids=lambda case: case.mock.__name__)
def test_wrong_extension_differs_in_exactly_its_rules(case: Case) -> None:
    report = run_kit(case.mock())
    assert rule_ids(report, Verdict.WRONG) == set()
    assert rule_ids(report, Verdict.DIFFERS) == case.differs


class RefusesEveryCaller(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        return MockResponse(403, b"go away")


def test_refused_caller_needs_an_error_message() -> None:
    report = run_kit(RefusesEveryCaller())
    assert rule_ids(report, Verdict.DIFFERS) == {"unknown-caller"}
    assert rule_ids(report, Verdict.PASSED) == rule_ids(report, Verdict.WRONG) == set()


class Broken(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        return error(500, "failed")


def test_endpoint_without_a_document_fails_the_version_rules() -> None:
    wrong = rule_ids(run_kit(Broken()), Verdict.WRONG)
    assert {"query", *(f"version-{version}" for version in VERSIONS)} <= wrong


def test_every_rule_fails_for_some_endpoint() -> None:
    """A rule that never fails may not check anything."""
    cases = (*test_rules_wrong_endpoints.CASES, *CASES, *WAITING)
    failed = set().union(*(case.wrong | case.differs for case in cases))
    elsewhere = {"not-before-unapproved", "query", "version-2020-07-01", "unknown-caller", *NO_EXTENSION}
    assert {row.id for row in RULES} - failed - elsewhere == CANNOT_FAIL
