"""Answers as bytes, made once and sent again and again: only the date and the request id differ each time."""

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

FAILED = error_response(
    500, ErrorReason.UNAVAILABLE, "Internal server error: the service has logged what went wrong", close=True
)

Headers = Iterable[tuple[str, str]]


class Letterhead:
    """The lines that every answer bears: the date, who serves, and a request id that never repeats.

    The id is a random beginning and `number`, for which `lines` has a place.
    """

    __slots__ = ("_date", "_id", "lines", "number")

    def __init__(self, now: datetime) -> None:
        token = secrets.token_hex(10)
        self._id = f"{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:]}"
        self._date = ""
        self.number = 0
        self.lines = b""
        self.renew(now)

    def renew(self, now: datetime) -> None:
        """Write the present date; within one second the lines stay the same object."""
        date = format_http_date(now)
        if date != self._date:
            self._date = date
            self.lines = f"Date: {date}\r\nServer: {SERVER}\r\nx-ms-request-id: {self._id}-%012x\r\n".encode()


class Answer:
    """An answer for any number of requests. `body` None: there is none, and no length is told."""

    __slots__ = ("_before", "_behind", "lines", "status", "template")

    def __init__(self, status: int, headers: Headers, body: bytes | None) -> None:
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}\r\n")
        self.status = status
        self._before = _literal(status_line(status) + "".join(lines).encode("latin-1"))
        self._behind = _literal(b"\r\n" + (body or b""))
        self.lines = self.template = b""

    def renew(self, lines: bytes) -> None:
        """Fill in the letterhead of this second; what is left open in `template` is the number."""
        self.lines = lines
        self.template = self._before + lines + self._behind

    def render(self, letterhead: Letterhead, connection_line: bytes) -> bytes:
        """Make the bytes to send."""
        letterhead.number += 1
        if connection_line:
            return (self._before + letterhead.lines + connection_line + self._behind) % letterhead.number
        if self.lines is not letterhead.lines:
            self.renew(letterhead.lines)
        return self.template % letterhead.number


class Misdated(NamedTuple):
    """An answer that bears another date than the present one."""

    answer: Answer | ErrorResponse
    by: timedelta


class Reset:
    """No answer: the connection is reset."""


RESET = Reset()


def _literal(text: bytes) -> bytes:
    """Protect what would be a place for a value when the answer is rendered."""
    return text.replace(b"%", b"%%")


def found(scope: Scope, version: str) -> Answer:
    """Answer with the document."""
    headers = [("Content-Type", JSON), *_naming(scope, version)]
    return Answer(200, headers, encode_document(scope, version))


def not_modified(scope: Scope, version: str) -> Answer:
    """Answer that the document is the one that the caller has."""
    return Answer(304, _naming(scope, version), None)


def _naming(scope: Scope, version: str) -> Headers:
    return (("ETag", etag(scope, version)), ("Forewarn-Wait", str(MAX_WAIT)))


def content(body: bytes, content_type: str) -> Answer:
    """Answer with anything else."""
    return Answer(200, (("Content-Type", content_type),), body)


APPROVED = Answer(200, (), b"")


@lru_cache(maxsize=256)
def refused(refusal: ErrorResponse, *, to_head: bool = False) -> Answer:
    """Answer with a refusal; to a HEAD request without its body."""
    headers = (("Content-Type", refusal.content_type), *refusal.headers)
    return Answer(refusal.status, headers, None if to_head else refusal.body)
