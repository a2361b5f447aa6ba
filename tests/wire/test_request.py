"""PROTOCOL §1 and §9: the requests of guests."""

import pytest

from forewarn.wire import error_responses
from forewarn.wire.approval import parse_approval
from forewarn.wire.error_responses import ErrorReason, ErrorResponse
from forewarn.wire.instance import encode_versions
from forewarn.wire.protocol import NEWEST_VERSION, VERSIONS
from forewarn.wire.request import (
    ApprovalRequest,
    DocumentRequest,
    GuestRequest,
    InstanceRequest,
    RequestHead,
    VersionsRequest,
    route,
)
from tests.wire.samples import EVENT_ID, EVENTS, METADATA, get, post

ASK = f"{EVENTS}?api-version={NEWEST_VERSION}"
TAG = ("If-None-Match", '"k3Jx9.2.2020-07-01"')


@pytest.mark.parametrize(
    ("head", "question"),
    [
        pytest.param(
            get("/metadata/scheduledevents?api-version=2020-07-01"), DocumentRequest("2020-07-01"), id="query"
        ),
        pytest.param(
            post("/metadata/scheduledevents?api-version=2020-07-01"), ApprovalRequest("2020-07-01"), id="approve"
        ),
        pytest.param(
            get("/metadata/instance?api-version=2021-02-01&format=json"), InstanceRequest("2021-02-01"), id="instance"
        ),
        pytest.param(
            get("/metadata/instance/compute/name?api-version=2021-02-01&format=text"),
            InstanceRequest("2021-02-01", ("compute", "name"), "text"),
            id="instance, a leaf",
        ),
        pytest.param(get("/metadata/versions"), VersionsRequest(), id="versions"),
    ],
)
def test_request_is_routed(head: RequestHead, question: GuestRequest) -> None:
    assert route(head) == question


@pytest.mark.parametrize("incarnation", [b"2", b'"2"', b"null"], ids=["number", "string", "null"])
def test_document_incarnation_in_an_approval_is_ignored(incarnation: bytes) -> None:
    body = b'{"DocumentIncarnation":%b,"StartRequests":[{"EventId":"%b"}]}' % (incarnation, EVENT_ID.encode())
    assert parse_approval(body) == (EVENT_ID,)


def test_versions_are_listed_oldest_first() -> None:
    listed = ",".join(f'"{version}"' for version in sorted(VERSIONS))
    assert encode_versions() == f'{{"apiVersions":[{listed}]}}'.encode()


def test_versions_need_the_header_but_no_api_version() -> None:
    assert route(RequestHead("GET", "/metadata/versions")) == error_responses.METADATA_HEADER_MISSING


@pytest.mark.parametrize("name", ["Metadata", "metadata", "METADATA", "mEtAdAtA"])
@pytest.mark.parametrize("value", ["true", "True", "TRUE", " true\t"])
def test_header_matches_in_any_case(name: str, value: str) -> None:
    assert route(RequestHead("GET", ASK, [(name, value)])) == DocumentRequest(NEWEST_VERSION)


@pytest.mark.parametrize(
    "headers",
    [[("Metadata", "false")], [("Metadata", "")], [], [("Metadata", "1")], [METADATA, ("Metadata", "false")]],
    ids=["false", "empty", "missing", "something else", "both true and false"],
)
def test_header_that_is_not_true_counts_as_missing(headers: list[tuple[str, str]]) -> None:
    assert route(RequestHead("GET", ASK, headers)) == error_responses.METADATA_HEADER_MISSING


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("/metadata/scheduledEvents?api-version=2020-07-01", id="path in another case"),
        pytest.param("/METADATA/SCHEDULEDEVENTS?api-version=2020-07-01", id="path in upper case"),
        pytest.param("/metadata/scheduledevents/?api-version=2020-07-01", id="trailing slash"),
        pytest.param("/metadata/scheduled%65vents?api%2Dversion=2020%2d07-01", id="percent-encoded"),
        pytest.param("/metadata/scheduledevents?API-Version=2020-07-01", id="parameter name in another case"),
        pytest.param("/metadata/scheduledevents?x=1&&api-version=2020-07-01&y", id="other parameters"),
        pytest.param("http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01", id="absolute form"),
        pytest.param("HTTP://localhost:8180/metadata/scheduledevents?api-version=2020-07-01", id="any host"),
    ],
)
def test_target_is_routed(target: str) -> None:
    assert route(get(target)) == DocumentRequest(NEWEST_VERSION)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "",
        "*",
        "metadata/scheduledevents?api-version=2020-07-01",
        "169.254.169.254:80",
        "http://169.254.169.254",
        "http://169.254.169.254?api-version=2020-07-01",
        "http://169.254.169.254?x=/metadata/scheduledevents",
        "//metadata/scheduledevents?api-version=2020-07-01",
        "/metadata//scheduledevents?api-version=2020-07-01",
        "/metadata/scheduledevents//?api-version=2020-07-01",
        "/metadata/./scheduledevents?api-version=2020-07-01",
        "/metadata/x/../scheduledevents?api-version=2020-07-01",
        "/metadata%2Fscheduledevents?api-version=2020-07-01",
        "/metadata/scheduledevents%00?api-version=2020-07-01",
        "/metadata/scheduledevents/1?api-version=2020-07-01",
        "/metadata/versions/2020-07-01",
        "/metadata",
        "https://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
    ],
)
def test_unknown_target_is_404(target: str) -> None:
    assert route(get(target)) == error_responses.PATH_NOT_FOUND


