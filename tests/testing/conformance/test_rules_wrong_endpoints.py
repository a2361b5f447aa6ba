"""Mock endpoints: one that follows the protocol, and many that each violate it in one way."""

import json
import re
import uuid
from collections.abc import Set
from typing import Any, NamedTuple

import pytest

from forewarn.testing.conformance import RULES, EvidenceKind, Precondition, Report, Verdict, examine
from forewarn.testing.conformance.raw_http import METADATA_HEADER, Request
from tests.testing.conformance.mock import (
    NO_HEADER,
    VERSIONS,
    Headers,
    MockEndpoint,
    MockRequest,
    MockResponse,
    Refused,
    error,
    run_mock,
)
from tests.testing.conformance.reports import GUARD, finding_lines, no_delay, rule_ids

Fields = dict[str, Any]


def run_kit(mock: MockEndpoint) -> Report:
    """Run the kit on an endpoint, and let it approve the first event."""
    approved = mock.events[0]["EventId"]
    with run_mock(mock) as url:
        return examine(url, approve_event=approved, pace=no_delay(), timeout=GUARD)


NO_EXTENSION = {"wait-header"}
NOT_TRIED = {
    "approve-ended", "approve-several", "not-before-unapproved", "rate", "rate-response", "unknown-caller",
    "wait-ends-with-change", "wait-header-304", "wait-holds", "wait-other-etag", "wait-too-many", "wait-without-etag",
}  # fmt: skip


def test_correct_endpoint_differs_only_in_the_extension() -> None:
    report = run_kit(MockEndpoint())
    assert finding_lines(report, Verdict.WRONG) == []
    assert rule_ids(report, Verdict.DIFFERS) == NO_EXTENSION
    assert rule_ids(report, Verdict.UNCHECKED) == NOT_TRIED


class IgnoresTheHeader(MockEndpoint):
    def check_header(self, asked: MockRequest) -> None: ...


class ComparesTheHeaderByCase(MockEndpoint):
    def check_header(self, asked: MockRequest) -> None:
        if ("Metadata", "true") not in asked.headers and asked.parameter("api-version") != VERSIONS[:1]:
            raise Refused(MockResponse(400, NO_HEADER))


class NeedsTheHeaderOnPreviewApprovals(MockEndpoint):
    def check_header(self, asked: MockRequest) -> None:
        super().check_header(asked._replace(method="GET"))


class HasAnotherMessageForTheMissingHeader(MockEndpoint):
    def check_header(self, asked: MockRequest) -> None:
        try:
            super().check_header(asked)
        except Refused:
            raise Refused(error(400, "Metadata header missing")) from None


class ServesForwardedRequests(MockEndpoint):
    def check_forwarded(self, asked: MockRequest) -> None: ...


class RefusesForwardedRequestsWith403(MockEndpoint):
    def check_forwarded(self, asked: MockRequest) -> None:
        if asked.values("x-forwarded-for"):
            raise Refused(error(403, "this was forwarded"))


class ComparesPathsByCase(MockEndpoint):
    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        return super().resolve_path(asked) if asked.path == asked.path.lower() else None


class RefusesAbsoluteTargets(MockEndpoint):
    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        return None if asked.target.startswith("http:") else super().resolve_path(asked)


