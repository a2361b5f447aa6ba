"""Faulty responses for fault injection, to test clients with. Correct ones: `document`, `error_responses`."""

from collections.abc import Callable

import msgspec

from forewarn.core.fault import STATUSES, FaultKind
from forewarn.wire.error_responses import JSON, TOO_MANY_REQUESTS, ErrorReason, ErrorResponse, error_response

HTML = "text/html; charset=utf-8"

UNKNOWN_EVENT_TYPE = "Hibernate"
"""An event type that does not exist in any version."""

EXTRA_FIELD = ("AddedLater", "a field that no version has")

ERROR_RESPONSES = {
    410: error_response(410, ErrorReason.FAULT, "Gone: the service is being updated, try again within 70 seconds"),
    429: msgspec.structs.replace(TOO_MANY_REQUESTS, reason=ErrorReason.FAULT),
    500: error_response(500, ErrorReason.FAULT, "Internal server error: try again"),
}

_encode = msgspec.json.Encoder().encode


def fault_response(kind: FaultKind) -> ErrorResponse | None:
    """Return the error response of a fault; None if the fault is of another kind."""
    return ERROR_RESPONSES[STATUSES[kind]] if kind in STATUSES else None


def empty_body(_: bytes) -> bytes:
    """Return an empty body, as the real service sometimes does before it is enabled (PROTOCOL §3)."""
    return b""


def truncate_body(document: bytes) -> bytes:
    """Return the first half of a document, which is not valid JSON; Content-Length matches it."""
    return document[: len(document) // 2]


def with_unknown_type(document: bytes) -> bytes:
    """Return the document with an unknown type in each event."""
    decoded = msgspec.json.decode(document)
    for event in decoded["Events"]:
        event["EventType"] = UNKNOWN_EVENT_TYPE
    return _encode(decoded)


def with_extra_field(document: bytes) -> bytes:
    """Return the document with an additional last field, in the document itself and in each event."""
    name, value = EXTRA_FIELD
    decoded = msgspec.json.decode(document)
    for part in (decoded, *decoded["Events"]):
        part[name] = value
    return _encode(decoded)


BODY_FAULTS: dict[FaultKind, Callable[[bytes], bytes]] = {
    FaultKind.EMPTY_BODY: empty_body,
    FaultKind.TRUNCATED: truncate_body,
    FaultKind.WRONG_CONTENT_TYPE: bytes,
    FaultKind.UNKNOWN_EVENT_TYPE: with_unknown_type,
    FaultKind.EXTRA_FIELD: with_extra_field,
}
"""How each fault that affects documents changes them."""


def faulty_document(kind: FaultKind, document: bytes) -> tuple[str, bytes]:
    """Return the content type and the body that a fault of BODY_FAULTS makes of a document."""
    return HTML if kind is FaultKind.WRONG_CONTENT_TYPE else JSON, BODY_FAULTS[kind](document)
