"""Guest HTTP responses as bytes: the common part, and the part that changes with each request."""

import re
from datetime import timedelta

from forewarn.guest.responses import (
    APPROVED,
    CONTINUE,
    INTERNAL_ERROR,
    CommonHeaders,
    PreparedResponse,
    content_response,
    document_response,
    not_modified_response,
    prepare_error,
)
from forewarn.wire.document import encode_document, etag
from forewarn.wire.error_responses import ErrorReason, error_response
from forewarn.wire.protocol import MAX_WAIT, NEWEST_VERSION
from tests.core.sample_scopes import TEN, web_scope

COMMON = re.compile(
    rb"Date: Mon, 02 Mar 2026 10:00:00 GMT\r\nServer: IMDS/1\.0\.0\.0\r\n"
    rb"x-ms-request-id: ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\r\n"
)


def rendered(response: PreparedResponse, connection_line: bytes = b"") -> bytes:
    """Render with the common headers replaced by a mark."""
    return COMMON.sub(b"<common>\r\n", response.render(CommonHeaders(TEN), connection_line))


def test_response_has_status_headers_length_and_body() -> None:
    response = PreparedResponse(200, [("Content-Type", "text/plain"), ("X", "100%")], b"100%s")
    assert rendered(response) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX: 100%\r\nContent-Length: 5\r\n<common>\r\n\r\n100%s"
    )


def test_connection_header_follows_the_common_ones() -> None:
    response = PreparedResponse(200, (), b"")
    assert rendered(response, b"Connection: close\r\n") == (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n<common>\r\nConnection: close\r\n\r\n"
    )


def test_response_without_a_body_has_no_length() -> None:
    assert rendered(PreparedResponse(304, (), None)) == b"HTTP/1.1 304 Not Modified\r\n<common>\r\n\r\n"


def test_request_id_never_repeats() -> None:
    headers = CommonHeaders(TEN)
    sent = [response.render(headers, b"") for response in (APPROVED, PreparedResponse(304, (), None), APPROVED)]
    sent.append(APPROVED.render(CommonHeaders(TEN), b""))
    ids = [found[1] for response in sent if (found := COMMON.search(response))]
    assert len(set(ids)) == 4
    assert len({id_[:23] for id_ in ids[:3]}) == 1


def test_lines_stay_the_same_object_within_a_second() -> None:
    """A prepared response compares the object to see that it need not be rendered again."""
    headers = CommonHeaders(TEN)
    before = headers.lines
    headers.refresh(TEN + timedelta(milliseconds=999))
    assert headers.lines is before
    headers.refresh(TEN + timedelta(seconds=1))
    assert b"10:00:01 GMT" in headers.lines


def test_prepared_response_has_the_date_of_each_second() -> None:
    headers, response = CommonHeaders(TEN), PreparedResponse(200, (), b"")
    assert b"10:00:00 GMT" in response.render(headers, b"")
    headers.refresh(TEN + timedelta(seconds=1))
    assert b"10:00:01 GMT" in response.render(headers, b"")


def test_document_and_not_modified_have_the_same_etag() -> None:
    scope = web_scope()
    tag, body = etag(scope, NEWEST_VERSION), encode_document(scope, NEWEST_VERSION)
    common = f"ETag: {tag}\r\nForewarn-Wait: {MAX_WAIT}\r\n".encode()
    length = f"Content-Length: {len(body)}\r\n".encode()
    assert rendered(document_response(scope, NEWEST_VERSION)) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\n"
        + common
        + length
        + b"<common>\r\n\r\n"
        + body
    )
    assert rendered(not_modified_response(scope, NEWEST_VERSION)) == (
        b"HTTP/1.1 304 Not Modified\r\n" + common + b"<common>\r\n\r\n"
    )


def test_content_has_its_type() -> None:
    assert rendered(content_response(b"{}", "application/json")) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n<common>\r\n\r\n{}"
    )


def test_error_has_its_headers_and_to_head_no_body() -> None:
    error = error_response(400, ErrorReason.FAULT, "no")
    plain = rendered(prepare_error(error))
    head, body = plain.split(b"\r\n\r\n")
    assert body == error.body
    assert rendered(prepare_error(error, is_head=True)) == (
        head.replace(f"Content-Length: {len(body)}\r\n".encode(), b"") + b"\r\n\r\n"
    )
    assert prepare_error(error) is prepare_error(error)


def test_internal_error_closes_the_connection() -> None:
    assert (INTERNAL_ERROR.status, INTERNAL_ERROR.close) == (500, True)
    assert CONTINUE == b"HTTP/1.1 100 Continue\r\n\r\n"
