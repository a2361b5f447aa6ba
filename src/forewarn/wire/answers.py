"""What the endpoint says when it says no: status, body and headers of every refusal (PROTOCOL §5)."""

from enum import StrEnum

import msgspec

from forewarn.core.text import shortened
from forewarn.wire.versions import VERSIONS

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

ECHO = 64
"""How many bytes of a caller's own text an answer repeats."""

NEWEST_FIRST = VERSIONS[::-1][:3]

REASON_PHRASES: dict[int, str] = {
    100: "Continue",
    200: "OK",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    410: "Gone",
    413: "Payload Too Large",
    417: "Expectation Failed",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Reason(StrEnum):
    """Why a request was refused: the label under which refusals are counted."""

    UNKNOWN_CALLER = "unknown-caller"
    RATE = "rate"
    PATH = "path"
    METHOD = "method"
    FORWARDED = "forwarded"
    METADATA_HEADER = "metadata-header"
    VERSION_MISSING = "version-missing"
    VERSION_TWICE = "version-twice"
    VERSION_UNSUPPORTED = "version-unsupported"
    WAIT = "wait"
    FORMAT = "format"
    BODY = "body"
    UNKNOWN_EVENT = "unknown-event"
    TOO_LARGE = "too-large"
    HEADER_TOO_LARGE = "header-too-large"
    MALFORMED = "malformed"
    EXPECTATION = "expectation"
    TIMEOUT = "timeout"
    CONNECTIONS = "connections"
    UNAVAILABLE = "unavailable"
    FAULT = "fault"


class Refusal(msgspec.Struct, frozen=True):
    """A whole answer but for the headers that every answer has. After `close` nothing more is read."""

    status: int
    body: bytes
    reason: Reason
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False


class _Error(msgspec.Struct):
    error: str


class _VersionError(msgspec.Struct, rename="kebab"):
    error: str
    newest_versions: tuple[str, ...] = NEWEST_FIRST


def status_line(status: int) -> bytes:
    """Return the first line of an answer, with its line end."""
    return f"HTTP/1.1 {status} {REASON_PHRASES.get(status, '')}\r\n".encode()


def refuse(
    status: int, reason: Reason, why: str, *, headers: tuple[tuple[str, str], ...] = (), close: bool = False
) -> Refusal:
    """Make a refusal that says why."""
    return Refusal(status, msgspec.json.encode(_Error(why)), reason, headers=headers, close=close)


def _refuse_version(status: int, reason: Reason, why: str) -> Refusal:
    sentence = f"{why}. For more information refer to aka.ms/azureimds"
    return Refusal(status, msgspec.json.encode(_VersionError(sentence)), reason)


UNKNOWN_CALLER = refuse(403, Reason.UNKNOWN_CALLER, "Forbidden: the address of this request belongs to no known VM")
TOO_MANY_REQUESTS = Refusal(429, b"Too Many Requests", Reason.RATE, content_type=TEXT, headers=(("Retry-After", "1"),))
UNKNOWN_PATH = refuse(
    404,
    Reason.PATH,
    "Not found: here are /metadata/scheduledevents, /metadata/instance and /metadata/versions",
)
UNKNOWN_INSTANCE_PATH = refuse(404, Reason.PATH, "Not found: the instance document has no such element")
FORWARDED = refuse(400, Reason.FORWARDED, "Bad request: requests with X-Forwarded-For are not served")
NO_METADATA_HEADER = Refusal(
    400, b'{ "error": "Bad request: . Required metadata header not specified" }', Reason.METADATA_HEADER
)
VERSION_MISSING = _refuse_version(
    400, Reason.VERSION_MISSING, "Bad request. api-version was not specified in the request"
)
VERSION_TWICE = _refuse_version(
    400, Reason.VERSION_TWICE, "Bad request. api-version was specified more than once in the request"
)
BAD_WAIT = refuse(400, Reason.WAIT, "Bad request: wait is given once, as a whole number of seconds from 1 to 60")
BAD_FORMAT = refuse(400, Reason.FORMAT, "Bad request: format is given once, as json or text")
BODY_TOO_LARGE = refuse(413, Reason.TOO_LARGE, "Payload too large", close=True)
HEADER_TOO_LARGE = refuse(431, Reason.HEADER_TOO_LARGE, "Request header fields too large", close=True)
UNKNOWN_EXPECTATION = refuse(
    417, Reason.EXPECTATION, "Expectation failed: only 100-continue can be expected", close=True
)
TOO_SLOW = refuse(408, Reason.TIMEOUT, "Request timeout: the request did not arrive in time", close=True)
TOO_MANY_CONNECTIONS = refuse(
    503, Reason.CONNECTIONS, "Service unavailable: too many connections", headers=(("Retry-After", "1"),), close=True
)
NOT_SAVED = refuse(
    503,
    Reason.UNAVAILABLE,
    "Service unavailable: the request could not be saved and has had no effect, try again",
    headers=(("Retry-After", "1"),),
)


def method_not_allowed(method: str, allowed: tuple[str, ...]) -> Refusal:
    """Refuse a method; to HEAD too, whose answer is sent without this body."""
    allow = ", ".join(allowed)
    why = f"Method not allowed: {shortened(method, ECHO)} is not served here, only {allow}"
    return refuse(405, Reason.METHOD, why, headers=(("Allow", allow),))


def version_unsupported(version: str, status: int) -> Refusal:
    """Refuse an api-version that does not exist; `latest` too."""
    why = f"The api-version {shortened(version, ECHO)} is not supported"
    return _refuse_version(status, Reason.VERSION_UNSUPPORTED, why)


def bad_body(why: str) -> Refusal:
    """Refuse a POST whose body is not what the protocol asks for."""
    return refuse(400, Reason.BODY, f"Bad request: {why}")


def unknown_event(event: str) -> Refusal:
    """Refuse an approval that names an event which the scope never had, or forgot: none of its events is approved."""
    return refuse(400, Reason.UNKNOWN_EVENT, f"Bad request: there is no event {shortened(event, ECHO)}")


def malformed_http(why: str) -> Refusal:
    """Refuse what is not HTTP."""
    return refuse(400, Reason.MALFORMED, f"Bad request: {shortened(why)}", close=True)
