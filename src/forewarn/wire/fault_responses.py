"""Faulty responses for fault injection: what clients must survive. Correct ones: `document`, `error_responses`."""

from collections.abc import Callable

import msgspec

from forewarn.core.fault import STATUSES, FaultKind
from forewarn.wire.error_responses import TOO_MANY_REQUESTS, ErrorReason, ErrorResponse, error_response

HTML = "text/html; charset=utf-8"

UNKNOWN_EVENT_TYPE = "Hibernate"
"""An event type that no version has."""

EXTRA_FIELD = ("AddedLater", "a field that no version has")

ERROR_RESPONSES = {
    410: error_response(410, ErrorReason.FAULT, "Gone: the service is being updated, try again within 70 seconds"),
    429: msgspec.structs.replace(TOO_MANY_REQUESTS, reason=ErrorReason.FAULT),
    500: error_response(500, ErrorReason.FAULT, "Internal server error: try again"),
}

_encode = msgspec.json.Encoder().encode


def fault_response(kind: FaultKind) -> ErrorResponse | None:
    """Return the refusal that a fault is, if it is one."""
    return ERROR_RESPONSES[STATUSES[kind]] if kind in STATUSES else None


def empty_body(_: bytes) -> bytes:
    """Return no document at all, as the real service does at times before it is enabled (PROTOCOL §3)."""
    return b""


def truncate_body(document: bytes) -> bytes:
    """Return the first half of a document, which is no JSON; its length, told on its own, is right."""
    return document[: len(document) // 2]


def with_unknown_type(document: bytes) -> bytes:
    """Return the document with a type that nobody knows in place of each event's own."""
    decoded = msgspec.json.decode(document)
    for event in decoded["Events"]:
        event["EventType"] = UNKNOWN_EVENT_TYPE
    return _encode(decoded)


def with_extra_field(document: bytes) -> bytes:
    """Return the document with a field more, in itself and in each event, behind those that belong there."""
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
"""What becomes of a document under the faults that concern documents."""
