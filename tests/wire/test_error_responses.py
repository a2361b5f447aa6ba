"""PROTOCOL §5: every error response, and their order."""

import json

import pytest

from forewarn.wire import error_responses
from forewarn.wire.error_responses import (
    JSON,
    REASON_PHRASES,
    TEXT,
    ErrorReason,
    ErrorResponse,
    error_response,
    status_line,
)
from forewarn.wire.request import DocumentRequest, RequestHead, route
from tests.wire.samples import EVENTS, METADATA, get

ASK = f"{EVENTS}?api-version=2020-07-01"
FORWARDED = ("X-Forwarded-For", "10.1.2.3")

# Each row corrects one error of the row before: the errors appear in the order of the page.
IN_ORDER = [
    ("path", "PUT", "/metadata/elsewhere", [FORWARDED]),
    ("method", "PUT", EVENTS, [FORWARDED]),
    ("forwarded", "GET", EVENTS, [FORWARDED]),
    ("metadata-header", "GET", EVENTS, []),
    ("version-missing", "GET", f"{EVENTS}?wait=0", [METADATA]),
    ("version-twice", "GET", f"{EVENTS}?wait=0&api-version=latest&api-version=latest", [METADATA]),
    ("version-unsupported", "GET", f"{EVENTS}?wait=0&api-version=latest", [METADATA]),
    ("wait", "GET", f"{EVENTS}?wait=0&api-version=2020-07-01", [METADATA]),
]


def refused(head: RequestHead, *, unsupported_version_status: int = 404) -> ErrorResponse:
    answer = route(head, unsupported_version_status=unsupported_version_status)
    assert isinstance(answer, ErrorResponse)
    return answer


@pytest.mark.parametrize(("reason", "method", "target", "headers"), IN_ORDER, ids=[row[0] for row in IN_ORDER])
def test_refusals_come_in_order(reason: str, method: str, target: str, headers: list[tuple[str, str]]) -> None:
    assert refused(RequestHead(method, target, headers)).reason == reason


def test_corrected_request_is_not_refused() -> None:
    assert route(RequestHead("GET", f"{EVENTS}?wait=1&api-version=2020-07-01", [METADATA])) == DocumentRequest(
        "2020-07-01"
    )


NEWEST_VERSIONS = b'"newest-versions":["2020-07-01","2019-08-01","2019-04-01"]}'


def test_no_metadata_header_is_400_with_exactly_this_body() -> None:
    assert refused(RequestHead("GET", ASK)) == ErrorResponse(
        400, b'{ "error": "Bad request: . Required metadata header not specified" }', ErrorReason.METADATA_HEADER, JSON
    )


@pytest.mark.parametrize("value", ["10.0.0.1", ""])
@pytest.mark.parametrize("path", [ASK, "/metadata/instance?api-version=2021-02-01", "/metadata/versions"])
def test_x_forwarded_for_is_400(path: str, value: str) -> None:
    answer = refused(get(path, ("x-forwarded-FOR", value)))
    assert (answer.status, answer.reason) == (400, ErrorReason.FORWARDED)


@pytest.mark.parametrize("query", ["", "?", "?api-version", "?api-version=", "?version=2020-07-01"])
def test_api_version_missing_is_400_with_exactly_this_body(query: str) -> None:
    assert refused(get(EVENTS + query)) == ErrorResponse(
        400,
        b'{"error":"Bad request. api-version was not specified in the request. '
        b'For more information refer to aka.ms/azureimds",' + NEWEST_VERSIONS,
        ErrorReason.VERSION_MISSING,
        JSON,
    )


@pytest.mark.parametrize("version", ["latest", "2020-07-02", "2099-01-01", "x", " 2020-07-01", "2020-07-01/"])
def test_api_version_not_supported_is_404_with_the_same_shape_of_body(version: str) -> None:
    answer = refused(get(f"{EVENTS}?api-version={version}"))
    body = json.loads(answer.body)
    assert (answer.status, answer.reason, list(body)) == (
        404,
        ErrorReason.VERSION_UNSUPPORTED,
        ["error", "newest-versions"],
    )
    assert answer.body.endswith(NEWEST_VERSIONS)


def test_status_of_an_unsupported_version_is_a_setting() -> None:
    assert refused(get(f"{EVENTS}?api-version=latest"), unsupported_version_status=410).status == 410
    assert refused(get(f"{EVENTS}?api-version=latest")).status == 404


def test_unsupported_version_of_instance_metadata_is_always_400_and_names_its_newest_versions() -> None:
    answer = refused(get("/metadata/instance?api-version=2099-01-01"), unsupported_version_status=410)
    assert (answer.status, answer.reason) == (400, ErrorReason.VERSION_UNSUPPORTED)
    assert json.loads(answer.body)["newest-versions"] == ["2025-04-07", "2024-07-17", "2024-03-15"]


@pytest.mark.parametrize(
    "query",
    [
        "api-version=2020-07-01&api-version=2020-07-01",
        "api-version=2020-07-01&api-version=2017-03-01",
        "api-version=2020-07-01&Api-Version=2020-07-01",
        "api-version=&api-version=2020-07-01",
    ],
    ids=["the same", "different", "in another case", "one of them empty"],
)
def test_api_version_twice_is_400(query: str) -> None:
    answer = refused(get(f"{EVENTS}?{query}"))
    assert (answer.status, answer.reason) == (400, ErrorReason.VERSION_TWICE)