def test_if_none_match_has_no_effect_on_an_approval() -> None:
    assert route(post(ASK, TAG)) == ApprovalRequest(NEWEST_VERSION)


def test_content_type_of_an_approval_does_not_matter() -> None:
    assert route(post(ASK, ("Content-Type", "application/x-www-form-urlencoded"))) == ApprovalRequest(NEWEST_VERSION)


def test_if_none_match_over_several_lines_is_one_list() -> None:
    assert route(get(ASK, ("if-none-match", '"a"'), ("If-None-Match", '"b"'))) == DocumentRequest(
        NEWEST_VERSION, None, '"a", "b"'
    )


@pytest.mark.parametrize("seconds", [1, 7, 60])
def test_wait_is_an_integer_from_1_to_60(seconds: int) -> None:
    assert route(get(f"{ASK}&wait={seconds}", TAG)) == DocumentRequest(NEWEST_VERSION, seconds, TAG[1])


@pytest.mark.parametrize("wait", ["0", "61", "-1", "1.5", "", "x", "1e1", "%2B5", "+5", "5+", "1_0", "٣", "9" * 5000])
@pytest.mark.parametrize("headers", [[], [TAG]], ids=["without If-None-Match", "with If-None-Match"])
def test_wait_that_is_not_an_integer_from_1_to_60_is_refused(wait: str, headers: list[tuple[str, str]]) -> None:
    assert route(get(f"{ASK}&wait={wait}", *headers)) == error_responses.INVALID_WAIT


def test_wait_twice_is_refused() -> None:
    assert route(get(f"{ASK}&wait=5&wait=5", TAG)) == error_responses.INVALID_WAIT


def test_wait_without_if_none_match_has_no_effect() -> None:
    assert route(get(f"{ASK}&wait=5")) == DocumentRequest(NEWEST_VERSION, None, None)


def test_wait_has_no_effect_on_an_approval() -> None:
    assert route(post(f"{ASK}&wait=never", TAG)) == ApprovalRequest(NEWEST_VERSION)


@pytest.mark.parametrize("version", ["2017-03-01", "2017-04-02", "2021-02-01", "2024-02-29", "2025-04-07"])
def test_instance_accepts_every_date_up_to_the_newest_version(version: str) -> None:
    assert route(get(f"/metadata/instance?api-version={version}")) == InstanceRequest(version)


@pytest.mark.parametrize(
    "version",
    [
        "latest",
        "2017-02-28",
        "2025-04-08",
        "2099-12-31",
        "2021-02-30",
        "2023-02-29",
        "20210201",
        "2021-W05-1",
        "2021-2-1",
        "2021-02-01T00",
        "٢٠٢١-02-01",
    ],
)
def test_instance_refuses_every_other_version(version: str) -> None:
    answer = route(get(f"/metadata/instance?api-version={version}"))
    assert answer == error_responses.instance_version_unsupported(version)
    assert isinstance(answer, ErrorResponse)
    assert answer.status == 400


@pytest.mark.parametrize("query", ["format=xml", "format=", "format=json&format=text"])
def test_instance_refuses_other_formats(query: str) -> None:
    assert route(get(f"/metadata/instance?api-version=2021-02-01&{query}")) == error_responses.INVALID_FORMAT


@pytest.mark.parametrize("query", ["format=TEXT", "Format=text"])
def test_instance_accepts_its_format_in_any_case(query: str) -> None:
    assert route(get(f"/metadata/instance?api-version=2021-02-01&{query}")) == InstanceRequest("2021-02-01", (), "text")


def test_instance_needs_a_version() -> None:
    answer = route(get("/metadata/instance"))
    assert isinstance(answer, ErrorResponse)
    assert (answer.status, answer.reason) == (400, ErrorReason.VERSION_MISSING)
