"""Guest HTTP responses, rendered to bytes once and reused: only the date and the request id change per request."""

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from forewarn.core.scope import Scope
from forewarn.wire.document import encode_document, etag
from forewarn.wire.error_responses import JSON, ErrorReason, ErrorResponse, error_response, status_line
from forewarn.wire.http_date import format_http_date
from forewarn.wire.protocol import MAX_WAIT

SERVER = "IMDS/1.0.0.0"
"""Some clients check the pattern: a name and four numbers (PROTOCOL §3)."""

CONTINUE = status_line(100) + b"\r\n"

INTERNAL_ERROR = error_response(
    500, ErrorReason.UNAVAILABLE, "Internal server error: the service has logged what went wrong", close=True
)

Headers = Iterable[tuple[str, str]]


class CommonHeaders:
    """The header lines of every response: date, server, and a request id that never repeats.

    The id is a random prefix and `request_number`, for which `lines` has a placeholder.
    """

    __slots__ = ("_date", "_id", "lines", "request_number")

    def __init__(self, now: datetime) -> None:
        token = secrets.token_hex(10)
        self._id = f"{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:]}"
        self._date = ""
        self.request_number = 0
        self.lines = b""
        self.refresh(now)

    def refresh(self, now: datetime) -> None:
        """Update the date; within one second the lines stay the same object."""
        date = format_http_date(now)
        if date != self._date:
            self._date = date
            self.lines = f"Date: {date}\r\nServer: {SERVER}\r\nx-ms-request-id: {self._id}-%012x\r\n".encode()


class PreparedResponse:
    """A response rendered for any number of requests. `body` None: no body and no Content-Length."""

    __slots__ = ("_head", "_tail", "common_lines", "status", "template")

    def __init__(self, status: int, headers: Headers, body: bytes | None) -> None:
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}\r\n")
        self.status = status
        self._head = _literal(status_line(status) + "".join(lines).encode("latin-1"))
        self._tail = _literal(b"\r\n" + (body or b""))
        self.common_lines = self.template = b""

    def set_common_lines(self, lines: bytes) -> None:
        """Fill in the common headers of this second; only the request number remains a placeholder in `template`."""
        self.common_lines = lines
        self.template = self._head + lines + self._tail

    def render(self, common_headers: CommonHeaders, connection_line: bytes) -> bytes:
        """Return the bytes to send."""
        common_headers.request_number += 1
        if connection_line:
            return (self._head + common_headers.lines + connection_line + self._tail) % common_headers.request_number
        if self.common_lines is not common_headers.lines:
            self.set_common_lines(common_headers.lines)
        return self.template % common_headers.request_number


class ShiftedDate(NamedTuple):
    """A response with another date than the current one."""

    response: PreparedResponse | ErrorResponse
    offset: timedelta


class Reset:
    """Instead of a response, the connection is reset."""


RESET = Reset()


def _literal(text: bytes) -> bytes:
    """Escape percent signs, which would be placeholders when the response is rendered."""
    return text.replace(b"%", b"%%")


def document_response(scope: Scope, version: str) -> PreparedResponse:
    """Return a 200 response with the document."""
    headers = [("Content-Type", JSON), *_document_headers(scope, version)]
    return PreparedResponse(200, headers, encode_document(scope, version))


def not_modified_response(scope: Scope, version: str) -> PreparedResponse:
    """Return a 304 response: the caller has the current document."""
    return PreparedResponse(304, _document_headers(scope, version), None)


def _document_headers(scope: Scope, version: str) -> Headers:
    return (("ETag", etag(scope, version)), ("Forewarn-Wait", str(MAX_WAIT)))


def content_response(body: bytes, content_type: str) -> PreparedResponse:
    """Return a 200 response with another body."""
    return PreparedResponse(200, (("Content-Type", content_type),), body)


APPROVED = PreparedResponse(200, (), b"")


@lru_cache(maxsize=256)
def prepare_error(error: ErrorResponse, *, is_head: bool = False) -> PreparedResponse:
    """Return an error response; without its body for a HEAD request."""
    headers = (("Content-Type", error.content_type), *error.headers)
    return PreparedResponse(error.status, headers, None if is_head else error.body)
