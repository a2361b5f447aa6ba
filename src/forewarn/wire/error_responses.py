"""Error responses of the guest endpoint: status, body and headers of every refused request (PROTOCOL §5)."""

from enum import StrEnum

import msgspec

from forewarn.core.text import truncate_text
from forewarn.wire.protocol import NEWEST_INSTANCE_VERSIONS, VERSIONS

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

MAX_ECHO_BYTES = 64
"""How many bytes of a caller's own text a response repeats."""

NEWEST_VERSIONS = VERSIONS[::-1][:3]

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


class ErrorReason(StrEnum):
    """Why a request was refused: the label of the metric that counts refusals."""

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


class ErrorResponse(msgspec.Struct, frozen=True):
    """A whole response except for the headers that every response has. With `close` the connection ends afterwards."""

    status: int
    body: bytes
    reason: ErrorReason
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False


class _Error(msgspec.Struct):
    error: str


class _VersionError(msgspec.Struct, rename="kebab"):
    error: str
    newest_versions: tuple[str, ...]


def status_line(status: int) -> bytes:
    """Return the first line of a response, with its line end."""
    return f"HTTP/1.1 {status} {REASON_PHRASES.get(status, '')}\r\n".encode()


def error_response(
    status: int, reason: ErrorReason, message: str, *, headers: tuple[tuple[str, str], ...] = (), close: bool = False
) -> ErrorResponse:
    """Return an error response with a message."""
    return ErrorResponse(status, msgspec.json.encode(_Error(message)), reason, headers=headers, close=close)


def _version_error(
    status: int, reason: ErrorReason, message: str, newest: tuple[str, ...] = NEWEST_VERSIONS
) -> ErrorResponse:
    text = f"{message}. For more information refer to aka.ms/azureimds"
    return ErrorResponse(status, msgspec.json.encode(_VersionError(text, newest)), reason)


UNKNOWN_CALLER = error_response(
    403, ErrorReason.UNKNOWN_CALLER, "Forbidden: the address of this request belongs to no known VM"
)
TOO_MANY_REQUESTS = ErrorResponse(
    429, b"Too Many Requests", ErrorReason.RATE, content_type=TEXT, headers=(("Retry-After", "1"),)
)
PATH_NOT_FOUND = error_response(
    404,
    ErrorReason.PATH,
    "Not found: here are /metadata/scheduledevents, /metadata/instance and /metadata/versions",
)
IDENTITY_NOT_FOUND = ErrorResponse(
    400, b'{"error":"invalid_request","error_description":"Identity not found"}', ErrorReason.PATH
)
"""As on a VM without a managed identity. Azure's client libraries retry a 404 for half a minute."""
NO_LOAD_BALANCER = error_response(
    404, ErrorReason.PATH, "No load balancer metadata is found: Forewarn knows of no load balancer of this VM"
)
NO_ATTESTATION = error_response(
    404, ErrorReason.PATH, "Not available: attested data is signed by Azure, and this endpoint has no such key"
)
NO_REPROVISION_DATA = error_response(
    404, ErrorReason.PATH, "Not available: this VM was not provisioned in advance and has no reprovisioning data"
)
NO_HARDWARE_CERTIFICATE = error_response(
    404, ErrorReason.PATH, "Not available: this VM is not a confidential VM and has no hardware certificates"
)
INSTANCE_PATH_NOT_FOUND = error_response(404, ErrorReason.PATH, "Not found: the instance document has no such element")
FORWARDED = error_response(400, ErrorReason.FORWARDED, "Bad request: requests with X-Forwarded-For are not served")
METADATA_HEADER_MISSING = ErrorResponse(
    400, b'{ "error": "Bad request: . Required metadata header not specified" }', ErrorReason.METADATA_HEADER
)
VERSION_MISSING = _version_error(
    400, ErrorReason.VERSION_MISSING, "Bad request. api-version was not specified in the request"
)
VERSION_REPEATED = _version_error(
    400, ErrorReason.VERSION_TWICE, "Bad request. api-version was specified more than once in the request"
)
INVALID_WAIT = error_response(
    400, ErrorReason.WAIT, "Bad request: wait is given once, as a whole number of seconds from 1 to 60"
)
INVALID_FORMAT = error_response(400, ErrorReason.FORMAT, "Bad request: format is given once, as json or text")
BODY_TOO_LARGE = error_response(413, ErrorReason.TOO_LARGE, "Payload too large", close=True)
HEADER_TOO_LARGE = error_response(431, ErrorReason.HEADER_TOO_LARGE, "Request header fields too large", close=True)
EXPECTATION_FAILED = error_response(
    417, ErrorReason.EXPECTATION, "Expectation failed: only 100-continue can be expected", close=True
)
REQUEST_TIMEOUT = error_response(
    408, ErrorReason.TIMEOUT, "Request timeout: the request did not arrive in time", close=True
)
TOO_MANY_CONNECTIONS = error_response(
    503,
    ErrorReason.CONNECTIONS,
    "Service unavailable: too many connections",
    headers=(("Retry-After", "1"),),
    close=True,
)
NOT_SAVED = error_response(
    503,
    ErrorReason.UNAVAILABLE,
    "Service unavailable: the request could not be saved and has had no effect, try again",
    headers=(("Retry-After", "1"),),
)
OUTCOME_UNKNOWN = error_response(
    503,
    ErrorReason.UNAVAILABLE,
    "Service unavailable: it is not known whether the request was saved, repeat it",
    headers=(("Retry-After", "1"),),
)


def method_not_allowed(method: str, allowed: tuple[str, ...]) -> ErrorResponse:
    """Refuse a method. HEAD gets the same response without its body."""
    allow = ", ".join(allowed)
    why = f"Method not allowed: {truncate_text(method, MAX_ECHO_BYTES)} is not served here, only {allow}"
    return error_response(405, ErrorReason.METHOD, why, headers=(("Allow", allow),))


def version_unsupported(version: str, status: int) -> ErrorResponse:
    """Refuse an api-version that does not exist, including `latest`."""
    why = f"The api-version {truncate_text(version, MAX_ECHO_BYTES)} is not supported"
    return _version_error(status, ErrorReason.VERSION_UNSUPPORTED, why)


def instance_version_unsupported(version: str) -> ErrorResponse:
    """Refuse an api-version of instance metadata. With 400, clients fall back to an older version; 404 they retry."""
    why = f"Bad request. The api-version {truncate_text(version, MAX_ECHO_BYTES)} is not supported"
    return _version_error(400, ErrorReason.VERSION_UNSUPPORTED, why, NEWEST_INSTANCE_VERSIONS)


def invalid_body(message: str) -> ErrorResponse:
    """Refuse a POST whose body does not follow the protocol."""
    return error_response(400, ErrorReason.BODY, f"Bad request: {message}")


def event_not_found(event: str) -> ErrorResponse:
    """Refuse an approval of an event that the scope does not know; none of the named events is approved."""
    return error_response(
        400, ErrorReason.UNKNOWN_EVENT, f"Bad request: there is no event {truncate_text(event, MAX_ECHO_BYTES)}"
    )


def malformed_request(message: str) -> ErrorResponse:
    """Refuse a request that is not valid HTTP."""
    return error_response(400, ErrorReason.MALFORMED, f"Bad request: {truncate_text(message)}", close=True)