class AcceptsVersionLatest(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        given = asked.parameter("api-version")
        return VERSIONS[-1] if given == ["latest"] else super().check_version(asked, is_instance=is_instance)


class RefusesUnknownVersionsWith400(MockEndpoint):
    def bad_version(self, status: int, why: str) -> MockResponse:
        return super().bad_version(400, why)


class UsesTheFirstOfTwoVersions(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        target = re.sub(r"(api-version=[^&]*)&api-version=.*", r"\1", asked.target)
        return super().check_version(asked._replace(target=target), is_instance=is_instance)


class NeedsNoVersion(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        given = asked.parameter("api-version")
        return super().check_version(asked, is_instance=is_instance) if any(given) else VERSIONS[-1]


class ListsNewestFirst(MockEndpoint):
    def versions(self) -> list[str]:
        return VERSIONS[::-1]


class SupportsOnlyTheNewestVersion(MockEndpoint):
    def check_version(self, asked: MockRequest, *, is_instance: bool) -> str:
        version = super().check_version(asked, is_instance=is_instance)
        if not is_instance and version != VERSIONS[-1]:
            raise Refused(self.bad_version(404, "unsupported"))
        return version


class ShowsAllTypesInAllVersions(MockEndpoint):
    def is_shown(self, each: Fields, version: str) -> bool:
        return True


class CountsOnlyShownEvents(MockEndpoint):
    def document(self, version: str) -> Fields:
        document = super().document(version)
        hidden = len(self.events) - len(document["Events"])
        return document | {"DocumentIncarnation": self.incarnation - hidden}


class HasAllFieldsInAllVersions(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return each | {"Resources": [self.name(vm, version) for vm in each["Resources"]]}


class NamesWithoutUnderscore(MockEndpoint):
    def name(self, vm: str, version: str) -> str:
        return vm


class NamesRoleInstancesWithUnderscore(MockEndpoint):
    def name(self, vm: str, version: str) -> str:
        return f"_{vm}" if version == VERSIONS[0] else vm


class HasAnotherOrderOfKeys(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        event = super().event(each, version)
        first = ("EventId", "EventType", "ResourceType", "Resources", "EventStatus", "NotBefore")
        return {name: event[name] for name in first} | event


class HasAnUnknownKey(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"PlatformData": "x"}


class LacksAKey(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        event = super().event(each, version)
        return {name: value for name, value in event.items() if name != "ResourceType"}


class WritesIndentedJson(MockEndpoint):
    def encode(self, value: object) -> bytes:
        return json.dumps(value, indent=2).encode()


class WritesTheIncarnationAsText(MockEndpoint):
    def document(self, version: str) -> Fields:
        return super().document(version) | {"DocumentIncarnation": str(self.incarnation)}


class IncrementsTheIncarnationAtEveryQuery(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        self.incarnation += 1
        return super().query(asked, version)


class NeverIncrementsTheIncarnation(MockEndpoint):
    def start(self, each: Fields) -> None:
        super().start(each)
        self.incarnation -= 1


class IncrementsTheIncarnationByTwo(MockEndpoint):
    def start(self, each: Fields) -> None:
        super().start(each)
        self.incarnation += 1


class WritesIdsInLowerCase(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"EventId": each["EventId"].lower()}


class ChangesTheIdAtTheStart(MockEndpoint):
    def start(self, each: Fields) -> None:
        super().start(each)
        self.ended.add(each["EventId"])
        each["EventId"] = str(uuid.uuid4()).upper()


class ShowsCompletedEvents(MockEndpoint):
    def __init__(self) -> None:
        super().__init__()
        self.events[1]["EventStatus"] = "Completed"


class HasAnUnknownType(MockEndpoint):
    def __init__(self) -> None:
        super().__init__()
        self.events[-1]["EventType"] = "LiveMigration"


class WritesIsoDates(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"NotBefore": each["NotBefore"] and "2026-03-02T10:15:00Z"}


class WritesTheWrongWeekday(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"NotBefore": each["NotBefore"].replace("Mon", "Tue")}


class HasNullAsNotBeforeAfterTheStart(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"NotBefore": each["NotBefore"] or None}


class KeepsNotBeforeAfterTheStart(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"NotBefore": "Mon, 02 Mar 2026 10:15:00 GMT"}


class HasNullAsDescription(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        event = super().event(each, version)
        return event | ({"Description": None} if "Description" in event else {})


class HasAnUnknownSource(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        event = super().event(each, version)
        return event | ({"EventSource": "Azure"} if "EventSource" in event else {})


class WritesTheDurationAsText(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        event = super().event(each, version)
        return event | ({"DurationInSeconds": "-1"} if "DurationInSeconds" in event else {})


class WritesResourcesAsText(MockEndpoint):
    def event(self, each: Fields, version: str) -> Fields:
        return super().event(each, version) | {"Resources": self.name(each["Resources"][0], version)}


class OmitsTheCharset(MockEndpoint):
    def content_type(self) -> str:
        return "application/json"


class LacksStandardHeaders(MockEndpoint):
    def usual_headers(self, reply: MockResponse) -> Headers:
        return [("Server", "Werkzeug/3.0.1 Python/3.12.2"), ("Content-Length", str(len(reply.body)))]


class OmitsTheETag(MockEndpoint):
    def etag(self, version: str) -> str | None:
        return None


class ChangesTheETagAtEveryQuery(MockEndpoint):
    def etag(self, version: str) -> str | None:
        return f'"{uuid.uuid4()}"'


class RespondsWith304ToAnyETag(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        return MockResponse(304) if asked.values("if-none-match") else super().query(asked, version)


class SendsABodyWith304(MockEndpoint):
    def written(self, asked: MockRequest | None, reply: MockResponse) -> bytes:
        return super().written(asked, reply) + (b"{}" if reply.status == 304 else b"")


class AcceptsHead(MockEndpoint):
    def check_method(self, asked: MockRequest, allowed: tuple[str, ...]) -> None:
        if asked.method != "HEAD":
            super().check_method(asked, allowed)


class OmitsAllow(MockEndpoint):
    def check_method(self, asked: MockRequest, allowed: tuple[str, ...]) -> None:
        if asked.method not in allowed:
            raise Refused(error(405, "no"))


class WritesErrorsInHtml(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        try:
            reply = super().answer(asked, body)
        except Refused as refused:
            reply = refused.reply
        is_html = reply.status == 404 or (asked.method == "POST" and reply.status == 400)
        return MockResponse(reply.status, b"<h1>No</h1>", (("Content-Type", "text/html"),)) if is_html else reply


class OmitsConnectionClose(MockEndpoint):
    def says_close(self) -> Headers:
        return []


class AlwaysClosesTheConnection(MockEndpoint):
    def keeps_open(self, asked: MockRequest) -> bool:
        return False


class ClosesWithoutAnnouncement(AlwaysClosesTheConnection):
    def says_close(self) -> Headers:
        return []


class AnnouncesCloseButStaysOpen(MockEndpoint):
    def written(self, asked: MockRequest | None, reply: MockResponse) -> bytes:
        written = super().written(asked, reply)
        is_closed = asked is None or reply.closes or not self.keeps_open(asked)
        return written if is_closed else written.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)


class RefusesExpect100Continue(MockEndpoint):
    def expect(self, asked: MockRequest) -> None:
        raise Refused(error(417, "expectations are not supported"))


class SendsContinueForInvalidRequests(MockEndpoint):
    def expect(self, asked: MockRequest) -> None:
        if asked.values("expect") != ["100-continue"]:
            raise Refused(error(417, "unknown expectation"))


class RespondsToApprovalsWithTheDocument(MockEndpoint):
    def approved(self) -> MockResponse:
        return MockResponse(200, self.encode(self.document(VERSIONS[-1])))


class RespondsToApprovalsWith202(MockEndpoint):
    def approved(self) -> MockResponse:
        return MockResponse(202)


class RefusesRepeatedApprovals(MockEndpoint):
    def approve(self, body: bytes | None) -> MockResponse:
        ids = self.read_ids(body or b"")
        started = [each["EventId"] for each in self.events if each["EventStatus"] == "Started"]
        return error(409, "it has started") if set(ids) & set(started) else super().approve(body)


class ComparesIdsByCase(MockEndpoint):
    def read_ids(self, body: bytes) -> list[str]:
        super().read_ids(body)
        return [each["EventId"] for each in json.loads(body.decode("utf-8-sig"))["StartRequests"]]


class TakesAnEmptyListForAllEvents(MockEndpoint):
    def read_ids(self, body: bytes) -> list[str]:
        return super().read_ids(body) or [each["EventId"] for each in self.events]


class AcceptsUnknownIds(MockEndpoint):
    def read_ids(self, body: bytes) -> list[str]:
        return [id_ for id_ in super().read_ids(body) if id_ in {each["EventId"] for each in self.events}]


class AcceptsAnyBody(MockEndpoint):
    def read_ids(self, body: bytes) -> list[str]:
        try:
            return super().read_ids(body)
        except Refused:
            return []


class StartsEventsOfRefusedApprovals(MockEndpoint):
    def approve(self, body: bytes | None) -> MockResponse:
        for each in self.events[:1]:
            if each["EventId"].encode() in (body or b"") and each["EventStatus"] == "Scheduled":
                self.start(each)
        return super().approve(body)


class NeedsJsonContentType(MockEndpoint):
    def answer(self, asked: MockRequest, body: bytes | None) -> MockResponse:
        if asked.method == "POST" and asked.values("content-type") != ["application/json"]:
            return error(415, "not JSON")
        return super().answer(asked, body)


class RefusesOtherKeys(MockEndpoint):
    """Accepts no key except StartRequests."""

    def read_ids(self, body: bytes) -> list[str]:
        if b"DocumentIncarnation" in body:
            raise Refused(error(400, "unknown key"))
        return super().read_ids(body)


class HasOnlyScheduledEvents(MockEndpoint):
    """Has no instance document and no list of versions, like most mocks."""

    def resolve_path(self, asked: MockRequest) -> list[str] | None:
        place = super().resolve_path(asked)
        return place if place == ["scheduledevents"] else None


class TakesOnlyTheFirstStartRequest(MockEndpoint):
    def read_ids(self, body: bytes) -> list[str]:
        return super().read_ids(body)[:1]

    def approve(self, body: bytes | None) -> MockResponse:
        known = {each["EventId"] for each in self.events}
        return super().approve(body) if set(self.read_ids(body or b"")) <= known else self.approved()


class Case(NamedTuple):
    """An endpoint, and exactly the rules that must fail for it."""

    mock: type[MockEndpoint]
    wrong: Set[str]
    differs: Set[str] = frozenset()


HEADER = {"approval-header", "instance-header", "no-header", "versions-header"}
OWN_HEADER = {
    "expect-refused", "header-empty", "header-false", "header-other", "header-twice", "order-header-version",
    "preview-query-header",
}  # fmt: skip
LATER_APPROVALS = {
    "approve-again", "approve-form", "approve-id-case", "approve-if-none-match", "approve-incarnation-number",
    "approve-incarnation-text", "approve-no-content-type", "approve-started", "approve-text",
    "preview-approval-header", "version-of-approval",
}  # fmt: skip
OWN_LATER_APPROVALS = {"approve-byte-order-mark", "approve-twice", "expect-continue", "wait-on-approval"}
NO_VERSION = {"version-missing", "version-missing-approval"}
OWN_NO_VERSION = {"version-empty", "version-missing-body"}
TWO_VERSIONS = {"version-twice", "version-twice-approval"}
FORWARDED = {"forwarded", "forwarded-approval"}
OWN_FORWARDED = {"forwarded-status", "order-forwarded-header"}
FIELDS = {"description-since", "duration-since", "source-since"}
METHODS = {"method-delete", "method-head", "method-options", "method-put"}
BODIES = {"body-no-event-id", "body-no-list", "body-no-object", "body-no-start-requests"}

CASES = [
    Case(IgnoresTheHeader, HEADER, OWN_HEADER),
    Case(
        ComparesTheHeaderByCase,
        set(),
        {"header-name-case", "header-value-case", "header-twice", "preview-query-header"},
    ),
    Case(NeedsTheHeaderOnPreviewApprovals, {"preview-approval-header"}),
    Case(HasAnotherMessageForTheMissingHeader, {"no-header"}, {"order-header-version"}),
    Case(ServesForwardedRequests, FORWARDED, OWN_FORWARDED),
    Case(RefusesForwardedRequestsWith403, set(), OWN_FORWARDED),
    Case(ComparesPathsByCase, {"path-case"}, {"instance-path-case", "path-any-case"}),
    Case(RefusesAbsoluteTargets, {"target-absolute"}, {"target-any-host"}),
    Case(AcceptsVersionLatest, {"version-latest", "version-unsupported-instance"}),
    Case(
        RefusesUnknownVersionsWith400,
        {"version-unsupported"},
        {"order-version-body"},
    ),
    Case(UsesTheFirstOfTwoVersions, TWO_VERSIONS, {"version-twice-status"}),
    Case(NeedsNoVersion, NO_VERSION, OWN_NO_VERSION),
    Case(ListsNewestFirst, {"versions"}),
    Case(
        SupportsOnlyTheNewestVersion,
        {f"version-{version}" for version in VERSIONS[:-1]} | {"preview-approval-header", "version-of-approval"},
    ),
    Case(ShowsAllTypesInAllVersions, {"preempt-since", "terminate-since"}),
    Case(CountsOnlyShownEvents, set(), {"hidden-events"}),
    Case(HasAllFieldsInAllVersions, FIELDS),
    Case(NamesWithoutUnderscore, {"preview-names"}),
    Case(NamesRoleInstancesWithUnderscore, {"preview-role-instances"}),
    Case(HasAnotherOrderOfKeys, {"event-keys", "event-keys-older"}),
    Case(HasAnUnknownKey, {"event-keys", "event-keys-older"}),
    Case(LacksAKey, {"event-keys", "resource-type"}),
    Case(WritesIndentedJson, {"compact"}),
    Case(WritesTheIncarnationAsText, {"incarnation"}),
    Case(IncrementsTheIncarnationAtEveryQuery, {"incarnation-same", "incarnation-step"}, {"hidden-events"}),
    Case(NeverIncrementsTheIncarnation, {"incarnation-step"}),
    Case(IncrementsTheIncarnationByTwo, {"incarnation-step"}),
    Case(WritesIdsInLowerCase, {"event-id"}),
    Case(ChangesTheIdAtTheStart, {"event-id-started"}),
    Case(ShowsCompletedEvents, {"event-status"}),
    Case(HasAnUnknownType, {"event-type"}),
    Case(WritesIsoDates, {"not-before"}),
    Case(WritesTheWrongWeekday, {"not-before"}),
    Case(HasNullAsNotBeforeAfterTheStart, {"not-before-started"}),
    Case(KeepsNotBeforeAfterTheStart, {"not-before-started"}),
    Case(HasNullAsDescription, {"description"}),
    Case(HasAnUnknownSource, {"event-source"}),
    Case(WritesTheDurationAsText, {"duration"}),
    Case(WritesResourcesAsText, {"resources"}),
    Case(OmitsTheCharset, {"content-type"}),
    Case(LacksStandardHeaders, {"date", "server"}, {"request-id"}),
    Case(OmitsTheETag, {"etag"}),
    Case(ChangesTheETagAtEveryQuery, {"etag-unchanged"}, {"etag-list", "etag-weak"}),
    Case(RespondsWith304ToAnyETag, {"etag-changed"}),
    Case(SendsABodyWith304, {"etag-unchanged"}, {"etag-any", "etag-list", "etag-weak"}),
    Case(AcceptsHead, set(), {"method-head"}),
    Case(OmitsAllow, set(), METHODS),
    Case(
        WritesErrorsInHtml,
        set(),
        {"body-error", "unknown-event", "unknown-path", "version-unsupported-body"},
    ),
    Case(OmitsConnectionClose, {"connection-close"}),
    Case(AlwaysClosesTheConnection, set()),
    Case(ClosesWithoutAnnouncement, {"connection-close"}, {"keep-alive"}),
    Case(AnnouncesCloseButStaysOpen, set(), {"keep-alive"}),
    Case(RefusesExpect100Continue, set(), {"expect-continue", "expect-refused"}),
    Case(SendsContinueForInvalidRequests, set(), {"expect-refused"}),
    Case(RespondsToApprovalsWithTheDocument, set(), {"approve-body"}),
    Case(RespondsToApprovalsWith202, LATER_APPROVALS | {"approve"}, OWN_LATER_APPROVALS | {"approve-nothing"}),
    Case(RefusesRepeatedApprovals, LATER_APPROVALS, OWN_LATER_APPROVALS),
    Case(ComparesIdsByCase, {"approve-id-case"}),
    Case(TakesAnEmptyListForAllEvents, set(), {"approve-nothing"}),
    Case(AcceptsUnknownIds, set(), {"approve-all-or-nothing", "unknown-event"}),
    Case(AcceptsAnyBody, BODIES | {"body-no-json"}, {"approve-all-or-nothing", "approve-names"}),
    Case(StartsEventsOfRefusedApprovals, set(), {"refused-nothing"}),
    Case(
        TakesOnlyTheFirstStartRequest,
        {"approve-several"},
        {"approve-all-or-nothing", "unknown-event"},
    ),
    Case(NeedsJsonContentType, {"approve-form", "approve-no-content-type", "approve-text"}),
    Case(RefusesOtherKeys, {"approve-incarnation-number", "approve-incarnation-text"}),
    Case(HasOnlyScheduledEvents, {"instance", "versions"}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mock.__name__)
def test_wrong_endpoint_fails_exactly_its_rules(case: Case) -> None:
    report = run_kit(case.mock())
    assert rule_ids(report, Verdict.WRONG) == case.wrong
    assert rule_ids(report, Verdict.DIFFERS) == case.differs | NO_EXTENSION


def test_missing_endpoint_is_one_finding() -> None:
    """The rows that depend on it are not checked, and name the row with the finding."""
    found = {finding.row: finding for finding in run_kit(HasOnlyScheduledEvents()).findings}
    dependent = {row.id for row in RULES if row.precondition in (Precondition.INSTANCE, Precondition.VERSIONS)}
    assert {id_ for id_ in dependent if found[id_].verdict is not Verdict.UNCHECKED} == set()
    assert found["instance-strings"].why == "the endpoint does not serve /metadata/instance: see row instance"
    assert found["versions-header"].why == "the endpoint does not serve /metadata/versions: see row versions"
    assert found["instance"].why == "the status is 404, not 200"


def test_finding_has_the_evidence_of_its_rule() -> None:
    found = {finding.row: finding for finding in run_kit(WritesIsoDates()).findings}
    wrong = found["not-before"]
    assert (wrong.kind, wrong.source, wrong.is_own) == (
        EvidenceKind.OBSERVED,
        "the log of Azure/vm-scheduled-events, July 2021",
        False,
    )
    assert wrong.anchor == "docs/reference/guest-protocol.md#the-document"


def test_finding_shows_request_and_response() -> None:
    found = {finding.row: finding for finding in run_kit(WritesIsoDates()).findings}
    assert "NotBefore is “2026-03-02T10:15:00Z”" in found["not-before"].why
    found = {finding.row: finding for finding in run_kit(WritesErrorsInHtml()).findings}
    assert found["unknown-path"].seen == ("GET /metadata/nowhere?api-version=2020-07-01 → 404 Not Found: <h1>No</h1>",)
    assert found["query"].seen == ()


class NeverEnabled(MockEndpoint):
    def query(self, asked: MockRequest, version: str) -> MockResponse:
        return super().query(asked, version)._replace(body=b"")


def test_empty_document_is_not_checked() -> None:
    """An empty document is neither right nor wrong; its headers are checked."""
    found = {finding.row: finding for finding in run_kit(NeverEnabled()).findings}
    assert found["query"].verdict is Verdict.PASSED
    assert found["compact"].verdict is Verdict.UNCHECKED
    assert found["compact"].why.startswith("no document: the response is empty")
    assert found["server"].verdict is Verdict.PASSED


def test_every_wrong_endpoint_has_a_case() -> None:
    here = {mock for mock in globals().values() if isinstance(mock, type) and issubclass(mock, MockEndpoint)}
    assert {case.mock for case in CASES} == here - {MockEndpoint, NeverEnabled}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request(), "GET /metadata/scheduledevents?api-version=2020-07-01"),
        (Request(target="/x", headers=()), "GET /x without Metadata: true"),
        (Request(target="/x", headers=(("Metadata", "false"),)), "GET /x with Metadata: false"),
        (Request(target="/x", headers=(("Metadata", ""),)), "GET /x with Metadata:"),
        (
            Request(target="/x", headers=(("Metadata", "true"), ("Metadata", "no"))),
            "GET /x with Metadata: true, Metadata: no",
        ),
        (Request(target="/x", headers=(METADATA_HEADER, ("Expect", "wonders"))), "GET /x with Expect: wonders"),
        (Request(method="POST", target="/x", body=b"{}", http_version="1.0"), "POST /x in HTTP/1.0 with the body {}"),
    ],
)
def test_request_is_described_by_its_differences(request_: Request, words: str) -> None:
    assert str(request_) == words


def test_finding_names_the_right_value() -> None:
    found = {finding.row: finding.why for finding in run_kit(WritesIsoDates()).findings}
    assert found["not-before"].endswith(", not a date like Mon, 19 Sep 2016 18:29:47 GMT")