def test_preview_version_twice_does_not_waive_the_header() -> None:
    twice = f"{EVENTS}?api-version=2017-03-01&api-version=2017-03-01"
    assert refused(RequestHead("POST", twice)) == error_responses.METADATA_HEADER_MISSING


@pytest.mark.parametrize("path", ["/", "/metadata/nowhere", "/latest/meta-data", "/favicon.ico"])
def test_unknown_path_is_404_with_an_error(path: str) -> None:
    answer = refused(get(path))
    assert (answer.status, answer.reason, list(json.loads(answer.body))) == (404, ErrorReason.PATH, ["error"])


@pytest.mark.parametrize(
    "target",
    [
        "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com",
        "/metadata/Identity/OAuth2/Token?api-version=2018-02-01",
        "/metadata/identity/info?api-version=2018-02-01",
        "/metadata/identity",
    ],
)
def test_identity_is_400_as_on_a_vm_without_one(target: str) -> None:
    assert refused(get(target)) == ErrorResponse(
        400, b'{"error":"invalid_request","error_description":"Identity not found"}', ErrorReason.PATH, JSON
    )


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/metadata/attested/document", "attested"),
        ("/metadata/ATTESTED", "attested"),
        ("/metadata/loadbalancer", "load balancer"),
        ("/metadata/reprovisiondata", "reprovisioning"),
        ("/metadata/THIM/amd/certification", "certificates"),
    ],
)
def test_metadata_that_is_not_available_is_404_and_says_why(path: str, word: str) -> None:
    answer = refused(get(f"{path}?api-version=2020-10-01"))
    assert (answer.status, answer.reason) == (404, ErrorReason.PATH)
    assert word in json.loads(answer.body)["error"]
    assert refused(get(path)).reason is ErrorReason.VERSION_MISSING


@pytest.mark.parametrize("root", ["identity/oauth2/token", "attested/document", "loadbalancer"])
def test_metadata_that_is_not_available_needs_the_header_and_is_read_only(root: str) -> None:
    target = f"/metadata/{root}?api-version=2020-10-01"
    assert refused(RequestHead("GET", target)) == error_responses.METADATA_HEADER_MISSING
    assert refused(RequestHead("POST", target, [METADATA])).status == 405


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get", ""])
@pytest.mark.parametrize(
    ("path", "allow"),
    [(ASK, "GET, POST"), ("/metadata/instance?api-version=2021-02-01", "GET"), ("/metadata/versions", "GET")],
    ids=["scheduledevents", "instance", "versions"],
)
def test_other_method_is_405_with_allow(method: str, path: str, allow: str) -> None:
    answer = refused(RequestHead(method, path, [METADATA]))
    assert (answer.status, answer.reason, answer.headers) == (405, ErrorReason.METHOD, (("Allow", allow),))


@pytest.mark.parametrize("path", ["/metadata/instance?api-version=2021-02-01", "/metadata/versions"])
def test_post_is_405_where_nothing_is_approved(path: str) -> None:
    assert refused(RequestHead("POST", path, [METADATA])).headers == (("Allow", "GET"),)


def test_too_many_requests_is_429_as_text_with_retry_after() -> None:
    answer = error_responses.TOO_MANY_REQUESTS
    assert answer == ErrorResponse(
        429, b"Too Many Requests", ErrorReason.RATE, TEXT, (("Retry-After", "1"),), close=False
    )


def test_unknown_caller_is_403_with_a_reason() -> None:
    answer = error_responses.UNKNOWN_CALLER
    assert (answer.status, answer.reason, b"no known VM" in answer.body) == (403, ErrorReason.UNKNOWN_CALLER, True)


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        pytest.param(error_responses.BODY_TOO_LARGE, 413, ErrorReason.TOO_LARGE, id="body too large"),
        pytest.param(error_responses.HEADER_TOO_LARGE, 431, ErrorReason.HEADER_TOO_LARGE, id="header too large"),
        pytest.param(error_responses.malformed_request("x"), 400, ErrorReason.MALFORMED, id="malformed HTTP"),
    ],
)
def test_connection_is_closed_after(answer: ErrorResponse, status: int, reason: ErrorReason) -> None:
    assert (answer.status, answer.reason, answer.close) == (status, reason, True)


def test_unknown_event_is_400_and_named() -> None:
    answer = error_responses.event_not_found("602D9444-D2CD-49C7-8624-8643E7171297")
    assert (answer.status, answer.reason) == (400, ErrorReason.UNKNOWN_EVENT)
    assert b"602D9444-D2CD-49C7-8624-8643E7171297" in answer.body


@pytest.mark.parametrize("status", REASON_PHRASES)
def test_status_line_has_status_and_phrase(status: int) -> None:
    assert status_line(status) == f"HTTP/1.1 {status} {REASON_PHRASES[status]}\r\n".encode()


def test_status_line_of_an_uncommon_status_has_no_phrase() -> None:
    assert status_line(599) == b"HTTP/1.1 599 \r\n"


def test_refusal_has_its_reason_as_json() -> None:
    assert error_response(503, ErrorReason.UNAVAILABLE, 'a "reason"') == ErrorResponse(
        503, b'{"error":"a \\"reason\\""}', ErrorReason.UNAVAILABLE, JSON
    )


@pytest.mark.parametrize("text", ["\ud800\x00\r\n", "x" * 60_000], ids=["control characters", "long"])
def test_refusals_repeat_only_short_printable_text(text: str) -> None:
    for answer in (error_responses.version_unsupported(text, 404), error_responses.method_not_allowed(text, ("GET",))):
        assert len(answer.body) < 400
        assert json.loads(answer.body)["error"].isprintable()
